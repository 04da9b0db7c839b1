"""An incident under a real scheduler is sent once, and once when it is over, over SMTP and HTTP.

Scheduler, triggerer and DAG processor are killed in between.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rewindow.embedded.environment import airflow_home
from rewindow.embedded.status import READY, read_status
from rewindow.ledger import Ledger
from rewindow.publication.publish import publish
from rewindow.settings.config import Config
from tests.airflow.airflows import LiveAirflow, live_airflow
from tests.airflow.conftest import ROOT
from tests.airflow.receivers import Mailbox, Webhook, mailbox, webhook
from tests.airflow.small_project import make_project
from tests.airflow.test_scheduler import clear, done, run_id, trigger, unpause, waits
from tests.publication.staging import simple

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("notices"),
]
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DAYS = 5
NOTIFIERS = """
import json
import urllib.request

from airflow.providers.smtp.notifications.smtp import SmtpNotifier

mail = SmtpNotifier(
    to="on-duty@example.org",
    from_email="rewindow@example.org",
    subject="{{{{ rewindow.subject }}}}",
    html_content="<pre>{{{{ rewindow.message | e }}}}</pre>",
    smtp_conn_id="on_duty",
)


def post(context):
    data = json.dumps(context["rewindow"]).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    opener.open(urllib.request.Request("{address}", data), timeout=30).close()
"""
DAG = """
from datetime import datetime, UTC
from pathlib import Path

from rewindow.errors import InputError
from rewindow_airflow import failures, interval_dag, scheduled_dag
from rewindow_airflow.approval import ApprovePublicationOperator
from rewindow_airflow.steps import RewindowPlanOperator

FOLDER = Path(__file__).parents[1]


def note(name):
    def callback(context):
        with open(FOLDER / name, "a") as notes:
            print(context["run_id"], file=notes)

    return callback


def request_of(config, context):
    run = context["dag_run"]
    if (FOLDER / f"fail-{run.logical_date:%m-%d}").exists():
        raise InputError("this day fails")
    with open(FOLDER / "days.done", "a") as done:
        print(f"{run.logical_date:%Y-%m-%d}", file=done)
    raise failures.Nothing("this day is noted")


with scheduled_dag("ask", schedule=None, is_paused_upon_creation=False):
    ApprovePublicationOperator(task_id="approve_publication", replay="r-3")

with interval_dag(
    "days",
    application="clicks_by_page",
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 3, 1, tzinfo=UTC),
    on_failure_callback=note("failures"),
    on_success_callback=note("successes"),
):
    RewindowPlanOperator(
        task_id="plan_replay", request_of=request_of, in_order=True, retries=0
    )
