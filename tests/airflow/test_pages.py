"""The plugin's pages: nobody sees them without a login, and no path leads out of the results."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rewindow.certificate import certify
from rewindow.inspection.gaps import gaps
from rewindow.ledger import Ledger
from rewindow.ledger.models import replays as replays_table
from rewindow.pages import replay_page
from rewindow.pages.certificate_page import write_certificate
from rewindow.pages.drawing import SCRIPTS
from rewindow.pages.gate_pages import write_gate_pages
from rewindow.pages.page import render_page
from rewindow.pages.time_page import write_time_page
from rewindow.publication.publish import publish
from rewindow.quality import judge
from rewindow.recording.inventory import StreamEntry
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange
from rewindow_airflow import pages
from rewindow_airflow.factories import act_dag
from rewindow_airflow.identity import run_name
from rewindow_airflow.links import REPLAY_LINKS
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.page_actions import actions_on_replay, actions_on_stream
from rewindow_airflow.pages import inside
from tests.inspection.test_event_gaps import STEADY, recorded
from tests.pages import replay_reports as stories
from tests.pages import replays
from tests.publication.staging import StagedReplay, simple
from tests.quality import staging as gate_staging

PAGES = ("page", "report", "docs", "certificate")
NAMED_R9 = replays_table.c.replay_id == "r-9"
KEY: Any = None
"""No link looks at the task instance: the operator knows its replay."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one replay's report, and a secret beside it."""
    folder = tmp_path_factory.mktemp("state") / "results"
    checked = folder / "quality" / "replays" / "r-1"
    certificates = folder / "certificates"
    checked.mkdir(parents=True)
    certificates.mkdir()
    rows = "".join(f"{window},{window * 2},<b>&\n" for window in range(450))
    for output in ("delays", "ranks"):
        (checked / f"{output}.html").write_text(f"<h1>checks of {output}</h1>")
        (checked / f"{output}.windows.csv").write_text("window_id,tuples_in,note\n" + rows)
    for name, page in (("r-1", "<h1>equal</h1>"), ("r-12", "<h1>of another replay</h1>")):
        (certificates / f"r-0--{name}-0123abcd.html").write_text(page)
        content = {"a": {"name": "r-0"}, "b": {"name": name}}
        (certificates / f"r-0--{name}-0123abcd.json").write_text(json.dumps(content))
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "leak").symlink_to(folder.parent / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def client(airflow_database: None, results: Path) -> Iterator[Any]:
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWINDOW_STATE", str(results.parent))
        with TestClient(create_app(apps="core")) as client:
            yield client


def test_api_server_creates_the_pool_of_spark_tasks_and_keeps_an_existing_one(
    client: Any,
) -> None:
    from airflow.models.pool import Pool

    from rewindow_airflow.plugin import RewindowPlugin

    def slots() -> float | None:
        pool = Pool.get_pool("spark")
        return pool and pool.slots

    assert slots() == 1
    Pool.create_or_update_pool("spark", slots=3, description="mine", include_deferred=False)
    assert RewindowPlugin().fastapi_apps
    assert slots() == 3
    Pool.delete_pool("spark")
    assert RewindowPlugin().fastapi_apps
    assert slots() == 1


def token(role: str) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username=role.lower(), role=role)
    return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}


ROUTES = [
    *(f"/rewindow/replays/r-1/{page}" for page in PAGES),
    "/rewindow/files/quality/replays/r-1/delays.html",
    "/rewindow/files/x",
    "/rewindow/streams/clicks/time",
    "/rewindow/replays/r-1/progress",
    "/rewindow/overview",
    "/rewindow/runs?dag=replay_windows&run=manual",
]


@pytest.mark.parametrize("route", ROUTES)
def test_every_page_route_rejects_anonymous_requests(client: Any, route: str) -> None:
    assert client.get(route, follow_redirects=False).status_code == 401


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("report", "Window report of delays"),
        ("docs", "ranks.html"),
        ("certificate", "<h1>equal</h1>"),
    ],
)
def test_viewer_can_open_the_pages_of_a_replay(client: Any, page: str, words: str) -> None:
    answer = client.get(f"/rewindow/replays/r-1/{page}", headers=token("VIEWER"))
    assert answer.status_code == 200
    assert words in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "connect-src 'self'" in answer.headers["content-security-policy"]


