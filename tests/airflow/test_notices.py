"""Notifiers are called once about each change, over real SMTP and HTTP."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.ledger.models import replays
from rewindow.publication.publish import publish
from rewindow.settings.conditions import CONDITIONS
from rewindow.settings.config import Config
from rewindow_airflow import interval_dag, notify_conditions, order, plan_interval, scheduled_dag
from rewindow_airflow.notices import NotifyOperator, RunNotices, notify_answered, notify_asked
from tests.airflow.receivers import Mailbox, Webhook, mailbox, webhook
from tests.publication.staging import simple

RUN = "scheduled__2026-03-01T00:00:00+00:00"
BASE_URL = "https://airflow.example.org/base/"
on_duty = SmtpNotifier(
    to="on-duty@example.org",
    from_email="rewindow@example.org",
    subject="{{ rewindow.subject }}",
    html_content="<pre>{{ rewindow.message | e }}</pre>",
    smtp_conn_id="on_duty",
)


def post(context: Any) -> None:
    data = json.dumps(context["rewindow"]).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(os.environ["WEBHOOK"], data), timeout=30).close()


SETTINGS = """
state = "state"

[airflow]
notifiers = ["tests.airflow.test_notices:on_duty", "tests.airflow.test_notices:post"]
"""


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    with mailbox() as box:
        extra = {"disable_ssl": True, "disable_tls": True}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_ON_DUTY", json.dumps(connection))
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", BASE_URL)
        yield box


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with webhook() as hook:
        monkeypatch.setenv("WEBHOOK", hook.address)
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", BASE_URL)
        yield hook


def project(folder: Path, settings: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    file = folder / "rewindow.toml"
    file.write_text(settings)
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Config.load(file)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return project(tmp_path, SETTINGS, monkeypatch)


@pytest.fixture
def stale(config: Config) -> Ledger:
    """A ledger in which two published windows are stale."""
    simple(config, "r-1", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "r-1")
    ledger = Ledger.open(config.ledger_url)
    ledger.stale.add("app", "app.ranks", 102, 103, since=1)
    return ledger


def evaluate() -> None:
    with DAG("emit_publications", schedule=None) as dag:
        task = notify_conditions()
    task.execute({"dag": dag, "task": task})  # type: ignore[arg-type]


def changes(hook: Webhook) -> list[tuple[str, str]]:
    return [(post["change"], post["condition"]) for post in hook.posts]


def test_condition_is_mailed_and_posted_once_when_it_starts_worsens_and_ends(
    stale: Ledger,
    mails: Mailbox,
    hook: Webhook,
) -> None:
    evaluate()
    evaluate()
    stale.stale.add("app", "app.ranks", 102, 105, since=1)
    evaluate()
    evaluate()
    stale.stale.clear("app", "app.ranks", 100, 109)
    evaluate()
    evaluate()
    assert [subject for subject, _ in mails.mails] == [
        "Rewindow: windows stale: app.ranks",
        "Rewindow: worse: windows stale: app.ranks",
        "Rewindow: resolved: windows stale: app.ranks",
    ]
    kinds = ["started", "worsened", "ended"]
    assert changes(hook) == [(kind, "windows_stale") for kind in kinds]
    [(_, first), _, (_, last)] = mails.mails
    assert "2 published windows of app.ranks are stale" in first
    assert "Where: windows [102, 103], 1970-01-05T06:00:00Z to 1970-01-05T08:00:00Z." in first
    assert "In Airflow: start the DAG act_on_stream with action repair." in first
    assert "Link: https://airflow.example.org/base/rewindow/overview" in first
    assert "Resolved: " in last and "Next:" not in last


def test_notifier_that_fails_is_called_again_and_the_others_are_not(
    stale: Ledger,
    mails: Mailbox,
    hook: Webhook,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook.status = 500
    evaluate()
    assert "failed; the next evaluation calls it again" in caplog.text
    hook.status = 200
    evaluate()
    evaluate()
    assert len(mails.mails) == 1
    assert changes(hook) == [("started", "windows_stale")] * 2


def test_only_the_wanted_conditions_are_sent(
    stale: Ledger,
    hook: Webhook,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = 'notifiers = ["tests.airflow.test_notices:post"]\nnotify_on = ["gate_failed"]\n'
    project(tmp_path, f'state = "state"\n[airflow]\n{wanted}', monkeypatch)
    evaluate()
    stale.stale.clear("app", "app.ranks", 100, 109)
    simple(Config.load(), "r-2", 110, 119, outputs=("ranks",))
    stale.checks.record("r-2", "failed")
    evaluate()
    assert changes(hook) == [("started", "gate_failed")]
    assert hook.posts[0]["link"] == "https://airflow.example.org/base/rewindow/replays/r-2/page"


def of_run(dag: DAG, **more: Any) -> Any:
    """Returns the context of a callback at the end of a run, without its last task."""
    return {"dag": dag, "run_id": RUN, "reason": "task_failure", **more}


@pytest.fixture
def dag(config: Config, hook: Webhook) -> DAG:
    with interval_dag("daily", application="app", notifiers=[post]) as dag:
        plan_interval()
    return dag


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """States of tasks that Airflow answers, and whether the run gave up its slot."""
    found: dict[str, Any] = {"plan_replay": "failed", "made_way": False}
    tasks = lambda *_: {name: found[name] for name in found if name != "made_way"}  # noqa: E731
    monkeypatch.setattr(order, "task_states", tasks)
    monkeypatch.setattr(order, "gave_up_slot", lambda *_: found["made_way"])
    return found


def end(dag: DAG, name: str) -> None:
    for callback in getattr(dag, name):
        callback(of_run(dag))


def test_failed_run_is_sent_once_and_only_its_own_success_ends_it(
    dag: DAG,
    states: dict[str, Any],
    mails: Mailbox,
    hook: Webhook,
) -> None:
    end(dag, "on_failure_callback")
    end(dag, "on_failure_callback")
    # Once for the notifier of the DAG file, and once for that of the settings.
    assert changes(hook) == [("started", "replay_failed")] * 2
    [(subject, text)] = mails.mails
    assert subject == f"Rewindow: replay failed: daily/{RUN}"
    assert f"run {RUN} of the DAG daily failed in plan_replay." in text
    assert (
        "https://airflow.example.org/base/dags/daily/runs/scheduled__2026-03-01T00%3A00%3A00%2B00%3A00"
        in text
    )
    states["plan_replay"] = None  # It was cleared.
    end(dag, "on_success_callback")
    states.update(plan_replay="skipped", made_way=True)
    end(dag, "on_success_callback")
    assert len(mails.mails) == 1
    states.update(plan_replay="success", made_way=False)
    end(dag, "on_success_callback")
    end(dag, "on_success_callback")
    assert changes(hook)[2:] == [("ended", "replay_failed")] * 2


def test_failed_gate_is_sent_as_one_condition_only(
    dag: DAG,
    states: dict[str, Any],
    mails: Mailbox,
    config: Config,
) -> None:
    ledger = Ledger.open(config.ledger_url)
    simple(config, "r-1", 100, 109, outputs=("ranks",))
    ledger.checks.record("r-1", "failed")
    with ledger.database.writing() as connection:
        plan = {**ledger.replays.get("r-1").plan, "dag": "daily", "run": RUN}
        connection.execute(update(replays).values(plan=plan))
    end(dag, "on_failure_callback")
    assert [subject for subject, _ in mails.mails] == [f"Rewindow: gate failed: daily/{RUN}"]
    ledger.replays.abandon("r-1")
    evaluate()
    assert mails.mails[1][0] == f"Rewindow: resolved: gate failed: daily/{RUN}"
    assert len(mails.mails) == 2


@pytest.mark.parametrize(
    ("state", "made_way", "ends"),
    [
        ("failed", False, False),
        ("running", False, False),
        ("queued", False, False),
        ("success", True, False),
        ("success", False, True),
        ("", False, True),
    ],
)
def test_end_of_a_failed_run_is_noticed_without_its_callback(
    state: str,
    made_way: bool,
    ends: bool,
    dag: DAG,
    states: dict[str, Any],
    mails: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end(dag, "on_failure_callback")
    monkeypatch.setattr(order, "run_state", lambda *_: state)
    states["made_way"] = made_way
    evaluate()
    assert len(mails.mails) == 1 + ends


def test_failed_run_whose_callback_was_lost_is_sent_unless_it_is_old(
    states: dict[str, Any],
    config: Config,
    mails: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order, "run_state", lambda *_: "failed")
    ledger = Ledger.open(config.ledger_url)
    for replay_id, run, age in (("r-new", RUN, 1), ("r-old", "manual__old", 25)):
        simple(config, replay_id, 100, 109, outputs=("ranks",))
        with ledger.database.writing() as connection:
            row = ledger.replays.get(replay_id)
            values = {
                "plan": {**row.plan, "dag": "daily", "run": run},
                "state": "failed",
                "changed_at": row.changed_at - timedelta(hours=age),
            }
            changed = update(replays).where(replays.c.replay_id == replay_id)
            connection.execute(changed.values(values))
    evaluate()
    evaluate()
    subjects = [subject for subject, _ in mails.mails]
    assert subjects == [f"Rewindow: replay failed: daily/{RUN}"]


def test_run_that_is_restarted_during_an_evaluation_is_not_a_recovery(
    dag: DAG,
    states: dict[str, Any],
    mails: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It had given up its slot. The restart removes the mark between two reads.
    end(dag, "on_failure_callback")
    answers = cycle(["success", "queued"])
    monkeypatch.setattr(order, "run_state", lambda *_: next(answers))
    evaluate()
    states["plan_replay"] = "skipped"

    def restarted(*_: str) -> bool:
        states["plan_replay"] = None
        return False

    monkeypatch.setattr(order, "gave_up_slot", restarted)
    end(dag, "on_success_callback")
    assert len(mails.mails) == 1


def test_outdated_callback_of_a_failed_run_is_ignored(
    dag: DAG,
    states: dict[str, Any],
    hook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order, "is_unchanged", lambda _: False)
    run = SimpleNamespace(dag_id="daily", run_id=RUN, logical_date=datetime(2026, 3, 1, tzinfo=UTC))
    for callback in dag.on_failure_callback:  # type: ignore[union-attr]
        callback(of_run(dag, dag_run=run))
    assert hook.posts == []


def test_question_calls_notifiers_when_it_waits_and_when_a_user_answers(
    dag: DAG,
    mails: Mailbox,
    hook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = SimpleNamespace(dag_id="daily", run_id=RUN)
    asks = of_run(dag, dag_run=run, ti=SimpleNamespace(task_id="approve_publication"))
    notify_asked(asks, 'replay "r-1" waits for an approval', "app")
    states = {"approve_publication": "awaiting_input"}
    monkeypatch.setattr(order, "task_states", lambda *_: states)
    evaluate()
    assert [subject for subject, _ in mails.mails] == [
        f"Rewindow: approval waiting: daily/{RUN}/approve_publication"
    ]
    notify_answered(asks)
    notify_answered(asks)
    assert (
        changes(hook) == [("started", "approval_waiting")] * 2 + [("ended", "approval_waiting")] * 2
    )
    notify_asked(asks, 'replay "r-2" waits for an approval', "app")
    states.clear()  # The run was deleted.
    evaluate()
    assert len(mails.mails) == 4


def test_question_does_not_fail_without_a_ledger(
    dag: DAG,
    config: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (config.root / "state").write_text("not a folder")
    run = SimpleNamespace(dag_id="daily", run_id=RUN)
    asks = of_run(dag, dag_run=run, ti=SimpleNamespace(task_id="approve_publication"))
    notify_asked(asks, 'replay "r-1" waits for an approval', "app")
    assert "Notifiers were not called" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:on_duty", "cannot be imported: No module named 'no_such_module'"),
        ("tests.airflow.test_notices:missing", "cannot be imported: module"),
        ("tests.airflow.test_notices", "cannot be imported"),
        ("tests.airflow.test_notices:SmtpNotifier", "is not a function or an object"),
        ("tests.airflow.test_notices:RUN", "is not a function or an object"),
    ],
)
def test_wrong_notifier_in_the_settings_is_rejected(
    name: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project(tmp_path, f'state = "state"\n[airflow]\nnotifiers = ["{name}"]\n', monkeypatch)
    with pytest.raises(AirflowFailException, match=message):
        NotifyOperator(task_id="notify").execute({})  # type: ignore[arg-type]


def test_wrong_arguments_of_a_dag_are_rejected(config: Config) -> None:
    with pytest.raises(InputError, match='condition "gate_faild" in notify_on is unknown') as error:
        scheduled_dag("mine", notify_on={"gate_faild"})
    assert 'Did you mean "gate_failed"' in str(error.value)
    with pytest.raises(InputError, match="is not a function or an object"):
        scheduled_dag("mine", notifiers=[SmtpNotifier])


def test_callbacks_of_the_user_are_kept(config: Config) -> None:
    ours = RunNotices("other").failed
    for theirs in (post, [post], None):
        dag = scheduled_dag("mine", on_failure_callback=theirs, notifiers=[post])
        assert isinstance(dag.on_failure_callback, list)
        assert [one for one in dag.on_failure_callback if one is post] == [post] * bool(theirs)
        assert dag.on_failure_callback[-1].__func__ is ours.__func__  # type: ignore[attr-defined]


def test_dag_without_notifiers_has_no_callbacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project(tmp_path, 'state = "state"\n', monkeypatch)
    dag = scheduled_dag("mine", on_success_callback=post)
    assert (dag.on_failure_callback, dag.on_success_callback) == (None, post)
    evaluate()
    assert not (tmp_path / "state").exists()


def test_every_condition_is_a_default() -> None:
    assert Config().airflow.notify_on == list(CONDITIONS)
