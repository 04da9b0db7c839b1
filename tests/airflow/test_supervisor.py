"""The supervisor, started for real: one Airflow on loopback, killed at, and stopped without a
trace. `up` reports components that keep dying, or hang.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from rewindow import embedded as supervisor
from rewindow.embedded import api, control, environment, readiness
from rewindow.embedded.environment import airflow_environment, airflow_home, dags_folder
from rewindow.embedded.processes import descendants, is_alive, signal_all, started_at, wait_until
from rewindow.embedded.status import READY, STARTING, read_status
from rewindow.errors import InputError, ResourceError
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.airflow.conftest import ROOT, in_force
from tests.airflow.small_project import FIRST_DAY, make_project, record

pytestmark = pytest.mark.timeout(1500)  # Of a loaded machine; a free one needs two minutes.
SOON_SILENT = {
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
READY_SECONDS_MAX = 40.0
RUN_SECONDS_MAX = 900.0


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = Config.load(make_project(tmp_path_factory.mktemp("supervised"), ROOT))
    record(config)
    return config


@contextmanager
def clean_environment() -> Iterator[None]:
    """The environment without what the other tests of this folder set for their own Airflow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def running(config: Config, port: int) -> Iterator[tuple[supervisor.Running, float]]:
    """An Airflow that runs, and how long it took to come up; it soon notices a triggerer that
    hangs.
    """
    began = time.monotonic()
    with in_force(config), clean_environment(), pytest.MonkeyPatch.context() as patch:
        for name, value in SOON_SILENT.items():
            patch.setenv(name, value)
        try:
            yield supervisor.up(config, port=port), time.monotonic() - began
        finally:
            supervisor.down(config)


@pytest.mark.recovery_matrix
def test_supervisor_restarts_killed_airflow_components_and_stops_cleanly(
    running: tuple[supervisor.Running, float],
    config: Config,
    port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    found, seconds = running
    assert seconds < READY_SECONDS_MAX * _load_factor()
    assert set(api.health(found.address).values()) == {"healthy"}
    _check_login(found)
    _check_many_at_once(found)
    _check_files(config)
    _check_second_up(config, port, caplog)
    _check_listeners(config)
    _check_killed_replay_recovers(config, found)
    _check_component_comes_back(config, found.address)
    _check_a_component_that_keeps_dying(config)
    _check_a_component_that_hangs(config, found.address)
    _check_cleared_run_replays_anew(config, found)
    status = read_status(airflow_home(config))
    assert status is not None
    family = [status.pid, *descendants(status.pid)]
    assert supervisor.down(config)
    assert state_of_task(config, "replay_windows") == "up_for_reschedule", (
        "the next start goes on in the same try"
    )
    assert not [pid for pid in family if started_at(pid)]
    assert supervisor.running(config) is None
    assert not supervisor.down(config)


def _check_a_component_that_keeps_dying(config: Config) -> None:
    """Killed whenever it comes back, a component is named with its log by `up`; let alone, it lives
    again.
    """
    for _ in range(3):
        pid = _wait_for_triggerer(config)
        os.kill(pid, signal.SIGKILL)
        is_dead = partial(lambda gone: started_at(gone) is None and state_of(config) != READY, pid)
        assert wait_until(is_dead, 20)
    with pytest.raises(
        ResourceError,
        match=r"triggerer died \(signal SIGKILL\).*logs/triggerer\.log",
    ):
        supervisor.up(config)
    assert wait_until(lambda: state_of(config) == READY, 120)


def _check_a_component_that_hangs(config: Config, address: str) -> None:
    """A component that is there and does nothing is noticed by its heartbeat."""
    pid = _wait_for_triggerer(config)
    family = [pid, *descendants(pid)]
    signal_all(family, signal.SIGSTOP)
    try:
        assert wait_until(lambda: api.unwell(address) == ["triggerer"], 120)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "_READY_SECONDS_MAX", 1.0)
            with pytest.raises(ResourceError, match="is not ready: triggerer"):
                supervisor.up(config)
    finally:
        signal_all(family, signal.SIGCONT)
    supervisor.up(config)


