"""What an approver reads: a user's text is shown word for word, never rendered."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import TaskAwaitingInput
from markdown_it import MarkdownIt

from rewindow.ledger import Ledger
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from rewindow_airflow.steps import ApprovePublicationOperator, objections, question
from tests.publication.staging import simple, stage_lossy

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
def test_user_text_is_shown_verbatim(text: str) -> None:
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


def test_bidirectional_control_characters_are_escaped() -> None:
    assert "\u202e" not in question("r-1", "clicks", "harmless \u202etxet")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    file = tmp_path / "rewindow.toml"
    file.write_text('state = "state"\n')
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Config.load(file)


def test_approver_sees_the_objections_that_the_publication_must_accept(config: Config) -> None:
    simple(config, "good", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "good")
    stage_lossy(config, "lossy")
    against = objections("lossy")
    assert [line.partition(", ")[2] for line in against] == [
        "lost: ranks, 2 windows: [105, 106]",
        "affected: ranks, 3 windows: [107, 109]",
    ]
    asked = question("lossy", "app", "a drill", against)
    assert all(line in asked for line in against)
    assert 'rewindow publish lossy --accept "REASON"' in asked
    assert Ledger.open(config.ledger_url).checks.acceptances("lossy") == []
    assert "will reject it" not in question("good", "app", "a drill", objections("good"))


def test_approval_question_is_not_rendered_as_a_template(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simple(config, "r-1", 100, 101, outputs=("ranks",))
    asked: dict[str, Any] = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: asked.update(values))
    operator = ApprovePublicationOperator(task_id="approve_publication", replay="r-1")
    params = {"publish": "approve", "application": "clicks", "reason": FORGED[0]}
    with pytest.raises(TaskAwaitingInput):
        operator.execute({"params": params, "task_instance": type("Instance", (), {"id": "1"})()})  # type: ignore[arg-type]
    assert asked["subject"] == "Publish the replayed windows?"
    assert asked["body"] == question("r-1", "clicks", FORGED[0])
    assert set(operator.template_fields) == {"replay"}
