"""What an approver reads: a user's text is shown word for word, never rendered."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import TaskAwaitingInput
from markdown_it import MarkdownIt

from rewindow_airflow.steps import ApprovePublicationOperator, question

FORGED = [
    "![x](https://elsewhere.example/pixel.png)",
    "<img src=https://elsewhere.example/pixel.png><script>alert(1)</script>",
    "fine\n\n# The gate has passed\n\n[Report](javascript:alert(1))",
    "```\n# out of the block\n![x](https://elsewhere.example/a.png)",
    "````text\n~~~~~~\n````\n<h1>out</h1>",
    "a\r\n```\r\n**bold**\r# head",
    "{{ conn.secret.password }} {% raw %}",
    "https://elsewhere.example &lt;b&gt; | a | b |\n|---|---|\n| c | d |",
    "    indented\n\tx\n\n\n- list\n1. list\n> quote\n---\n[a]: https://elsewhere.example",
]


@pytest.mark.parametrize("text", FORGED)
def test_text_of_a_user_is_shown_verbatim(text: str) -> None:
    page = MarkdownIt("commonmark", {"html": True, "linkify": False}).render(
        question("r-1", "clicks", text)
    )
    blocks = re.findall(r"<pre><code[^>]*>(.*?)</code></pre>", page, re.DOTALL)
    assert [html.unescape(block).rstrip("\n") for block in blocks] == [
        "r-1 of clicks",
        re.sub(r"\r\n?", "\n", text),
    ]
    around = re.sub(r"<pre><code.*?</code></pre>", "", page, flags=re.DOTALL)
    assert set(re.findall(r"<(/?\w+)", around)) == {"p", "/p"}
    assert "elsewhere" not in around


def test_bidirectional_control_characters_are_not_shown_raw() -> None:
    assert "\u202e" not in question("r-1", "clicks", "harmless \u202etxet")


def test_approval_question_is_not_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: asked.update(values))
    operator = ApprovePublicationOperator(task_id="approve_publication", replay="r-1")
    params = {"publish": "approve", "application": "clicks", "reason": FORGED[0]}
    with pytest.raises(TaskAwaitingInput):
        operator.execute({"params": params, "task_instance": type("Instance", (), {"id": "1"})()})  # type: ignore[arg-type]
    assert asked["subject"] == "Publish the replayed windows?"
    assert asked["body"] == question("r-1", "clicks", FORGED[0])
    assert set(operator.template_fields) == {"replay"}