def _wait_for_triggerer(config: Config) -> int:
    def pid() -> int:
        status = read_status(airflow_home(config))
        assert status is not None
        return status.components["triggerer"][0] if is_alive(*status.components["triggerer"]) else 0

    assert wait_until(lambda: pid() > 0, 60)
    return pid()


def state_of_task(config: Config, task: str) -> str:
    """Returns the state of the one instance of a task, as the next Airflow will find it."""
    with closing(sqlite3.connect(airflow_home(config) / "airflow.db")) as database:
        [(state,)] = database.execute(
            "select state from task_instance where task_id = ?",
            [task],
        ).fetchall()
    return str(state)


def _check_login(found: supervisor.Running) -> None:
    assert api.call(found.address, "/api/v2/dags")[0] == 401
    assert api.login(found.address, "admin", "admin") == ""
    token = api.login(found.address, "admin", json.loads(found.password_file.read_text())["admin"])
    known = {
        dag["dag_id"]: dag["is_paused"]
        for dag in api.call(found.address, "/api/v2/dags", token=token)[1]["dags"]
    }
    assert known["replay_windows"] is False
    assert known["replay_daily"] is True
    assert api.call(found.address, "/api/v2/pools/spark", token=token)[1]["slots"] == 1
    errors = api.call(found.address, "/api/v2/plugins/importErrors", token=token)[1]
    assert errors["total_entries"] == 0, errors
    assert api.call(found.address, "/rewindow/replays/r/report")[0] == 401


def _check_many_at_once(found: supervisor.Running) -> None:
    """Several people press buttons at one moment: each is answered, and every act is in the audit
    log.
    """
    token = api.login(found.address, "admin", json.loads(found.password_file.read_text())["admin"])

    def act(number: int) -> int:
        body = {"key": f"key_{number}", "value": "x"}
        return api.call(found.address, "/api/v2/variables", body=body, token=token, seconds_max=30)[
            0
        ]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(act, range(40))) == [201] * 40
    path = "/api/v2/eventLogs?event=post_variable"
    assert wait_until(
        lambda: api.call(found.address, path, token=token)[1]["total_entries"] == 40,
        60,
    )


def _check_killed_replay_recovers(config: Config, found: supervisor.Running) -> None:
    """A replay triggered over the API, its job killed by SIGKILL in the second group, is taken up
    and ends.
    """
    token = api.login(found.address, "admin", json.loads(found.password_file.read_text())["admin"])
    form = {
        "application": "clicks_by_page",
        "reason": "drill: killed in the middle",
        "range_as": "times",
        "from_time": f"{FIRST_DAY:%Y-%m-%dT%H:%M:%SZ}",
        "to_time": f"{FIRST_DAY + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
        "group_windows": 12,
        "publish": "staged",
        "crash": "after_outputs:2@1",
    }
    dag = f"{found.address}/api/v2/dags/replay_windows"
    refused = api.call(
        dag,
        "/dagRuns",
        body={"logical_date": None, "conf": {**form, "mode": "twice"}},
        token=token,
    )
    assert refused[0] == 400
    status, run = api.call(dag, "/dagRuns", body={"logical_date": None, "conf": form}, token=token)
    assert status == 200, run
    path = f"/dagRuns/{run['dag_run_id']}"

    def ended() -> bool:
        return api.call(dag, path, token=token)[1]["state"] in ("success", "failed")

    assert wait_until(ended, RUN_SECONDS_MAX, every_seconds=0.5)
    tasks = {
        task["task_id"]: task
        for task in api.call(dag, f"{path}/taskInstances", token=token)[1]["task_instances"]
    }
    states = {name: task["state"] for name, task in tasks.items()}
    assert states == {
        "plan_replay": "success",
        "replay_windows": "success",
        "check_windows": "success",
        "approve_publication": "skipped",
        "close_replay": "success",
        "publish_windows": "skipped",
    }
    assert tasks["replay_windows"]["try_number"] == 2
    log, resumed = (
        json.dumps(
            api.call(
                dag,
                f"{path}/taskInstances/replay_windows/logs/{number}?full_content=true&map_index=0",
                token=token,
            )[1]
        )
        for number in (1, 2)
    )
    assert "killed by signal 9" in log
    assert "resumes the same replay" in log
    # A line of the job is a message, which the task's log has once.
    assert resumed.count("resumed from the checkpoint at window") == 1
    progress = api.call(
        dag,
        f"{path}/taskInstances/replay_windows/state-store/progress?map_index=0",
        token=token,
    )
    assert progress[0] == 200, progress
    links = api.call(dag, f"{path}/taskInstances/check_windows/links", token=token)[1][
        "extra_links"
    ]
    for name in ("Replay", "Window report"):
        assert api.call(found.address, links[name], token=token)[0] == 200, name
    ledger = Ledger.open(config.ledger_url)
    replay_id = ledger.replays.newest()[0].replay_id
    assert [attempt.outcome for attempt in ledger.attempts.of(replay_id)] == ["killed", "done"]
    _clear(dag, path, token)  # While the replay is open: nothing is computed again.
    assert wait_until(ended, RUN_SECONDS_MAX, every_seconds=0.5)
    assert api.call(dag, path, token=token)[1]["state"] == "success"
    assert [replay.replay_id for replay in ledger.replays.newest()] == [replay_id]
    assert [attempt.outcome for attempt in ledger.attempts.of(replay_id)] == ["killed", "done"]


