"""Commands over a state folder that is read-only or damaged: answers or errors in words, never a
traceback. No JVM.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rewindow.cli import main
from rewindow.embedded.environment import airflow_environment, airflow_home
from rewindow.errors import LedgerError, RewindowError
from rewindow.launcher import read_outcome
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.planning import create_replay
from rewindow.settings.config import Config
from tests.planning.options import request
from tests.recovery.project import FIRST, make_project


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Settings of a project with a planned replay, which each test copies."""
    config = make_project(tmp_path_factory.mktemp("planned")).config
    create_replay(config, request(replay_id="one"))
    return config


@pytest.fixture
def config(planned: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of a project with a planned replay, in force for commands."""
    shutil.copytree(planned.root, tmp_path, dirs_exist_ok=True)
    config = Config.load(tmp_path / "rewindow.toml")
    monkeypatch.setenv("REWINDOW_CONFIG", str(tmp_path / "rewindow.toml"))
    return config


@pytest.fixture
def read_only(config: Config) -> Iterator[Config]:
    """The same with a state folder that is really mounted read-only."""
    with mounted_read_only(config):
        yield config


@contextmanager
def mounted_read_only(config: Config) -> Iterator[None]:
    folder = str(config.state)
    commands = [["mount", "--bind", folder, folder], ["mount", "-o", "remount,bind,ro", folder]]
    mounted = [
        subprocess.run(command, capture_output=True, check=False).returncode == 0
        for command in commands
    ]
    try:
        if os.geteuid() != 0 or not all(mounted):
            pytest.skip("this machine lets nobody mount")
        yield
    finally:
        if mounted[0]:
            subprocess.run(["umount", folder], check=True)


def run(*arguments: str) -> int:
    """Runs a command and returns its exit code; any other exception than its end is the test's
    failure.
    """
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("status", "one"),
        ("why", "one", str(FIRST + 3)),
        ("plan", "totals"),
        ("gaps", "events"),
        ("purge",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_read_commands_work_with_a_read_only_state_folder(
    config: Config,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*arguments) == 0
    answer = capsys.readouterr().out
    with mounted_read_only(config):
        with pytest.raises(OSError, match="[Rr]ead-only"):
            (config.state / "own").mkdir()
        assert run(*arguments) == 0
    assert answer.strip() and capsys.readouterr().out == answer


def test_read_only_ledger_shows_its_newest_state_from_the_write_ahead_log(
    config: Config,
    tmp_path: Path,
) -> None:
    ledger = Ledger.open(config.ledger_url)
    keeper = (
        ledger.database.engine.connect()
    )  # While it is open, nothing moves the log into the file.
    ledger.replays.abandon("one", "wrong code")
    copied = ledger.database.place.copied(tmp_path)
    keeper.close()
    assert Ledger.open(f"sqlite:///{copied.file}").replays.get("one").state == "abandoned"


@pytest.mark.parametrize(
    "arguments",
    [("abandon", "one"), ("replay", "totals"), ("status", "one", "--page")],
)
def test_write_commands_report_a_read_only_state_folder(
    read_only: Config,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*arguments) != 0
    said = capsys.readouterr().err
    assert "read-only" in said
    assert "Traceback" not in said
    assert "Hint:" in said


def test_read_only_ledger_rejects_writes(read_only: Config) -> None:
    with pytest.raises(LedgerError, match="cannot be written to: its folder is read-only"):
        Ledger.open(read_only.ledger_url).replays.abandon("one")


JSON_FILES = {
    "airflow/supervisor.json": ("down",),
    "results/quality/replays/one/result.json": ("status", "one", "--page"),
    "results/certificates/two--one-0123abcd.json": ("status", "one", "--page"),
}
DAMAGES = {
    "empty": "",
    "half-written": '{"outputs": [{"outp',
    "another list": "[]",
    "without its parts": "{}",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", JSON_FILES)
def test_damaged_json_is_reported_with_file_name_and_hint(
    config: Config,
    file: str,
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = config.results if file.startswith("results/") else config.state
    path = folder / file.removeprefix("results/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(DAMAGES[damage])
    ledger = Ledger.open(config.ledger_url)
    ledger.attempts.begin(
        "one",
        ledger.attempts.next_epoch("one"),
        host="h",
        pid=1,
        process_group=1,
        process_identity="boot/0",
    )
    ledger.attempts.end("one", 1, AttemptEnd.DONE)
    ledger.checks.record("one", "passed")
    assert run(*JSON_FILES[file]) not in (0, 1)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert f'"{path}" is damaged' in said
    assert "Hint:" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_outcome_file_of_a_job_is_retryable(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "outcome-1.json"
    path.write_text(DAMAGES[damage])
    outcome = read_outcome(path)
    assert (outcome.exit_code, outcome.retryable) == (-9, True)
    assert f'outcome file "{path}" is damaged' in outcome.message


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage != "without its parts"])
def test_damaged_airflow_secrets_are_reported_before_airflow_starts(
    config: Config,
    damage: str,
) -> None:
    path = airflow_home(config) / "secrets.json"
    path.parent.mkdir(parents=True)
    path.write_text(DAMAGES[damage])
    with pytest.raises(RewindowError, match=f'file of secrets "{path}" is damaged'):
        airflow_environment(config)


@pytest.mark.parametrize(
    ("table", "what", "arguments"),
    [
        ("streams/events.windows", "*.parquet", ("plan", "totals")),
        ("streams/events.windows", "_delta_log/*1.json", ("plan", "totals")),
        ("streams/events.windows", "*.parquet", ("gaps", "events")),
        ("replays/one/checkpoints", "_delta_log/*0.json", ("certify", "one", "one")),
        ("replays/one/facts", "_delta_log/*0.json", ("why", "one", str(FIRST + 1))),
        ("replays/one/facts", "_delta_log/*0.json", ("certify", "one", "one")),
    ],
)
def test_damaged_table_is_reported_without_a_traceback(
    config: Config,
    table: str,
    what: str,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (path,) = (config.state / table).glob(what)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run(*arguments) not in (0, 1)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert table.rpartition("/")[2] in said
    assert not any(word in said for word in ("Traceback", "<unknown>", "pthread"))