def test_viewer_can_open_the_time_page_of_a_recorded_stream(client: Any, results: Path) -> None:
    recorded(results.parent, STEADY)
    answer = client.get("/rewindow/streams/s/time", headers=token("VIEWER"))
    assert (answer.status_code, "Time of s" in answer.text) == (200, True)
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    for name in ("unknown", "a..b", "%2e%2e"):
        assert (
            client.get(f"/rewindow/streams/{name}/time", headers=token("VIEWER")).status_code == 404
        )


def test_page_of_a_stream_requires_read_access_to_fill_heartbeat_gaps(
    client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    asked: list[str] = []

    def refuse(*, details: Any, **_: Any) -> bool:
        asked.append(details.id)
        return False

    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", refuse)
    assert client.get("/rewindow/streams/clicks/time", headers=token("VIEWER")).status_code == 403
    assert asked == ["fill_heartbeat_gaps"]


def test_page_content_security_policy_allows_only_its_own_script(
    client: Any, results: Path
) -> None:
    path = results / "quality" / "replays" / "r-1" / "drawn.html"
    path.write_text(render_page(stories.page(stories.killed())))
    answer = client.get("/rewindow/files/quality/replays/r-1/drawn.html", headers=token("VIEWER"))
    path.unlink()
    scripts = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    digests = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert len(digests) == 2
    allowed = policy["script-src"].split()
    assert {f"'sha256-{digest}'" for digest in digests} < set(allowed)
    assert len(allowed) == len(SCRIPTS)
    assert policy["connect-src"] == "'self'"
    assert policy["form-action"] == "'none'"


def test_links_stay_under_the_path_of_the_base_url(client: Any) -> None:
    program = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient
from rewindow_airflow.links import REPLAY_LINKS, ReportsLink
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.page_actions import actions_on_replay, actions_on_stream
from tests.airflow.test_pages import token
operator = RewindowSubmitOperator(task_id="replay_windows", job="replay", replay="r-1")
addresses = [link.get_link(operator, ti_key=None) for link in (*REPLAY_LINKS[1:], ReportsLink())]
with TestClient(create_app(apps="core")) as client:
    for address in addresses:
        answer = client.get(address, headers=token("VIEWER"))
        print("answered", answer.status_code, answer.url.path)
"""
    environment = os.environ | {"AIRFLOW__API__BASE_URL": "https://host.example.org/airflow"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
    )
    # Warnings are printed as well, and a clone may lie in any folder.
    assert [
        line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("answered ")
    ] == [
        ["200", "/airflow/rewindow/replays/r-1/report"],
        ["200", "/airflow/rewindow/replays/r-1/docs"],
        ["200", "/airflow/rewindow/files/certificates/r-0--r-1-0123abcd.html"],
        ["404", "/airflow/rewindow/files/quality/index.html"],
    ], ended.stderr


def test_window_report_lists_every_window_across_pages(client: Any) -> None:
    seen = []
    for page in (1, 2, 3):
        text = client.get(
            f"/rewindow/replays/r-1/report?output=ranks&page={page}",
            headers=token("VIEWER"),
        ).text
        seen += re.findall(r'<tr><td><a href="windows/(\d+)">', text)
        assert "<b>&" not in text
        assert ("later windows" in text) == (page < 3)
    assert seen == [str(window) for window in range(450)]


def test_page_of_an_unknown_replay_returns_not_found_and_creates_no_ledger(
    client: Any,
    results: Path,
) -> None:
    answer = client.get("/rewindow/replays/r-2/page", headers=token("VIEWER"))
    assert answer.status_code == 404
    assert "does not exist" in answer.text
    assert not list(results.parent.glob("ledger*"))


def test_page_after_the_last_one_of_a_window_report_shows_the_number_of_pages(client: Any) -> None:
    for page in (4, 10**20):
        answer = client.get(
            f"/rewindow/replays/r-1/report?output=ranks&page={page}",
            headers=token("VIEWER"),
        )
        assert answer.status_code == 404
        assert "this report has 3 pages" in answer.text
        assert "page=3" in answer.text
    page_of(client, "replays/r-1/report?output=unknown", 404)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "leak",
        "r-1/../../secret.txt",
        "%2fetc%2fpasswd",
        "a%00b",
    ],
)
def test_path_cannot_leave_the_results_folder(client: Any, path: str) -> None:
    answer = client.get(f"/rewindow/files/{path}", headers=token("ADMIN"))
    assert answer.status_code in (400, 404)
    assert "secret" not in answer.text.replace("secret.txt", "")


@pytest.mark.parametrize("replay", ["%3Cscript%3E", "a%2fb", "a b"])
def test_replay_id_with_invalid_characters_is_rejected(client: Any, replay: str) -> None:
    assert (
        client.get(f"/rewindow/replays/{replay}/report", headers=token("VIEWER")).status_code == 404
    )


def test_plugin_has_no_schema_page(client: Any) -> None:
    assert client.get("/rewindow/openapi.json").status_code in (401, 404)


def test_path_lookup_in_the_results_folder_returns_only_files(results: Path) -> None:
    assert inside(results.resolve(), "quality") is None
    assert inside(results.resolve(), "quality/replays/r-1/delays.html") is not None


def test_task_links_contain_the_replay_id() -> None:
    operator = RewindowSubmitOperator(task_id="replay_windows", job="replay", replay="r-2")
    found = [link.get_link(operator, ti_key=KEY) for link in REPLAY_LINKS]
    assert found == [f"/rewindow/replays/r-2/{page}" for page in PAGES]
    operator = RewindowSubmitOperator(
        task_id="record_clicks",
        job="record",
        arguments={"stream": "clicks"},
    )
    assert {link.get_link(operator, ti_key=KEY) for link in REPLAY_LINKS} == {""}


@pytest.fixture
def of_a_team(results: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A replay that the DAG of one team made, with its page of results; viewers may read every DAG
    but that one.
    """
    from airflow.api_fastapi.app import get_auth_manager

    manager = type(get_auth_manager())
    allowed = manager.is_authorized_dag

    def is_authorized_dag(self: Any, *, details: Any = None, user: Any, **question: Any) -> bool:
        if user.role == "VIEWER" and details is not None and details.id == "replay_of_a_team":
            return False
        return bool(allowed(self, details=details, user=user, **question))

    monkeypatch.setattr(manager, "is_authorized_dag", is_authorized_dag)
    config = Config(state=results.parent)
    ledger = Ledger.open(config.ledger_url)
    for replay_id, dag in (("r-5", "replay_of_a_team"), ("r-6", "replay_windows"), ("r-7", "")):
        plan = {**PLAN, "replay_id": replay_id, "dag": dag}
        ledger.replays.create(replay_id, "app", 0, 9, "exactly_once", plan, "1")
        folder = results / "quality" / "replays" / replay_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "delays.html").write_text("<h1>checks</h1>")
        (folder / "delays.windows.csv").write_text("window_id\n1\n")
    page = results / "certificates" / "r-5--r-6-0123abcd"
    page.with_suffix(".html").write_text("<h1>equal</h1>")
    page.with_suffix(".json").write_text(json.dumps({"a": {"name": "r-5"}, "b": {"name": "r-6"}}))
    ledger.close()
    yield config
    for path in results.parent.glob("ledger*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


PLAN = {
    "application": "app",
    "code_version": "1",
    "configuration_digest": "1",
    "first": 0,
    "last": 9,
    "width_ms": 1000,
    "origin_ms": 0,
    "mode": "exactly_once",
    "checkpoint_windows": 1,
    "inputs": [],
    "outputs": [],
    "start": {"source": "none"},
}
TOLD = (
    "replays/{}/page",
    "replays/{}/report",
    "replays/{}/docs",
    "replays/{}/certificate",
    "replays/{}/windows/100",
    "files/pages/{}.html",
    "files/quality/replays/{}/delays.html",
    "files/quality/replays/{}/delays.windows.csv",
    "replays/{}/progress",
)


@pytest.mark.parametrize("route", [*TOLD, "files/certificates/r-5--r-6-0123abcd.html"])
def test_replay_pages_require_read_access_to_the_dag_of_the_replay(
    client: Any,
    of_a_team: Config,
    route: str,
) -> None:
    path = f"/rewindow/{route.format('r-5')}"
    assert client.get(path, headers=token("VIEWER"), follow_redirects=False).status_code == 403
    assert client.get(path, headers=token("ADMIN"), follow_redirects=False).status_code != 403
    for replay in ("r-6", "r-7"):
        if "{}" in route:
            answer = client.get(
                f"/rewindow/{route.format(replay)}",
                headers=token("VIEWER"),
                follow_redirects=False,
            )
            assert answer.status_code != 403


@pytest.mark.parametrize(
    "path",
    ["quality/findings/_delta_log/0.json", "certificates/x.html", "pages/../a", "x.html"],
)
def test_plugin_serves_only_files_that_are_pages(client: Any, results: Path, path: str) -> None:
    (results / "x.html").write_text("x")
    (results / "certificates" / "x.html").write_text("x")
    assert client.get(f"/rewindow/files/{path}", headers=token("ADMIN")).status_code == 404


def test_pages_leave_state_folder_and_ledger_unchanged(
    client: Any,
    of_a_team: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_page, "read_layers", lambda config, plan: ())
    replays.undisturbed(of_a_team)
    before = content_of(of_a_team.state)
    for replay in ("calm", "r-5", "r-9"):
        for route in TOLD:
            client.get(f"/rewindow/{route.format(replay)}", headers=token("ADMIN"))
    page = client.get("/rewindow/replays/calm/page", headers=token("VIEWER"))
    assert page.status_code == 200
    assert "calm" in page.text
    assert content_of(of_a_team.state) == before


def content_of(folder: Path) -> dict[str, bytes]:
    """Returns the files below a folder; those that SQLite makes to read a database are none of
    ours.
    """
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    ]
    return {str(path): path.read_bytes() for path in files}


