"""Attempts that stand still: ended and resumed once, or only reported where an end would lose
windows.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rewindow.engine import watchdog
from rewindow.engine.watchdog import Watchdog
from rewindow.errors import RewindowError
from rewindow.launcher import loop
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.planning import ReplayRequest, create_replay
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from tests.recovery.project import FIRST, WINDOWS, make_project

HANGS = """
import pathlib
import threading

import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OutputPort

ROW = pa.schema([("key", pa.string()), ("x", pa.int64())])
HUNG = pathlib.Path({hung!r})


class Call(FrameOperator):
    inputs = {{"events": InputPort(ROW)}}
    outputs = {{"out": OutputPort(ROW)}}
    stands_still_again: bool = False

    def transform(self, inputs, state, windows):
        rows = inputs["events"].select("window_id", "key", "x")
        again = self.stands_still_again

        def call(parts):
            for part in parts:
                is_here = part["window_id"].max() >= {window}
                if is_here and (again or not HUNG.exists()):
                    HUNG.touch()
                    threading.Event().wait({seconds})
                yield part

        return rows.mapInPandas(call, rows.schema)


app = Application("hangs", window="1 hour", checkpoint_windows=6)
app.output("out", app.add("call", Call(), events=app.input("events")), key=["key"])
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_watchdog_waits_for_the_longer_of_its_two_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rules: R92
    clock = Clock()
    calls: list[str] = []
    monkeypatch.setattr(watchdog, "_doing", lambda: "Spark runs no stage")
    dog = Watchdog(600, 10, 20, calls.append, clock=clock)
    dog.printed("resumed from the start state")
    for clock.now in (599.0, 600.0):
        dog.check()
    assert calls == []
    clock.now = 601.0
    dog.check()
    line = "last line: resumed from the start state"
    assert calls == [
        f"nothing was committed or printed for 10 min 1 s; Spark runs no stage; {line}"
    ]
    dog.check()
    assert len(calls) == 1, "the time is counted from the report on"
    dog.committed(70.0)
    clock.now += 700.0
    dog.check()
    assert len(calls) == 1, "ten groups take longer than ten minutes"
    clock.now += 1.0
    dog.check()
    assert len(calls) == 2


def plan_of(folder: Path, mode: str, seconds: float | None = None, **properties: str) -> Plan:
    """Plans a replay whose Python function stands still in its third commit group."""
    config = make_project(folder).config
    assert config.file is not None
    (folder / "own").mkdir()
    text = HANGS.format(hung=str(folder / "hung"), window=FIRST + 7, seconds=seconds)
    (folder / "own" / "hangs.py").write_text(text)
    settings = Path(config.file)
    lines = settings.read_text().splitlines()
    lines[1] = 'applications = ["own"]'
    lines += ["[replay]", "stuck_seconds = 15", "stuck_factor = 1", "group_seconds = 1"]
    settings.write_text("\n".join(lines))
    request = ReplayRequest(
        "hangs", mode=mode, replay_id="one", group_windows=3, properties=properties
    )
    return create_replay(Config.load(settings), request)


def ends_of(folder: Path) -> list[AttemptEnd | None]:
    ledger = Ledger.open(Config.load(folder / "rewindow.toml").ledger_url)
    return [attempt.outcome for attempt in ledger.attempts.of("one")]


@pytest.mark.recovery_matrix
def test_attempt_with_a_hung_python_function_is_ended_and_resumed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R92, X18
    plan_of(tmp_path, "exactly_once")
    outcome = loop.run_attempts(Config.load(tmp_path / "rewindow.toml"), "one")
    assert outcome is not None and outcome.exit_code == 0
    assert ends_of(tmp_path) == [AttemptEnd.STUCK, AttemptEnd.DONE]
    [stuck] = [line for line in caplog.messages if "is stuck" in line]
    assert "Spark runs stage" in stuck and "tasks done" in stuck and "resuming" in stuck


def test_watchdog_retries_its_report_after_a_ledger_failure() -> None:
    calls: list[str] = []
    heard = threading.Event()

    def on_stuck(words: str) -> None:
        calls.append(words)
        if len(calls) == 1:
            raise RewindowError("the ledger does not answer")
        heard.set()

    dog = Watchdog(0.05, 1, 0, on_stuck)
    dog.start()
    assert heard.wait(30)
    dog.stop()


@pytest.mark.recovery_matrix
def test_attempt_that_gets_stuck_again_immediately_is_not_resumed(tmp_path: Path) -> None:
    # Rules: R92
    plan_of(tmp_path, "at_least_once", **{"call.stands_still_again": "true"})
    with pytest.raises(RewindowError, match="attempt 2 of replay one is stuck") as caught:
        loop.run_attempts(Config.load(tmp_path / "rewindow.toml"), "one")
    assert "--resume one --again" in str(caught.value)
    assert ends_of(tmp_path) == [AttemptEnd.STUCK, AttemptEnd.STUCK]


@pytest.mark.recovery_matrix
def test_stuck_attempt_in_at_most_once_is_reported_but_not_killed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R92
    plan = plan_of(tmp_path, "at_most_once", seconds=30)
    loop.run_attempts(Config.load(tmp_path / "rewindow.toml"), "one")
    assert ends_of(tmp_path) == [AttemptEnd.DONE]
    assert len(plan.range) == WINDOWS
    assert any("attempt 1 of replay one is stuck" in line for line in caplog.messages)
