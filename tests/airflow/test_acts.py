"""Actions by a form: the preview, the question, and the command. Commands are real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    ParamValidationError,
    TaskAwaitingInput,
)

from rewindow.ledger import Ledger
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from rewindow_airflow.acts import (
    ACTS,
    PURGE,
    REPLAY_ACTS,
    ActOperator,
    ApproveActOperator,
    PreviewActOperator,
)
from rewindow_airflow.factories import act_dag
from tests.airflow.conftest import in_force
from tests.airflow.test_approval import context
from tests.airflow.test_operators import Store
from tests.publication.staging import simple, stage_lossy

FORM: dict[str, Any] = {
    "act": "undo",
    "replay": "good",
    "reason": "the source was wrong",
    "accept": None,
    "stream": "flights",
    "older_than_days": 30,
}


@pytest.fixture(autouse=True)
def dag() -> Iterator[DAG]:
    """A DAG for the tasks of a test."""
    with DAG("acts", schedule=None) as dag:
        yield dag


@pytest.fixture(autouse=True)
def config(tmp_path: Path) -> Iterator[Config]:
    """A project with a published replay."""
    (tmp_path / "rewindow.toml").write_text('state = "state"\n')
    config = Config.load(tmp_path / "rewindow.toml")
    simple(config, "good", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "good")
    with in_force(config):
        yield config


def state(config: Config, replay_id: str) -> str:
    return str(Ledger.open(config.ledger_url).replays.get(replay_id).state.value)


def preview(**form: Any) -> str:
    operator = PreviewActOperator(task_id="preview_act")
    return operator.execute(context(operator, FORM | form))


def act(**form: Any) -> str:
    operator = ActOperator(task_id="run_act", retries=0)
    found = context(operator, FORM | form) | {"task_state_store": Store()}
    return operator.execute(found)


def test_undo_shows_a_preview_and_then_runs(config: Config) -> None:
    shown = preview()
    assert shown.startswith("rewindow undo good --dry-run")
    assert "good would be undone: 10 windows [100, 109]" in shown
    assert state(config, "good") == "published"
    assert act() == "rewindow undo good"
    assert state(config, "good") == "undone"


def test_approval_is_valid_for_one_action_only(config: Config, dag: DAG) -> None:
    question = ApproveActOperator(task_id="approve_act", preview="")
    operator = ActOperator(task_id="run_act", retries=0)
    question >> operator
    answered = {"chosen_options": ["Approve"], "responded_at": "2026-03-01T08:00:00Z"}
    found = context(operator, FORM, return_value=answered) | {"task_state_store": Store()}
    operator.execute(found)
    assert state(config, "good") == "undone"
    publish(config, "good")
    with pytest.raises(AirflowFailException, match="was used already"):
        operator.execute(found)
    assert state(config, "good") == "published"


def test_abandoned_replay_keeps_the_reason_of_the_form(config: Config) -> None:
    stage_lossy(config, "lossy")
    act(act="abandon", replay="lossy", reason="  too many losses ")
    row = Ledger.open(config.ledger_url).replays.get("lossy")
    assert (row.state, row.message) == ("abandoned", "too many losses")


def test_certificate_that_finds_a_difference_is_a_success(config: Config) -> None:
    stage_lossy(config, "lossy")
    assert act(act="certify", replay="lossy") == "rewindow certify published lossy"
    assert list((config.results / "certificates").glob("published--lossy-*.html"))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"replay": "nosuch"}, 'replay "nosuch" is unknown'),
        ({"act": "reopen", "stream": None}, 'the action "reopen" needs a stream'),
        ({"act": "reopen", "stream": "nosuch"}, 'stream "nosuch"'),
    ],
)
def test_impossible_action_fails_at_its_preview(form: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        preview(**form)


def test_error_of_an_action_names_the_next_action_in_airflow() -> None:
    with pytest.raises(AirflowFailException, match="In Airflow: start the DAG act_on_replay with "):
        act(act="abandon")


@pytest.mark.parametrize("name", ACTS)
def test_actions_that_remove_or_replace_rows_ask_for_an_approval(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **values: asked.update(values))
    operator = ApproveActOperator(task_id="approve_act", preview="10 windows")
    found = context(operator, FORM | {"act": name})
    if name not in ("undo", "replace", "purge"):
        assert operator.execute(found) == {"chosen_options": ["Approve"]}
        return
    with pytest.raises(TaskAwaitingInput):
        operator.execute(found)
    assert asked["subject"].startswith("Run rewindow ") and "10 windows" in asked["body"]
    assert FORM["reason"] in asked["body"] and asked["defaults"] == ["Reject"]


@pytest.mark.parametrize("name", ACTS)
def test_preview_of_an_action_changes_nothing(name: str) -> None:
    form = FORM | {"act": name}
    words = ACTS[name].preview(form)
    harmless = {"status", "repair", "purge"}
    assert (words[0] in harmless and "--run" not in words and "--yes" not in words) or (
        words[-1] == "--dry-run"
    )


def test_task_runs_only_its_own_actions() -> None:
    operator = ActOperator(task_id="run_job", acts=["resume"])
    with pytest.raises(AirflowSkipException, match='Another task runs the action "undo"'):
        operator.execute(context(operator, FORM))


def test_forms_offer_the_actions_for_their_subject() -> None:
    forms = {on: act_dag(f"on_{on}", on=on).params for on in ("replay", "stream", "purge")}
    assert forms["replay"].get_param("act").schema["enum"] == list(REPLAY_ACTS)
    assert set(forms["stream"]) == {"act", "stream", "reason"}
    assert "act" not in forms["purge"] and list(PURGE) == ["purge"]


def test_form_rejects_a_reason_to_accept_that_is_too_long_for_a_command_line() -> None:
    accept = act_dag("on_replay", on="replay").params.get_param("accept")
    assert accept.resolve("known outage") == "known outage"
    with pytest.raises(ParamValidationError):
        accept.resolve("x" * 200_000)
