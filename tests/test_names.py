"""Names at every door: one that could lead out of its folder gets no further than the message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rewindow.application import Application, FrameOperator, InputPort, Mode, OutputPort, validate
from rewindow.certificate import certify
from rewindow.cli import app as command_line
from rewindow.errors import InputError, ValidationFailed
from rewindow.launcher import plain_submission
from rewindow.loading.catalog import load_application
from rewindow.loading.suites import read_suite
from rewindow.names import REPLAY_ID_LENGTH_MAX, check_replay_id, check_stream
from rewindow.planning import ReplayRequest, create_replay
from rewindow.settings.config import Config
from rewindow.storage.results import replay_folder

ELSEWHERE = [
    "../elsewhere",
    "/tmp/elsewhere",
    "a/b",
    "..",
    "",
    "a\nb",
    "a\0b",
    "a b",
    "-a",
    "x" * 300,
]
SETTINGS = 'state = "state"\napplications = ["applications"]\n'


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A project with a folder of applications, and beside it a file that leaves a trace when it is
    run.
    """
    (tmp_path / "project" / "applications").mkdir(parents=True)
    (tmp_path / "project" / "rewindow.toml").write_text(SETTINGS)
    for folder in (tmp_path, tmp_path / "project"):
        (folder / "elsewhere.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.setenv("REWINDOW_CONFIG", str(tmp_path / "project" / "rewindow.toml"))
    return Config.load()


DOORS: dict[str, Callable[[Config, str], object]] = {
    "application": load_application,
    "stream": Config.stream_table,
    "seals": Config.windows_table,
    "checkpoints": Config.checkpoints_table,
    "replay": Config.replay_root,
    "new replay": lambda config, name: create_replay(
        config,
        ReplayRequest("nothing", replay_id=name),
    ),
    "start state": lambda config, name: create_replay(
        config,
        ReplayRequest("nothing", replay_id="r", state_from=name),
    ),
    "suite": lambda config, name: read_suite(config.expectations, name),
    "certificate": lambda config, name: certify(config, "published", name),
    "results": replay_folder,
    "outcome of recording": lambda config, name: plain_submission(config, "record.py", [], name),
    "outcome of publishing": lambda config, name: plain_submission(config, "publish.py", [], name),
}


@pytest.mark.parametrize("name", ELSEWHERE, ids=lambda name: name[:20])
@pytest.mark.parametrize("door", DOORS)
def test_name_containing_a_path_is_rejected_without_side_effects(
    door: str,
    name: str,
    config: Config,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError) as caught:
        DOORS[door](config, name)
    assert "\n" not in caught.value.primary
    assert len(caught.value.primary) < 400
    assert "is not allowed" in caught.value.primary or "cannot be used" in caught.value.primary
    assert not (tmp_path / "ran").exists()
    assert not [path for path in config.state.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "../elsewhere"],
        ["replay", "../elsewhere"],
        ["status", "../elsewhere"],
        ["status", "../elsewhere", "--page"],
        ["check", "../elsewhere"],
        ["why", "../elsewhere", "5"],
        ["undo", "../elsewhere"],
        ["publish", "../elsewhere"],
        ["abandon", "../elsewhere"],
        ["certify", "../elsewhere", "published"],
        ["gaps", "../elsewhere"],
        ["record", "../elsewhere"],
    ],
    ids=" ".join,
)
def test_every_command_rejects_a_name_containing_a_path_as_bad_input(
    arguments: list[str],
    config: Config,
    tmp_path: Path,
) -> None:
    result = CliRunner().invoke(command_line, arguments)
    assert isinstance(result.exception, InputError), result.exception
    assert result.exception.exit_code == InputError.exit_code
    assert not (tmp_path / "ran").exists()


def test_helper_module_is_not_an_application(config: Config) -> None:
    (config.applications[0] / "_helper.py").write_text("raise SystemExit('was run')\n")
    with pytest.raises(InputError, match='application "_helper" is unknown'):
        load_application(config, "_helper")


class Nothing(FrameOperator):
    inputs = {"in": InputPort(pa.schema([("a", pa.int64())]))}
    outputs = {"out": OutputPort(pa.schema([("a", pa.int64())]))}


@pytest.mark.parametrize(
    ("output", "suite"),
    [("../o", None), ("o", "../../secret"), ("o", ".hidden")],
)
def test_application_with_an_output_or_suite_path_outside_the_project_is_rejected(
    output: str,
    suite: str | None,
) -> None:
    app = Application("app", window="1 second")
    clicks = app.input("clicks")
    app.output(output, app.add("nothing", Nothing(), **{"in": clicks}), key=["a"], suite=suite)
    with pytest.raises(ValidationFailed) as caught:
        validate(app, Mode.EXACTLY_ONCE, {"clicks": pa.schema([("a", pa.int64())])})
    assert {row.rule for row in caught.value.violations} == {"H17"}


def test_valid_existing_names_are_accepted() -> None:
    assert check_stream("app.output.windows") == "app.output.windows"
    assert check_replay_id("replay_daily-2013-01-05-eab92e") == "replay_daily-2013-01-05-eab92e"
    assert check_replay_id("r" * REPLAY_ID_LENGTH_MAX)
    with pytest.raises(InputError, match="published"):
        check_replay_id("published")
