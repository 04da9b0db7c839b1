"""What a project that is not finished yet answers: each message names the next act."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Command

STREAM = (
    '[streams.clicks]\nsource = "clicks.csv"\narrived_at = "at"\nevent_at = "at"\ninterval = '
    '"1 hour"\n'
)
SPENDING = """
import pyarrow as pa
from rewindow.application import Application, FrameOperator, InputPort, OutputPort
X = pa.schema([("x", pa.int64())])

class Pass(FrameOperator):
    inputs = {"a": InputPort(X)}
    outputs = {"out": OutputPort(X)}

app = Application("spending", window="500 ms")
app.output("out", app.add("pass", Pass(), a=app.input("clicks")), key=["x"])
"""


@pytest.mark.parametrize(
    ("text", "arguments", "primary", "next_steps"),
    [
        (
            "",
            ["record", "clicks"],
            'stream "clicks" is unknown',
            "write [streams.clicks] with source and arrived_at",
        ),
        (
            "",
            ["plan", "spending"],
            'application "spending" is unknown',
            "Write spending.py there; `rewindow init",
        ),
        (
            STREAM,
            ["plan", "spendings"],
            'application "spendings" is unknown',
            "Known: heartbeat_clicks.",
        ),
        (
            STREAM,
            ["plan", "heartbeat_clicks"],
            'stream "clicks" is not recorded',
            "rewindow record clicks",
        ),
        (
            f'applications = ["apps"]\n{STREAM}',
            ["plan", "spending"],
            "is not recorded",
            "rewindow record clicks",
        ),
        (
            f'applications = ["apps"]\n{STREAM}',
            ["plan", "spendings"],
            "is unknown",
            'Did you mean "spending"?',
        ),
        (STREAM, ["plan"], "no application is given", "rewindow plan --late"),
        (
            STREAM,
            ["plan", "spendings", "--late"],
            'application "spendings" is unknown',
            "Known: heartbeat_clicks.",
        ),
        (
            'state = "state',
            ["plan", "spending"],
            "is not valid TOML: illegal character",
            "Put texts in quotes",
        ),
        (
            f'{STREAM}sealed_to = "2099-06-01"',
            ["plan", "heartbeat_clicks"],
            "is not recorded",
            "rewindow record clicks",
        ),
    ],
)
def test_unfinished_project_shows_the_next_step(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    arguments: list[str],
    primary: str,
    next_steps: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "spending.py").write_text(SPENDING)
    (tmp_path / "rewindow.toml").write_text(f"{text}\n")
    code, _, errors = run(*arguments)
    assert code == 2
    assert primary in errors
    assert next_steps in errors.partition("  Hint: ")[2]