def _check_cleared_run_replays_anew(config: Config, found: supervisor.Running) -> None:
    """A clear after the replay was abandoned starts another one, which the links lead to, and which
    is left running.
    """
    token = api.login(found.address, "admin", json.loads(found.password_file.read_text())["admin"])
    dag = f"{found.address}/api/v2/dags/replay_windows"
    [run] = api.call(dag, "/dagRuns", token=token)[1]["dag_runs"]
    path = f"/dagRuns/{run['dag_run_id']}"
    ledger = Ledger.open(config.ledger_url)
    [given_up] = ledger.replays.newest()
    ledger.replays.abandon(given_up.replay_id)
    _clear(dag, path, token)
    newest = f"{given_up.replay_id}-2"
    assert wait_until(
        lambda: ledger.replays.find(newest) is not None and bool(ledger.attempts.of(newest)),
        RUN_SECONDS_MAX,
    )
    links = api.call(dag, f"{path}/taskInstances/plan_replay/links", token=token)[1]["extra_links"]
    assert links["Replay"].split("/")[-2] == newest
    task = f"{path}/taskInstances/replay_windows/links?map_index=0"
    # The task is still running: its links do not wait for its end.
    assert api.call(dag, task, token=token)[1]["extra_links"] == links


def _clear(dag: str, path: str, token: str) -> None:
    status, answer = api.call(dag, f"{path}/clear", body={"dry_run": False}, token=token)
    assert status == 200, answer


