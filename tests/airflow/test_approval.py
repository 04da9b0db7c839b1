"""The question that an approver reads, and the effects of the answer.

A user's text is shown verbatim, never rendered.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput
from markdown_it import MarkdownIt

from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.pages.questions import headline
from rewindow.publication.evidence import PublicationEvidence
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow_airflow.approval import (
    ACCEPTED,
    DECISION,
    GIVE_UP,
    LEAVE_STAGED,
    ApprovePublicationOperator,
    CloseReplayOperator,
    evidence_of,
    question,
)
from rewindow_airflow.operators import RewindowSubmitOperator
from tests.publication.staging import simple, stage_lossy
from tests.publication.test_publish import following, ranks_only

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


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> PublicationEvidence:
    """The evidence of a replay without flaws, in a project in which nothing is published."""
    file = tmp_path_factory.mktemp("clean") / "rewindow.toml"
    file.write_text('state = "state"\n')
    config = Config.load(file)
    simple(config, "r-1", 100, 109, publishable=True, outputs=("ranks",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWINDOW_CONFIG", str(file))
        return evidence_of("r-1")


@pytest.mark.parametrize("text", FORGED)
def test_user_text_is_shown_verbatim(text: str, clean: PublicationEvidence) -> None:
    page = MarkdownIt("commonmark", {"html": True, "linkify": False}).render(
        question(with_reason(clean, text))
    )
    blocks = re.findall(r"<pre><code[^>]*>(.*?)</code></pre>", page, re.DOTALL)
    assert [html.unescape(block).rstrip("\n") for block in blocks][:2] == [
        "r-1 of app",
        re.sub(r"\r\n?", "\n", text),
    ]
    around = re.sub(r"<pre><code.*?</code></pre>", "", page, flags=re.DOTALL)
    assert set(re.findall(r"<(/?\w+)", around)) <= {
        f"{end}{tag}" for end in ("", "/") for tag in ("p", "strong", "em", "code", "a")
    }
    assert "elsewhere" not in around


def test_bidirectional_control_characters_are_escaped(clean: PublicationEvidence) -> None:
    assert "\u202e" not in question(with_reason(clean, "harmless \u202etxet"))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    file = tmp_path / "rewindow.toml"
    file.write_text('state = "state"\n')
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Config.load(file)


@pytest.fixture
def lossy(config: Config) -> Config:
    """A published replay, and one of the same range that has lost windows."""
    simple(config, "good", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "good")
    stage_lossy(config, "lossy")
    return config


def test_first_line_of_the_question_counts_lost_and_affected_windows(lossy: Config) -> None:
    evidence = evidence_of("lossy")
    first, *_ = question(evidence).splitlines()
    assert first == (
        "**Of 10 windows: 2 lost; 3 affected by lost windows. Their rows are missing or can be "
        "wrong. The gate has passed, but its suite may have no check for lost windows.**"
    )
    assert [flaw.partition(", ")[2] for flaw in evidence.objections] == [
        "lost: ranks, 2 windows: [105, 106]",
        "affected: ranks, 3 windows: [107, 109]",
    ]
    assert Ledger.open(lossy.ledger_url).checks.acceptances("lossy") == []


def test_question_shows_the_difference_from_the_published_windows(lossy: Config) -> None:
    asked = question(evidence_of("lossy"))
    assert "| `ranks` | 10 | 8 | 0 | 0 | 2 | 0 | 2 | 0 |" in asked
    assert "4 published tuples are missing in lossy" in asked
    assert "published: window_id=105, carrier=AA, minutes=1050, share=15.0" in asked


def test_question_lists_the_windows_that_become_stale(config: Config) -> None:
    ranks_only(config, "r1", 100, 109, publishable=True)
    publish(config, "r1")
    following(config, "r2", 110, 119)
    publish(config, "r2")
    ranks_only(config, "fix", 100, 109, plus=5, publishable=True)
    evidence = evidence_of("fix")
    assert [(entry.table, str(entry.windows)) for entry in evidence.stale] == [
        ("app.ranks", "[110, 119]")
    ]
    assert "app.ranks: 10 windows, 1970-01-05T14:00:00Z to" in question(evidence)


def test_question_without_flaws_asks_for_no_acceptance(clean: PublicationEvidence) -> None:
    asked = question(clean)
    assert headline(clean) == "10 windows: none is lost, partial or affected. The gate has passed."
    assert "No window of this range is published now" in asked
    assert "field `accept`" not in asked


@pytest.fixture(autouse=True)
def dag() -> Iterator[DAG]:
    """A DAG for the tasks of a test, so that they can be connected."""
    with DAG("asks", schedule=None) as dag:
        yield dag


def with_reason(evidence: PublicationEvidence, reason: str) -> PublicationEvidence:
    return replace(evidence, plan=evidence.plan.model_copy(update={"reason": reason}))


def ask(operator: ApprovePublicationOperator, **params: Any) -> dict[str, Any]:
    """Returns the values that the operator passes to Airflow before it waits."""
    asked: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hitl, "upsert_hitl_detail", lambda **values: asked.update(values))
        with pytest.raises(TaskAwaitingInput):
            operator.execute(context(operator, {"publish": "approve", **params}))
    return asked


class Instance(SimpleNamespace):
    """A task instance that keeps what is pushed, and returns what other tasks have pushed."""

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.pushed.get(key)


def context(operator: Any, params: dict[str, Any] | None = None, **pushed: Any) -> Any:
    instance = Instance(
        id="1", task_id="approve_publication", pushed=dict(pushed), try_number=1, max_tries=0
    )
    run = SimpleNamespace(dag_id="asks", run_id="manual__1")
    return {
        "params": params or {},
        "task_instance": instance,
        "ti": instance,
        "task": operator,
        "dag": DAG("asks", schedule=None),
        "dag_run": run,
        "run_id": run.run_id,
    }


def answer(option: str, **inputs: Any) -> dict[str, Any]:
    """Returns the event that Airflow passes on after a user has answered."""
    return {
        "chosen_options": [option],
        "params_input": {"accept": None, "comment": None, "when_rejected": LEAVE_STAGED, **inputs},
        "responded_at": datetime(2026, 3, 1, tzinfo=UTC),
        "responded_by_user": {"id": "7", "name": "maria"},
    }


def approval(**arguments: Any) -> ApprovePublicationOperator:
    return ApprovePublicationOperator(
        **{"task_id": "approve_publication", "replay": "lossy", **arguments}
    )


def test_approval_question_is_not_rendered_as_a_template(lossy: Config) -> None:
    asked = ask(approval(notifiers=[]))
    assert asked["subject"] == ("Publish app, 1970-01-05T04:00:00Z to 1970-01-05T14:00:00Z?")
    assert asked["defaults"] == ["Reject"] and set(asked["params"]) == {
        "accept",
        "comment",
        "when_rejected",
    }
    assert asked["body"].startswith("**Of 10 windows: 2 lost")


def test_subject_body_and_fields_of_the_author_are_kept(lossy: Config) -> None:
    asked = ask(approval(subject="Nightly", body="Call *Maria* first.", params={"ticket": "T-1"}))
    assert asked["subject"] == "Nightly" and "Call *Maria* first." in asked["body"]
    assert set(asked["params"]) == {"accept", "comment", "when_rejected", "ticket"}


def test_question_is_asked_by_default_without_retries() -> None:
    assert approval().retries == 0
    assert approval(task_id="other", retries=2).retries == 2


def test_approval_of_flawed_windows_without_a_reason_asks_again(
    lossy: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    operator = approval(notifiers=[told.append])
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: None)
    found = context(operator, {"publish": "approve"})
    with pytest.raises(TaskAwaitingInput):
        operator.execute(found)
    with pytest.raises(TaskAwaitingInput):
        operator.execute_complete(found, answer("Approve", accept="   "))
    assert len(told) == 1 and not {DECISION, ACCEPTED} & found["ti"].pushed.keys()


@pytest.mark.parametrize("accept", [None, "known outage"])
def test_approval_fails_if_there_are_objections_that_the_question_did_not_show(
    config: Config,
    accept: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simple(config, "early", 100, 109, publishable=True, outputs=("ranks",))
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: None)
    operator = approval(replay="early")
    found = context(operator, {"publish": "approve"})
    with pytest.raises(TaskAwaitingInput):
        operator.execute(found)
    simple(config, "later", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "later")
    with pytest.raises(AirflowFailException, match=r'publication 1 of replay "later"[\s\S]*clear'):
        operator.execute_complete(found, answer("Approve", accept=accept))
    assert not {DECISION, ACCEPTED} & found["ti"].pushed.keys()


def test_reason_of_an_approval_reaches_the_publication(
    lossy: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = approval()
    found = context(operator, {"publish": "approve"})
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: None)
    with pytest.raises(TaskAwaitingInput):
        operator.execute(found)
    operator.execute_complete(found, answer("Approve", accept="-known outage"))
    task = RewindowSubmitOperator(task_id="publish_windows", job="publish", replay="lossy")
    operator >> task
    pushed = found["ti"].pushed
    assert pushed[ACCEPTED] == {"accept": "-known outage", "who": "maria"}
    submission = task._begin(lossy, "lossy", context(task, **pushed))
    assert submission is not None
    command = submission.command[submission.command.index("--replay") :]
    assert command == ["--replay", "lossy", "--accept=-known outage", "--who=maria"]


@pytest.mark.parametrize(
    ("when_rejected", "state", "end"),
    [(LEAVE_STAGED, "checked", "left staged"), (GIVE_UP, "abandoned", "abandoned")],
)
def test_decision_of_a_rejection_is_recorded(
    lossy: Config,
    when_rejected: str,
    state: str,
    end: str,
) -> None:
    decision = {
        "approved": False,
        "by": "maria",
        "comment": "too many losses",
        "when_rejected": when_rejected,
    }
    task = CloseReplayOperator(task_id="close_replay", replay="lossy")
    approval() >> task
    assert task.execute(context(task, **{DECISION: decision})) == state
    row = Ledger.open(lossy.ledger_url).replays.get("lossy")
    assert (row.state, row.message) == (
        state,
        f"publication rejected by maria, {end}: too many losses",
    )


def test_approved_replay_is_never_abandoned(lossy: Config) -> None:
    decision = {"approved": True, "by": "maria", "comment": "", "when_rejected": GIVE_UP}
    task = CloseReplayOperator(task_id="close_replay", replay="lossy")
    approval() >> task
    assert task.execute(context(task, **{DECISION: decision})) == "checked"


def test_deadline_without_an_answer_leaves_the_replay_staged(lossy: Config) -> None:
    operator = approval()
    found = context(operator)
    skipped: list[Any] = []
    operator.skip = lambda **values: skipped.append(values)  # type: ignore[method-assign]
    task = CloseReplayOperator(task_id="close_replay", replay="lossy")
    operator >> task
    operator.execute_complete(found, answer("Reject") | {"responded_by_user": None})
    task.execute(context(task, **found["ti"].pushed))
    row = Ledger.open(lossy.ledger_url).replays.get("lossy")
    assert (row.state, row.message) == (
        "checked",
        "publication not approved before the deadline, left staged",
    )


def test_published_replay_is_closed_without_a_message(lossy: Config) -> None:
    task = CloseReplayOperator(task_id="close_replay", replay="good")
    assert task.execute(context(task)) == "published"
    assert Ledger.open(lossy.ledger_url).replays.get("good").message == ""


def test_replay_that_was_rejected_but_is_published_is_reported(
    lossy: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = CloseReplayOperator(task_id="close_replay", replay="good")
    approval() >> task
    decision = {"approved": False, "by": "maria", "comment": "no", "when_rejected": GIVE_UP}
    with caplog.at_level("WARNING"):
        assert task.execute(context(task, **{DECISION: decision})) == "published"
    assert "published in spite of the decision in this run: publication rejected by" in caplog.text
    assert "action undo and replay good" in caplog.text


def test_retry_does_not_publish_again_what_a_user_has_undone(lossy: Config) -> None:
    undo(lossy, "good")
    task = RewindowSubmitOperator(task_id="publish_windows", job="publish", replay="good")
    found = context(task)
    found["ti"].max_tries = 3
    with pytest.raises(InputError, match="was undone, so a retry"):
        task._begin(lossy, "good", found)
    found["ti"].max_tries = 0  # As after a clear.
    assert task._begin(lossy, "good", found) is not None


def test_run_without_a_replay_has_nothing_to_close() -> None:
    with pytest.raises(AirflowSkipException):
        CloseReplayOperator(task_id="close_replay", replay="None").execute(context(None))