HTML = {"Accept": "text/html,application/xhtml+xml"}


def test_browser_without_a_login_is_sent_to_the_login_and_back(client: Any) -> None:
    answer = client.get("/rewindow/overview?skip=3", headers=HTML, follow_redirects=False)
    assert answer.status_code == 303
    login = answer.headers["location"]
    assert login == "/api/v2/auth/login?next=%2Frewindow%2Foverview%3Fskip%3D3"
    answer = client.get(login, follow_redirects=False)
    assert "next=%2Frewindow%2Foverview%3Fskip%3D3" in answer.headers["location"]
    assert client.get("/rewindow/overview").json() == {"detail": "Not authenticated"}


def test_browser_gets_a_page_for_a_rejected_request(client: Any, of_a_team: Config) -> None:
    headers = token("VIEWER") | HTML
    for path, status, words in (
        ("replays/r-5/report", 403, "You need the right to read the DAG"),
        ("files/unknown.html", 404, "no such file"),
    ):
        answer = client.get(f"/rewindow/{path}", headers=headers)
        assert (answer.status_code, words in answer.text) == (status, True)
        assert answer.headers["content-type"].startswith("text/html")
        assert "content-security-policy" in answer.headers
        plain = client.get(f"/rewindow/{path}", headers=token("VIEWER"))
        assert set(plain.json()) == {"detail"}