def _check_files(config: Config) -> None:
    home = airflow_home(config)
    for name in ("passwords.json", "secrets.json", "airflow.db"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600, name
    values = json.loads((home / "secrets.json").read_text()) | json.loads(
        (home / "passwords.json").read_text()
    )
    logs = "".join(
        path.read_text(errors="replace")
        for path in [home / "supervisor.log", *(home / "logs").glob("*.log")]
    )
    assert not [name for name, value in values.items() if value in logs]


def _check_second_up(config: Config, port: int, caplog: pytest.LogCaptureFixture) -> None:
    before = read_status(airflow_home(config))
    supervisor.up(config, port=port)
    assert any("already running" in line for line in caplog.messages)
    after = read_status(airflow_home(config))
    assert before
    assert after
    assert before.pid == after.pid


def _check_listeners(config: Config) -> None:
    """Nothing that the supervisor started listens on another address than loopback."""
    status = read_status(airflow_home(config))
    assert status is not None
    inodes = {link for pid in descendants(status.pid) for link in _sockets(pid)}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                assert fields[1].partition(":")[0] in (
                    "0100007F",
                    "0000000000000000FFFF00000100007F",
                ), line


def _check_component_comes_back(config: Config, address: str) -> None:
    before = read_status(airflow_home(config))
    assert before is not None
    pid, _started = before.components["scheduler"]
    workers = list(descendants(pid))
    killed_at = time.time()
    os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        status = read_status(airflow_home(config))
        return (
            status is not None
            and is_alive(*status.components["scheduler"])
            and status.components["scheduler"][0] != pid
        )

    assert wait_until(back, 20)
    assert wait_until(lambda: not [worker for worker in workers if started_at(worker)], 20)
    assert state_of(config) == STARTING, "a component that has just begun gave no sign of life yet"
    supervisor.up(config)
    assert state_of(config) == READY
    assert not api.unwell(address, since=killed_at)


def state_of(config: Config) -> str:
    status = read_status(airflow_home(config))
    assert status is not None
    return status.state


def _sockets(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.append(target[8:-1])
    return found


def _load_factor() -> float:
    """The limit is meant for a machine that does nothing else; a loaded one gets more time."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_port_in_use_is_rejected_before_anything_is_started(tmp_path: Path) -> None:
    config = Config.load(state=tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with (
            clean_environment(),
            pytest.raises(
                ResourceError,
                match=f"port {port} of 127.0.0.1 cannot be opened",
            ) as caught,
        ):
            supervisor.up(config, port=port)
    assert f"rewindow up --port {port + 1}" in str(caught.value)
    assert supervisor.running(config) is None
    assert not supervisor.down(config)


def test_port_out_of_range_is_reported_as_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="port must be from 1 to 65535"):
        supervisor.up(Config.load(state=tmp_path), port=70000)


def test_secrets_survive_a_restart(tmp_path: Path) -> None:
    # With new keys, sessions and stored connections would be lost.
    config = Config.load(state=tmp_path)
    with clean_environment():
        first = airflow_environment(config)
        second = airflow_environment(config)
    keys = [name for name in first if "SECRET" in name or "FERNET" in name]
    assert len(keys) == 3
    assert all(first[name] == second[name] for name in keys)


def test_dags_of_the_checkout_are_used_if_the_folder_contains_none(tmp_path: Path) -> None:
    (tmp_path / "rewindow.toml").touch()
    config = Config.load(tmp_path / "rewindow.toml")
    assert dags_folder(config) == ROOT / "dags"
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "mine.py").touch()
    with clean_environment():
        variables = airflow_environment(config)
    assert variables["AIRFLOW__CORE__DAGS_FOLDER"] == str(tmp_path / "dags")
    assert variables["AIRFLOW__CORE__PLUGINS_FOLDER"] == str(tmp_path / "plugins")
    assert str(tmp_path / "dags") in variables["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"]


def test_airflow_in_an_installed_checkout_finds_the_plugin_once(tmp_path: Path) -> None:
    # A checkout has the metadata of the package, and so does the environment.
    assert (ROOT / "rewindow.egg-info").exists()
    program = (
        "from airflow import plugins_manager as manager; "
        "print('found', *manager._get_plugins()[1].values())"
    )
    with clean_environment():
        answer = subprocess.run(
            [sys.executable, "-P", "-c", program],
            env=airflow_environment(Config.load(state=tmp_path)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert answer.stdout.splitlines()[-1] == "found"


@pytest.mark.parametrize(
    ("dags", "ready"),
    [
        ({}, False),
        ({"b.py": 0}, False),
        ({"b.py": 30}, True),  # The other file contains no DAG.
        ({"a.py": 0, "b.py": 0, "c.py": 0}, True),
    ],
    ids=str,
)
def test_airflow_is_ready_once_every_file_is_parsed_whatever_its_dags_are_called(
    dags: dict[str, int],
    ready: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"dags": [{"dag_id": "mine", "relative_fileloc": name} for name in dags]}
    monkeypatch.setattr(readiness.api, "call", lambda *_, **__: (200, answers))
    seen = {name: time.monotonic() - seconds for name, seconds in dags.items()}
    assert readiness._is_parsed({"a.py", "b.py"}, seen, "", "") == ready


def test_installed_package_includes_its_dags(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "site-packages" / "rewindow"
    monkeypatch.setattr(environment, "PACKAGE", package)
    (tmp_path / "rewindow.toml").touch()
    config = Config.load(tmp_path / "rewindow.toml")
    with pytest.raises(InputError, match=f'folder "{tmp_path}/dags" contains no DAG'):
        supervisor.up(config)
    assert not config.state.exists()
    (package / "example_dags").mkdir(parents=True)
    (package / "example_dags" / "replay_daily.py").touch()
    assert dags_folder(config) == package / "example_dags"


def test_supervisor_does_not_import_airflow() -> None:
    # The import would add seconds to every command.
    program = "import sys, rewindow.embedded; sys.exit('airflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
