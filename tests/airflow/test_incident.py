"""A complete incident, handled in the browser: each step is a call of Airflow's API with a cookie.

A source falls silent, a night fails, the code is fixed, the night is replayed and published, late
tuples arrive, what is stale is repaired, and the repair is undone. No `rewindow` process may run
that Airflow did not start. With REWINDOW_PICTURES=FOLDER, Playwright and a Chromium, the test also
writes the pictures of docs/incident.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rewindow.embedded.environment import airflow_home
from rewindow.embedded.processes import wait_until
from rewindow.embedded.status import read_status
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.airflow.airflows import live_airflow
from tests.airflow.conftest import ROOT
from tests.airflow.small_project import APPLICATION, DAYS, FIRST_DAY, make_project

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("incident"),
]
DAY = timedelta(days=1)
LAST_DAY = FIRST_DAY + (DAYS - 1) * DAY
SILENT_HOURS = 6
SILENT_FROM = LAST_DAY + timedelta(hours=24 - SILENT_HOURS)
"""The source sends nothing in the last six hours of the last day; these tuples arrive late."""
BUG = """
    def transform(self, inputs, state, windows):
        if windows.last >= {window}:
            raise ValueError("amount is missing")
"""
FOLLOWER = """
from pathlib import Path

from airflow.sdk import DAG, task

from rewindow_airflow import stream_asset

totals = stream_asset("clicks_by_page.totals")
with DAG("follow_totals", schedule=totals, is_paused_upon_creation=False):

    @task
    def note(triggering_asset_events):
        with (Path(__file__).parents[1] / "followed").open("a") as followed:
            for event in triggering_asset_events[totals]:
                print(event.extra["act"], event.extra["publication"], file=followed)

    note()
