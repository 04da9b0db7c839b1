"""The plugin's pages: nobody sees them without a login, and no path leads out of the results."""

from __future__ import annotations

import base64
import hashlib
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

from rewindow.ledger import Ledger
from rewindow.pages import replay_page
from rewindow.pages.page import render_page
from rewindow.settings.config import Config
from rewindow_airflow.links import REPLAY_LINKS
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.pages import inside
from tests.inspection.test_event_gaps import STEADY, recorded
from tests.pages import replay_reports as stories
from tests.pages import replays

PAGES = ("page", "report", "docs", "certificate")
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
    assert "connect-src 'none'" in answer.headers["content-security-policy"]


def test_viewer_can_open_the_time_page_of_a_recorded_stream(client: Any, results: Path) -> None:
    recorded(results.parent, STEADY)
    answer = client.get("/rewindow/streams/s/time", headers=token("VIEWER"))
    assert (answer.status_code, "Time of s" in answer.text) == (200, True)
    assert "connect-src 'none'" in answer.headers["content-security-policy"]
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
    assert len(digests) == 1
    assert policy["script-src"] == f"'sha256-{digests[0]}'"


def test_links_stay_under_the_path_of_the_base_url(client: Any) -> None:
    program = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient
from rewindow_airflow.links import REPLAY_LINKS, ReportsLink
from rewindow_airflow.operators import RewindowSubmitOperator
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
        seen += re.findall(r"<tr><td>(\d+)</td>", text)
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


def test_missing_page_error_shows_the_command_that_writes_it(client: Any) -> None:
    answer = client.get("/rewindow/replays/r-2/report", headers=token("VIEWER"))
    assert answer.status_code == 404
    assert "check_windows" in answer.text


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
    "files/pages/{}.html",
    "files/quality/replays/{}/delays.html",
    "files/quality/replays/{}/delays.windows.csv",
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