@pytest.fixture
def config(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """An empty state folder that the pages read."""
    monkeypatch.setenv("REWINDOW_STATE", str(tmp_path))
    monkeypatch.setattr(replay_page, "read_layers", lambda config, plan: ())
    return Config(state=tmp_path)


def page_of(client: Any, path: str, status: int = 200, role: str = "VIEWER") -> str:
    answer = client.get(f"/rewindow/{path}", headers=token(role))
    assert answer.status_code == status, answer.text
    return str(answer.text)


def running(config: Config, replay_id: str, marks: tuple[int, ...] = (5,)) -> Ledger:
    """Creates a running replay whose attempt has committed groups up to the given marks."""
    staged = StagedReplay(config, replay_id, 100, 119)
    staged.end(ledger=False)
    plan = staged.plan
    ledger = Ledger.open(config.ledger_url)
    values = plan.model_dump(mode="json")
    ledger.replays.create(replay_id, "app", plan.first, plan.last, "exactly_once", values, "1")
    attempt(ledger, replay_id)
    for mark in marks:
        ledger.attempts.report_progress(replay_id, 1, mark, timings={"compute": 60.0})
    return ledger


def attempt(ledger: Ledger, replay_id: str) -> int:
    epoch = ledger.attempts.next_epoch(replay_id)
    ledger.attempts.begin(replay_id, epoch, "other-host", 1, 1, "boot/0")
    return epoch


def test_running_replay_reports_its_progress_and_time_left(client: Any, config: Config) -> None:
    running(config, "r-1").close()
    answer = json.loads(page_of(client, "replays/r-1/progress"))
    assert (answer["state"], answer["mark"], answer["of"]) == ("running", 5, 20)
    assert 170 < answer["seconds_left"] <= 180
    page = page_of(client, "replays/r-1/page")
    assert "5 of 20 windows are committed (25 %), about " in page
    assert 'data-progress="../../replays/r-1/progress" data-state="running"' in page
    assert 'data-progress="replays/r-1/progress" data-state="running"' in page_of(
        client, "overview"
    )
    page_of(client, "replays/unknown/progress", 404)


def test_page_of_a_window_shows_its_history(client: Any, config: Config) -> None:
    simple(config, "r-1", 100, 119)
    page = page_of(client, "replays/r-1/windows/103")
    assert "<h1>Window 103</h1>" in page
    assert "1970-01-05T07:00:00Z to 1970-01-05T08:00:00Z" in page
    assert "Readers do not see this window" in page
    assert "<td>out</td><td>ranks</td>" in page, "the facts of the window"
    page_of(client, "replays/r-1/windows/120", 404)
    page_of(client, "replays/r-2/windows/103", 404)
    page_of(client, "replays/r-1/windows/last", 422)


def test_page_of_all_checks_shows_the_current_state_of_replays(
    client: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staged = gate_staging.StagedReplay(tmp_path)
    staged.rows[7]["origin"] = None
    ledger = gate_staging.ended(staged)
    monkeypatch.setenv("REWINDOW_STATE", str(staged.config.state))
    write_gate_pages(staged.config, judge(staged.config, staged.plan))
    page = page_of(client, "files/quality/index.html")
    assert "the newest data of testing.made failed" in page
    assert 'href="../../trends/testing.made"' in page
    ledger.replays.abandon(staged.replay_id)
    ledger.close()
    page = page_of(client, "files/quality/index.html")
    assert "testing.made failed" not in page and "no valid check" in page


def test_trend_of_an_output_is_shown_for_a_range_of_time(client: Any, config: Config) -> None:
    simple(config, "r-1", 100, 124, publishable=True)
    page_of(client, "trends/app.ranks", 404)
    assert "trends/" not in page_of(client, "replays/r-1/page")
    publish(config, "r-1")
    page = page_of(client, "trends/app.ranks")
    assert "publication 1 of r-1" in page
    assert 'href="../trends/app.ranks"' not in page
    assert 'href="../../trends/app.ranks"' in page_of(client, "replays/r-1/page")
    page = page_of(client, "trends/app.ranks?from=1970-01-06T00:00Z&to=1970-01-07T00:00Z")
    assert "[120, 143] (1970-01-06T00:00:00Z to 1970-01-07T00:00:00Z)" in page
    page_of(client, "trends/app.ranks?from=now&to=1970-01-05T08:00Z", 404)


def test_trend_requires_read_access_to_the_dag_of_all_checks(
    client: Any,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    monkeypatch.setattr(
        type(get_auth_manager()),
        "is_authorized_dag",
        lambda self, *, details, **_: details.id != "expectation_reports",
    )
    page_of(client, "trends/app.ranks", 403)


def test_page_of_the_gate_links_to_pages_that_exist_only_in_airflow(
    client: Any,
    results: Path,
) -> None:
    link = '<a data-live="../../../../replays/r-1/windows/7">why</a>'
    (results / "quality" / "replays" / "r-1" / "linked.html").write_text(link)
    page = page_of(client, "files/quality/replays/r-1/linked.html")
    assert page == '<a href="../../../../replays/r-1/windows/7">why</a>'


def test_failed_replay_page_starts_with_the_first_cause(client: Any, config: Config) -> None:
    ledger = running(config, "r-1", marks=())
    ledger.attempts.end("r-1", 1, "failed", "division by zero in ranks\n  Hint: Correct it.")
    ledger.attempts.end("r-1", attempt(ledger, "r-1"), "failed", "<b>the job was given up</b>")
    ledger.close()
    page = page_of(client, "replays/r-1/page")
    first = page.index("First cause of the failure: attempt 1")
    assert first < page.index("division by zero in ranks") < page.index("Why it is failed")
    attempts = page[page.index("<h2>Attempts</h2>") :]
    for words in (
        "division by zero in ranks",
        "Hint: Correct it.",
        "&lt;b&gt;the job was given up",
    ):
        assert words in attempts
    assert "<b>the job" not in page


def test_missing_report_leads_to_the_page_of_the_replay(client: Any, config: Config) -> None:
    running(config, "r-1").close()
    for page, words in (
        ("report", "has no window report"),
        ("docs", "has no Data Docs"),
        ("certificate", "has not ended, so there is no certificate yet"),
    ):
        text = page_of(client, f"replays/r-1/{page}")
        assert words in text and "5 of 20 windows" in text
        assert page_of(client, f"replays/unknown/{page}", 404)
    assert '/report">' not in text
    assert "<i>" not in page_of(client, "files/pages/r-1.html?missing=<i>")


def test_certificate_is_computed_on_request_and_not_stored(client: Any, config: Config) -> None:
    simple(config, "before", 100, 104, publishable=True)
    publish(config, "before")
    simple(config, "after", 100, 104, plus=1)
    simple(config, "elsewhere", 500, 504)
    stored = write_certificate(config, certify(config, "before", "after"))
    before = content_of(config.state)
    page = page_of(client, "replays/after/certificate")
    assert "<h1>published and after</h1>" in page and "different" in page
    assert f"../../files/certificates/{Path(stored.page).name}" in page
    assert "equal" in page_of(client, "replays/before/certificate")
    assert "published" in page_of(client, "replays/elsewhere/certificate", 404)
    assert content_of(config.state) == before


def test_overview_lists_only_replays_that_the_user_may_see(client: Any, of_a_team: Config) -> None:
    seen = {}
    for role in ("VIEWER", "ADMIN"):
        # The strips above link to replays, too, if another test has recorded a stream.
        replays_below = page_of(client, "overview", role=role).partition('id="replays"')[2]
        seen[role] = re.findall(r"replays/(r-\d)/page", replays_below)
    assert seen == {"VIEWER": ["r-7", "r-6"], "ADMIN": ["r-7", "r-6", "r-5"]}


def test_overview_shows_range_gate_publication_and_streams(client: Any, config: Config) -> None:
    recorded(config.state, STEADY)
    simple(config, "r-1", 100, 104, publishable=True)
    publish(config, "r-1")
    page = page_of(client, "overview")
    for words in (
        "1970-01-05T04:00:00Z",
        "1970-01-05T09:00:00Z",
        "published",
        '<span class="tag passed">passed</span>',
        "publish 1: stands",
        'href="streams/s/time"',
        'href="streams/app.delays/time"',
        "To undo the publication: rewindow undo r-1",
    ):
        assert words in page, words
    assert "Checks over time" not in page


def test_overview_without_rights_to_streams_shows_none(
    client: Any,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    recorded(config.state, STEADY)
    monkeypatch.setattr(
        type(get_auth_manager()),
        "is_authorized_dag",
        lambda self, *, details, **_: details.id != "fill_heartbeat_gaps",
    )
    page = page_of(client, "overview")
    assert "Streams and outputs" not in page and "streams/s/time" not in page
    page_of(client, "files/time/s.csv", 403)


def test_overview_is_divided_into_pages(
    client: Any,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "REPLAYS_MAX", 2)
    ledger = Ledger.open(config.ledger_url)
    for number in range(5):
        plan = {**PLAN, "replay_id": f"r-{number}", "dag": "replay_windows"}
        ledger.replays.create(f"r-{number}", "app", 0, 9, "exactly_once", plan, "1")
    ledger.close()
    seen = []
    path = "overview"
    while path:
        text = page_of(client, path)
        seen += re.findall(r"replays/(r-\d)/page", text)
        older = re.search(r'href="(\?skip=\d+)#replays">older replays', text)
        path = f"overview{older[1]}" if older else ""
    assert sorted(seen) == [f"r-{number}" for number in range(5)]
    assert "newest replays" in text
    page_of(client, "overview?skip=900000000")
    page_of(client, f"overview?skip={10**20}", 422)


def test_overview_of_a_new_project_shows_the_next_step_and_creates_nothing(
    client: Any,
    config: Config,
) -> None:
    page = page_of(client, "overview")
    for words in ("There is no ledger", "rewindow replay APPLICATION", "rewindow record STREAM"):
        assert words in page
    assert content_of(config.state) == {}
    config.state.local().rmdir()
    assert "The state folder does not exist" in page_of(client, "overview")


def test_overview_opens_a_range_down_to_the_windows(client: Any, config: Config) -> None:
    recorded(config.state, STEADY)
    simple(config, "r-1", 100, 104, publishable=True)
    publish(config, "r-1")
    page = page_of(client, "overview")
    assert "one cell for each hour" in page
    hour = "?from=1970-01-05T05:00:00Z&to=1970-01-05T06:00:00Z"
    cells = re.findall(r'<a class="w-published" href="(.+?)" tabindex="-1"', page)
    assert html.unescape(cells[0]) == hour
    page = page_of(client, f"overview{hour}")
    assert "one cell for each window" in page
    assert 'class="w-published" href="replays/r-1/page"' in page
    assert "History: rewindow why app 101" in page
    days = page_of(client, "overview?from=1970-01-01&to=1971-06-01")
    assert "one cell for each month" in days
    opened = html.unescape(re.findall(r'href="(.+?)" tabindex="-1"', days)[0])
    assert opened == "?from=1970-01-01T00:00:00Z&to=1970-02-01T00:00:00Z"
    assert "one cell for each day" in page_of(client, f"overview{opened}")
    wrong = page_of(client, "overview?from=yesterday")
    assert "cannot be read. All windows are shown instead." in wrong and cells[0] in wrong


def test_overview_shows_other_streams_and_replays_if_a_table_is_damaged(
    client: Any, config: Config
) -> None:
    recorded(config.state, STEADY)
    simple(config, "r-1", 100, 104, publishable=True)
    publish(config, "r-1")
    for commit in (config.windows_table("app.ranks") / "_delta_log").entries("*.json"):
        commit.write("{")
    page = page_of(client, "overview")
    assert "app.ranks" in page and 'class="failure small"' in page
    assert 'class="w-sealed"' in page and 'href="replays/r-1/page"' in page


def test_overview_with_a_damaged_ledger_shows_the_reason(client: Any, config: Config) -> None:
    (config.state / "ledger.sqlite").write("no database " * 100)
    assert "ledger" in page_of(client, "overview", 409)


def test_strips_hide_the_names_of_replays_that_the_user_may_not_see(
    client: Any, of_a_team: Config
) -> None:
    config = of_a_team
    simple(config, "r-9", 100, 104, publishable=True)
    publish(config, "r-9")
    ledger = Ledger.open(config.ledger_url)
    with ledger.database.serialised() as connection:
        plan = {**ledger.replays.get("r-9").plan, "dag": "replay_of_a_team"}
        connection.execute(replays_table.update().values(plan=plan).where(NAMED_R9))
    ledger.close()
    assert "published by r-9" in page_of(client, "overview", role="ADMIN")
    page = page_of(client, "overview")
    assert "published by 1 replays" in page and "r-9" not in page


def test_replay_links_to_the_run_that_created_it(client: Any, config: Config) -> None:
    ledger = Ledger.open(config.ledger_url)
    plan = {**PLAN, "replay_id": "r-1", "dag": "replay_windows", "run": "manual__1"}
    ledger.replays.create("r-1", "app", 0, 9, "exactly_once", plan, "1")
    ledger.close()
    page = page_of(client, "overview")
    assert 'in-airflow" href="/dags/replay_windows/runs/manual__1"' in page
    assert "Next: rewindow replay --resume r-1" in page


def test_tab_of_a_run_leads_to_its_replay(client: Any, config: Config) -> None:
    ledger = Ledger.open(config.ledger_url)
    name = run_name("replay_daily", "manual__1")
    first, second = name.replay_id("2013-01-05"), name.replay_id("2013-01-06", 2)
    path = "runs?dag=replay_daily&run=manual__1"
    assert "has no replay" in page_of(client, path)
    for replay_id in (first, second, "replay_daily-2013-01-05-0123456789"):
        plan = {**PLAN, "replay_id": replay_id, "dag": "replay_daily"}
        ledger.replays.create(replay_id, "app", 0, 9, "exactly_once", plan, "1")
        if replay_id == first:
            answer = client.get(
                f"/rewindow/{path}", headers=token("VIEWER"), follow_redirects=False
            )
            assert answer.headers["location"] == f"replays/{first}/page"
    ledger.close()
    assert re.findall(r'href="replays/(.+)/page"', page_of(client, path)) == [first, second]


def test_tab_of_a_backfill_shows_the_progress_of_its_steps(client: Any, config: Config) -> None:
    ledger = Ledger.open(config.ledger_url)
    run = run_name("backfill_range", "manual__1").replay_id()
    for number, name in enumerate((f"{run}-0-9", f"{run}-10-19", f"{run}-10-19-2")):
        plan = {**PLAN, "replay_id": name}
        ledger.replays.create(name, "app", 10 * number, 10 * number + 9, "exactly_once", plan, "1")
    ledger.replays.abandon(f"{run}-10-19", "wrong code")
    ledger.close()
    page = page_of(client, "runs?dag=backfill_range&run=manual__1")
    assert "Run manual__1: 0 of 3 replays are published." in page
    assert "wrong code" in page and page.count("/page") == 3


def test_tab_of_a_run_requires_read_access_to_its_dag(client: Any, of_a_team: Config) -> None:
    page_of(client, "runs?dag=replay_of_a_team&run=manual__1", 403)
    page_of(client, "runs?dag=replay_of_a_team&run=manual__1", role="ADMIN")


def test_pages_of_report_gaps_are_served(client: Any, config: Config) -> None:
    recorded(config.state, STEADY)
    write_time_page(config, "s", gaps(config, "s"))
    assert "Time of s" in page_of(client, "files/time/s.html")
    assert page_of(client, "files/time/s.csv").startswith("kind,")


def test_buttons_offer_only_actions_that_are_possible(client: Any, config: Config) -> None:
    simple(config, "old", 100, 104, publishable=True)
    simple(config, "new", 100, 104, publishable=True)
    running(config, "runs").close()
    ledger = running(config, "failed")
    ledger.attempts.end("failed", 1, "failed", "disk full")
    offered = {name: buttons(client, name) for name in ("old", "runs", "failed")}
    publish(config, "old")
    offered["published"] = buttons(client, "old")
    publish(config, "new", accept="to cover the older one")
    offered["covered"] = buttons(client, "old")
    ledger.replays.abandon("failed", "not needed")
    offered["abandoned"] = buttons(client, "failed")
    ledger.close()
    assert offered == {
        "old": ["publish", "certify", "abandon"],
        "runs": ["abandon"],
        "failed": ["resume", "abandon"],
        "published": ["undo", "certify"],
        "covered": ["certify"],
        "abandoned": [],
    }


def buttons(client: Any, replay_id: str) -> list[str]:
    """Returns the actions of a replay's page, after a check of their parameters."""
    page = page_of(client, f"replays/{replay_id}/page")
    found = re.findall(r'<button name="act" value="(\w+)" data-values="(.+?)"', page)
    for _, values in found:
        assert json.loads(html.unescape(values)) == {"replay": replay_id}
    if found:
        assert 'data-airflow="" data-dag="act_on_replay" hidden' in page
    assert ('name="accept"' in page) == ("publish" in dict(found))
    return [act for act, _ in found]


def test_buttons_fill_in_the_form_of_their_dag(client: Any, config: Config) -> None:
    simple(config, "r-1", 100, 104, publishable=True)
    stream = next(iter(Config.load().streams))
    late = StreamEntry(stream, False, Grid(1_000), WindowRange(0, 9), 10, 0, 0, 10, 1, None, 3)
    ledger = Ledger.open(config.ledger_url)
    offered = {
        "replay": actions_on_replay(ledger, ledger.replays.get("r-1")),
        "stream": actions_on_stream(late),
    }
    ledger.close()
    acts = []
    for on, actions in offered.items():
        for action in actions:
            form = act_dag(f"act_on_{on}", on=on).params
            values = {"act": action.act, "reason": "the source was repaired", **action.values}
            assert values.keys() <= form.keys()
            form.update(values)
            form.validate()
            acts.append(action.act)
    assert acts == ["publish", "certify", "abandon", "reopen", "repair"]


def test_page_of_a_stream_offers_to_add_late_tuples(client: Any, config: Config) -> None:
    recorded(config.state, STEADY)
    page = page_of(client, "streams/s/time")
    assert re.findall(r'value="(\w+)" data-values', page) == ["repair"]
    assert 'data-dag="act_on_stream"' in page and 'name="accept"' not in page


def test_menu_and_runs_of_airflow_lead_to_the_pages(client: Any) -> None:
    plugins = client.get("/api/v2/plugins", headers=token("ADMIN")).json()["plugins"]
    (plugin,) = [plugin for plugin in plugins if plugin["name"] == "rewindow"]
    places = {view["destination"]: view["href"] for view in plugin["external_views"]}
    assert places == {
        "nav": "/rewindow/overview",
        "dag_run": "/rewindow/runs?dag={DAG_ID}&run={RUN_ID}",
    }