"""


@dataclass
class User:
    """A person with a browser, who has only Airflow's API and a cookie."""

    address: str
    cookie: str
    pictures: Callable[[str, str], None]

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Cookie": f"_token={self.cookie}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.address}/api/v2/{path}", data, headers, method=method or None
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def page(self, path: str) -> str:
        """Returns one of the pages of Rewindow."""
        request = urllib.request.Request(
            f"{self.address}/rewindow/{path}", headers={"Cookie": f"_token={self.cookie}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return str(answer.read().decode())

    def start(self, dag: str, at: datetime | None = None, **form: Any) -> str:
        """Starts a run with a form and returns its id."""
        date = None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
        run = self.ask(f"dags/{dag}/dagRuns", body={"logical_date": date, "conf": form})
        return str(run["dag_run_id"])

    def state(self, dag: str, run: str) -> str:
        return str(self.ask(f"dags/{dag}/dagRuns/{quote(run)}")["state"])

    def until(self, dag: str, run: str, state: str) -> None:
        self.wait(lambda: self.state(dag, run) in ("success", "failed"), f"{dag} has ended")
        assert self.state(dag, run) == state, self.tasks(dag, run)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        assert wait_until(condition, 300, every_seconds=0.5), f"waited 300 s until {what}"

    def tasks(self, dag: str, run: str) -> dict[str, str]:
        found = self.ask(f"dags/{dag}/dagRuns/{quote(run)}/taskInstances")["task_instances"]
        return {one["task_id"]: one["state"] for one in found}

    def question(self, dag: str, run: str, task: str) -> dict[str, Any]:
        """Waits for a question and returns it."""
        path = f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/-1/hitlDetails"
        asks = lambda: self.tasks(dag, run).get(task) == "awaiting_input"  # noqa: E731
        self.wait(asks, f"{task} asks")
        return dict(self.ask(path))

    def answer(self, dag: str, run: str, task: str, option: str, **fields: Any) -> None:
        path = f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/-1/hitlDetails"
        body = {"chosen_options": [option], "params_input": fields}
        self.ask(path, body=body, method="PATCH")

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        path = f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/xcomEntries/{key}"
        return self.ask(path)["value"]

    def log(self, dag: str, run: str, task: str, number: int = 1, index: int = -1) -> str:
        path = f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/logs/{number}"
        return json.dumps(self.ask(f"{path}?full_content=true&map_index={index}"))


@dataclass
class Strangers:
    """Looks for processes of Rewindow that Airflow did not start.

    Processes that exist already, such as the Spark of other tests, do not count.
    """

    supervisor: int
    found: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=lambda: set(os.listdir("/proc")))
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.ended.wait(0.1):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit() or entry.name in self.known:
                    continue
                if (words := _command(entry)) and self._is_stranger(entry):
                    self.found.append(words)

    def _is_stranger(self, entry: Path) -> bool:
        process = int(entry.name)
        while process > 1 and process not in (self.supervisor, os.getpid()):
            process = _parent(process)
        return process == os.getpid()


def _command(entry: Path) -> str:
    """Returns the command of a process of Rewindow; empty for other processes, or after its end."""
    try:
        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    names = ("rewindow.cli", "bin/rewindow ", "SparkSubmit", "/jobs/")
    return words if any(name in words for name in names) else ""


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The small project: its code fails in the last evening, and its source falls silent."""
    folder = tmp_path_factory.mktemp("incident")
    config = Config.load(make_project(folder, ROOT))
    assert config.file is not None
    write_code(config, broken=True)
    (folder / "dags").unlink()
    (folder / "dags").mkdir()
    names = "act_on_replay act_on_stream emit_publications fill_heartbeat_gaps record_streams"
    for name in [*names.split(), "replay_daily", "replay_windows"]:
        (folder / "dags" / f"{name}.py").symlink_to(ROOT / "dags" / f"{name}.py")
    (folder / "dags" / "follow_totals.py").write_text(FOLLOWER)
    lines = (folder / "clicks.csv").read_text().splitlines()
    late = [line for line in lines[1:] if line.split(",")[1] >= f"{SILENT_FROM:%Y-%m-%dT%H:%M:%SZ}"]
    (folder / "late.csv").write_text("\n".join(late) + "\n")
    (folder / "clicks.csv").write_text("\n".join(line for line in lines if line not in late) + "\n")
    return Config.load(config.file)


def write_code(config: Config, *, broken: bool) -> None:
    window = int(LAST_DAY.timestamp()) // 3600 + 12
    begin = "\n    def transform(self, inputs, state, windows):\n"
    code = APPLICATION.replace(begin, BUG.format(window=window)) if broken else APPLICATION
    (config.applications[0] / "clicks_by_page.py").write_text(code)


@pytest.fixture(scope="module")
def user(project: Config) -> Iterator[User]:
    with live_airflow(project) as airflow, camera(airflow.address, airflow.token) as take:
        yield User(airflow.address, airflow.token, take)


@contextmanager
def camera(address: str, cookie: str) -> Iterator[Callable[[str, str], None]]:
    """Yields a function that takes a picture of an address; it does nothing without a folder."""
    folder = os.environ.get("REWINDOW_PICTURES")
    if not folder:
        yield lambda name, path: None
        return
    # Not among the locked packages: only the pictures need it.
    from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"]
        )
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_cookies([{"name": "_token", "value": cookie, "url": address}])
        page = context.new_page()

        def take(name: str, path: str) -> None:
            page.goto(f"{address}{path}", wait_until="networkidle")
            page.wait_for_timeout(1500)
            page.screenshot(path=f"{folder}/{name}.jpg", type="jpeg", quality=70)

        yield take
        browser.close()


def test_incident_is_handled_with_the_api_of_airflow_only(user: User, project: Config) -> None:
    status = read_status(airflow_home(project))
    assert status is not None
    strangers = Strangers(status.pid)
    watcher = threading.Thread(target=strangers.watch)
    watcher.start()
    try:
        approve_first_days(user)
        fix_failed_night(user, project)
        find_late_tuples(user, project)
        repair_and_undo(user, project)
    finally:
        strangers.ended.set()
        watcher.join()
    assert strangers.found == []


EVENING = LAST_DAY + DAY


def approve_first_days(user: User) -> None:
    """Replays the first days with a form, and approves the publication after reading the facts."""
    record = user.start("record_streams", at=EVENING)
    user.ask("dags/record_streams", body={"is_paused": False}, method="PATCH")
    user.until("record_streams", record, "success")
    run = user.start(
        "replay_windows",
        application="clicks_by_page",
        reason="the first days of the stream",
        range_as="times",
        from_time=f"{FIRST_DAY:%Y-%m-%dT%H:%M:%SZ}",
        to_time=f"{LAST_DAY:%Y-%m-%dT%H:%M:%SZ}",
    )
    asked = user.question("replay_windows", run, "approve_publication")
    assert asked["body"].startswith("**48 windows: none is lost, partial or affected.")
    page = f"/dags/replay_windows/runs/{quote(run)}/tasks/approve_publication/required_actions"
    user.pictures("question", page)
    fields = {"accept": None, "comment": None, "when_rejected": "leave_staged"}
    user.answer("replay_windows", run, "approve_publication", "Approve", **fields)
    user.until("replay_windows", run, "success")


def fix_failed_night(user: User, project: Config) -> None:
    """A night fails: the page of its replay starts with the cause. A fix is deployed, and the run
    is cleared from its plan.
    """
    user.ask("dags/replay_daily", body={"is_paused": False}, method="PATCH")
    run = user.start("replay_daily", at=EVENING)
    user.until("replay_daily", run, "failed")
    replay = user.xcom("replay_daily", run, "plan_replay", "replay_id")
    assert "amount is missing" in user.page(f"files/pages/{replay}.html")
    user.pictures("failed", f"/plugin/rewindow/rewindow/replays/{replay}/page")
    write_code(project, broken=False)
    clear = {"dry_run": False, "dag_run_id": run, "only_failed": False}
    tasks = {"task_ids": ["plan_replay"], "include_downstream": True}
    user.ask("dags/replay_daily/clearTaskInstances", body=clear | tasks)
    user.wait(lambda: user.state("replay_daily", run) != "failed", "the run starts again")
    user.until("replay_daily", run, "success")
    again = user.xcom("replay_daily", run, "plan_replay", "replay_id")
    assert again == f"{replay}-2"
    ledger = Ledger.open(project.ledger_url)
    states = [ledger.replays.get(name).state.value for name in (replay, again)]
    assert states == ["abandoned", "published"]


def find_late_tuples(user: User, project: Config) -> None:
    """The silence is reported. Then its tuples arrive late."""
    run = user.start("fill_heartbeat_gaps", at=EVENING)
    user.ask("dags/fill_heartbeat_gaps", body={"is_paused": False}, method="PATCH")
    user.until("fill_heartbeat_gaps", run, "success")
    gaps = user.xcom("fill_heartbeat_gaps", run, "clicks.report_gaps")
    assert gaps["windows_empty"] == SILENT_HOURS
    late = (project.root / "late.csv").read_text()
    with (project.root / "clicks.csv").open("a") as source:
        source.write(late)
    run = user.start("record_streams", at=EVENING + timedelta(hours=1))
    user.until("record_streams", run, "success")
    recorded = user.xcom("record_streams", run, "record_clicks")
    assert recorded["late"] == len(late.splitlines())


def repair_and_undo(user: User, project: Config) -> None:
    """Outputs of the silent evening are repaired, the repair is undone after an approval, and a DAG
    downstream has seen every publication.
    """
    ledger = Ledger.open(project.ledger_url)
    run = user.start("act_on_stream", act="repair", reason="late tuples of the last evening")
    user.until("act_on_stream", run, "success")
    assert "late tuples" in user.xcom("act_on_stream", run, "preview_act")
    assert ledger.stale.ranges("clicks_by_page") == []
    repaired = ledger.publications.newest(application="clicks_by_page", limit=1)[0].replay_id
    user.pictures("overview", "/plugin/rewindow")
    run = user.start(
        "act_on_replay", act="undo", replay=repaired, reason="the late tuples were wrong"
    )
    asked = user.question("act_on_replay", run, "approve_act")
    assert f"{repaired} would be undone" in asked["body"]
    page = f"/dags/act_on_replay/runs/{quote(run)}/tasks/approve_act/required_actions"
    user.pictures("undo", page)
    user.answer("act_on_replay", run, "approve_act", "Approve")
    user.until("act_on_replay", run, "success")
    assert ledger.replays.get(repaired).state == "undone"
    acts = ledger.publications.newest(application="clicks_by_page", limit=100)
    made = {f"{act.kind} {act.number}" for act in acts}
    followed = project.root / "followed"
    user.wait(
        lambda: followed.exists() and made <= set(followed.read_text().splitlines()),
        f"the publications {made} were followed",
    )


def test_process_that_airflow_did_not_start_is_found() -> None:
    strangers = Strangers(supervisor=1)
    watcher = threading.Thread(target=strangers.watch)
    watcher.start()
    command = [sys.executable, "-c", "input()", "-m rewindow.cli"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert wait_until(lambda: bool(strangers.found), 20)
        process.terminate()
    strangers.ended.set()
    watcher.join()
    assert all("rewindow.cli" in words for words in strangers.found)