"""


@pytest.fixture(scope="module")
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


@pytest.fixture(scope="module")
def mails() -> Iterator[Mailbox]:
    with mailbox() as box:
        yield box


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, hook: Webhook) -> Config:
    folder = tmp_path_factory.mktemp("notified")
    settings = make_project(folder, ROOT)
    (folder / "dags").unlink()
    (folder / "dags").mkdir()
    (folder / "dags" / "emit_publications.py").symlink_to(ROOT / "dags" / "emit_publications.py")
    (folder / "dags" / "days.py").write_text(DAG)
    (folder / "dags" / "on_duty.py").write_text(NOTIFIERS.format(address=hook.address))
    names = ["on_duty:mail", "on_duty:post"]
    with settings.open("a") as file:
        file.write(f"\n[airflow]\nnotifiers = {json.dumps(names)}\n")
    config = Config.load(settings)
    simple(config, "r-1", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "r-1")
    simple(config, "r-2", 110, 119, outputs=("ranks",))
    simple(config, "r-3", 120, 129, publishable=True, outputs=("ranks",))
    return config


@pytest.fixture(scope="module")
def airflow(project: Config, mails: Mailbox) -> Iterator[LiveAirflow]:
    extra = {"disable_ssl": True, "disable_tls": True}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mails.port, "extra": extra}
    with live_airflow(project, AIRFLOW_CONN_ON_DUTY=json.dumps(connection)) as airflow:
        # Only the test evaluates, so that it knows when.
        unpause(airflow, "emit_publications", is_paused=True)
        yield airflow


@pytest.fixture(autouse=True)
def nothing_sent(project: Config, hook: Webhook, mails: Mailbox) -> None:
    """Removes what earlier tests of the module have left."""
    hook.posts.clear()
    mails.mails.clear()
    for name in ("days.done", "failures", "successes"):
        (project.root / name).unlink(missing_ok=True)


def evaluate(airflow: LiveAirflow, number: int) -> None:
    """Runs the tasks of emit_publications once."""
    at = START + timedelta(minutes=number)
    run = f"evaluate-{number}"
    body = {"logical_date": f"{at:%Y-%m-%dT%H:%M:%SZ}", "dag_run_id": run}
    airflow.ask("dags/emit_publications/dagRuns", body=body)
    unpause(airflow, "emit_publications")
    airflow.until(lambda: airflow.runs("emit_publications").get(run) == "success", f"{run} ended")
    unpause(airflow, "emit_publications", is_paused=True)


def kill_components(project: Config, airflow: LiveAirflow) -> None:
    """Kills every component but the API server, and waits until others have replaced them."""
    status = read_status(airflow_home(project))
    assert status is not None
    killed = {name: pid for name, pid in status.components.items() if "api" not in name}
    assert len(killed) == 3
    for pid, _ in killed.values():
        os.kill(pid, signal.SIGKILL)

    def are_replaced() -> bool:
        now = read_status(airflow_home(project))
        if now is None or now.state != READY:
            return False
        return all(now.components.get(name) not in (None, old) for name, old in killed.items())

    airflow.until(are_replaced, "the components are replaced")


def test_incident_is_one_failure_and_one_recovery_across_restarts(
    airflow: LiveAirflow,
    project: Config,
    hook: Webhook,
    mails: Mailbox,
) -> None:
    ledger = Ledger.open(project.ledger_url)
    ledger.stale.add("app", "app.ranks", 102, 103, since=1)
    ledger.checks.record("r-2", "failed")
    evaluate(airflow, 1)
    assert len(hook.posts) == 2
    for number in range(DAYS):
        trigger(airflow, "days", START + number * DAY)
    (project.root / "fail-01-02").touch()
    unpause(airflow, "days")
    failed = run_id("days", START + DAY)
    airflow.until(lambda: airflow.runs("days")[failed] == "failed", "the second day has failed")
    airflow.until(lambda: waits(airflow, "days", START + 2 * DAY), "the third day waits")
    airflow.until(lambda: len(hook.posts) == 3, "the failure is posted")

    kill_components(project, airflow)
    evaluate(airflow, 2)
    assert len(hook.posts) == 3
    (project.root / "fail-01-02").unlink()
    clear(airflow, "days", START + DAY)
    airflow.until(lambda: len(done(project, "days")) == DAYS, "all days are done")
    airflow.until(lambda: set(airflow.runs("days").values()) == {"success"}, "all runs have ended")
    airflow.until(lambda: len(hook.posts) == 4, "the recovery is posted")

    ledger.stale.clear("app", "app.ranks", 100, 109)
    ledger.replays.abandon("r-2")
    kill_components(project, airflow)
    evaluate(airflow, 3)
    evaluate(airflow, 4)
    sent = Counter((post["condition"], post["change"]) for post in hook.posts)
    kinds = ("windows_stale", "gate_failed", "replay_failed")
    assert sent == {(kind, change): 1 for kind in kinds for change in ("started", "ended")}
    failures = [post["subject"] for post in hook.posts if post["condition"] == "replay_failed"]
    assert [subject.rpartition(": ")[2] for subject in failures] == [f"days/{failed}"] * 2
    assert [subject for subject, _ in mails.mails] == [post["subject"] for post in hook.posts]
    assert (project.root / "failures").read_text().split() == [failed]
    # A run has waited for the cleared one, and has given up its slot as a success.
    successes = Counter((project.root / "successes").read_text().split())
    assert successes[run_id("days", START + 2 * DAY)] == 2
    assert sorted(done(project, "days")) == [f"{START + n * DAY:%Y-%m-%d}" for n in range(DAYS)]


def test_failed_run_that_is_cleared_and_gives_up_its_slot_is_not_a_recovery(
    airflow: LiveAirflow,
    project: Config,
    hook: Webhook,
) -> None:
    days = [START + 31 * DAY, START + 32 * DAY]
    first, second = (run_id("days", day) for day in days)

    def sent(run: str) -> list[str]:
        return [post["change"] for post in hook.posts if post["subject"].endswith(f"days/{run}")]

    unpause(airflow, "days")
    (project.root / "fail-02-02").touch()
    for day in days:
        trigger(airflow, "days", day)
    airflow.until(lambda: sent(second) == ["started"], "the failure is posted")
    (project.root / "fail-02-01").touch()
    clear(airflow, "days", days[0])
    airflow.until(lambda: sent(first) == ["started"], "the other failure is posted")
    (project.root / "fail-02-02").unlink()
    clear(airflow, "days", days[1])
    airflow.until(lambda: waits(airflow, "days", days[1]), "the second day waits")
    clear(airflow, "days", days[0])
    successes = project.root / "successes"
    gave_up = lambda: successes.exists() and second in successes.read_text()  # noqa: E731
    airflow.until(gave_up, "the second day gave up its slot")
    evaluate(airflow, 10)
    assert (sent(first), sent(second)) == (["started"], ["started"])
    (project.root / "fail-02-01").unlink()
    clear(airflow, "days", days[0])
    airflow.until(lambda: len(sent(first)) == len(sent(second)) == 2, "both recoveries are posted")
    evaluate(airflow, 11)
    assert (sent(first), sent(second)) == (["started", "ended"], ["started", "ended"])


def test_question_is_posted_once_and_its_answer_once_across_restarts(
    airflow: LiveAirflow,
    project: Config,
    hook: Webhook,
) -> None:
    def sent() -> list[str]:
        return [post["change"] for post in hook.posts if post["condition"] == "approval_waiting"]

    trigger(airflow, "ask", START)
    airflow.until(lambda: sent() == ["started"], "the question is posted")
    kill_components(project, airflow)
    evaluate(airflow, 20)
    assert sent() == ["started"]
    run = f"dags/ask/dagRuns/{run_id('ask', START)}"
    fields = {"accept": None, "comment": None, "when_rejected": "leave_staged"}
    body = {"chosen_options": ["Approve"], "params_input": fields}
    path = f"{run}/taskInstances/approve_publication/-1/hitlDetails"
    airflow.ask(path, body=body, method="PATCH")
    airflow.until(lambda: airflow.runs("ask")[run_id("ask", START)] == "success", "it has ended")
    evaluate(airflow, 21)
    assert sent() == ["started", "ended"]
