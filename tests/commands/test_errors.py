"""`rewindow errors`: what it lists of a replay's error tuples; from tables made by hand."""

from __future__ import annotations

import json
from shutil import rmtree

import pyarrow as pa
import pytest

from rewindow.application.error_tuples import error_columns
from rewindow.pages import replay_page
from rewindow.recovery import OutputPlan, Plan
from rewindow.settings.config import Config
from rewindow.storage.layout import create_staged, staged_schema
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, rows_of, state_of

FIRST = 100
LAST = 109
COLUMNS = error_columns(pa.schema([("origin", pa.string()), ("flights", pa.int64())]))
PORTS = ("split.odd", "split.other")


class WithErrors(StagedReplay):
    @property
    def plan(self) -> Plan:
        errors = [
            OutputPlan(
                name=name,
                operator="split",
                port=name,
                key=[],
                suite=None,
                columns=[],
                stateful=False,
                guarantee="",
                errors=True,
            )
            for name in PORTS
        ]
        return super().plan.model_copy(update={"errors": errors})

    def emit(self, port: str, by_window: dict[int, int], epoch: int, *, seal: bool) -> None:
        rows = [
            {
                "window_id": window,
                "attempt": epoch,
                "origin": f"[{window}]",
                "flights": number,
                "_rw_replay": "one",
                "_rw_window": window,
                "_rw_attempt": epoch,
                "_rw_position": str(number),
                "_rw_reason": "late" if number == 1 else "jump",
            }
            for window, count in by_window.items()
            for number in range(count)
        ]
        table = create_staged(self.root / port, COLUMNS)
        table.commit_arrow(
            pa.Table.from_pylist(rows, staged_schema(COLUMNS)),
            app_id="test",
            version=epoch,
        )
        for window, count in by_window.items() if seal else ():
            self._fact(window, "error", port, count, None, None, epoch, lost=False)


@pytest.fixture
def replay(config: Config) -> WithErrors:
    """An ended replay with error tuples in three windows, one of them repeated by a later
    attempt.
    """
    made = WithErrors(config, "one", FIRST, LAST)
    made.group(FIRST, LAST, rows_of(range(FIRST, LAST + 1)), state=state_of(LAST))
    made.emit(PORTS[0], {101: 2, 104: 3}, 1, seal=True)
    made.emit(PORTS[0], {104: 3}, 2, seal=True)
    made.emit(PORTS[0], {105: 9}, 3, seal=False)
    made.emit(PORTS[1], {108: 1}, 1, seal=True)
    made.end()
    return made


def test_errors_command_lists_the_newest_error_tuples_and_reports_truncation(
    command: Command,
    replay: WithErrors,
) -> None:
    found = json.loads(command("errors", "one", "--json")[1])
    assert {port: told["tuples"] for port, told in found["ports"].items()} == {
        PORTS[0]: 5,
        PORTS[1]: 1,
    }
    assert [(row["port"], row["window"], row["attempt"]) for row in found["errors"]] == [
        *[(PORTS[0], 101, 1)] * 2,
        *[(PORTS[0], 104, 2)] * 3,
        (PORTS[1], 108, 1),
    ]
    assert (
        found["errors"][0]["tuple"] == {"origin": "[101]", "flights": 0}
        and found["errors"][0]["reason"] == "jump"
    )
    text = command("errors", "one", "--limit", 3)[1]
    assert "3 of 5 are shown" in text and "0 of 1 are shown" in text and "[101]" in text
    assert len(json.loads(command("errors", "one", "--window", 104, "--json")[1])["errors"]) == 3
    assert len(json.loads(command("errors", "one", "--port", PORTS[1], "--json")[1])["errors"]) == 1


def test_error_tuples_visible_to_readers_are_counted_by_window_and_reason(
    command: Command,
    replay: WithErrors,
) -> None:
    # Rules: O65, O66
    found = json.loads(command("errors", "one", "--limit", 1, "--json")[1])
    assert found["counts"] == [
        {"port": PORTS[0], "window": 101, "reason": "jump", "tuples": 1},
        {"port": PORTS[0], "window": 101, "reason": "late", "tuples": 1},
        {"port": PORTS[0], "window": 104, "reason": "jump", "tuples": 2},
        {"port": PORTS[0], "window": 104, "reason": "late", "tuples": 1},
        {"port": PORTS[1], "window": 108, "reason": "jump", "tuples": 1},
    ]
    sampled = json.loads(command("errors", "one", "--sample", 1, "--port", PORTS[0], "--json")[1])
    assert [(row["window"], row["reason"]) for row in sampled["errors"]] == [
        (101, "jump"),
        (101, "late"),
    ]
    assert sampled["ports"][PORTS[0]]["tuples"] == 5
    lines = [line.split() for line in command("errors", "one")[1].splitlines()]
    assert ["jump", "3", "2", "101", "104"] in lines and ["104", "jump", "2"] in lines


def test_page_counts_error_tuples_by_port(
    command: Command,
    replay: WithErrors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O65
    monkeypatch.setattr(replay_page, "read_layers", lambda config, plan: ())
    html = replay_page.draw_replay_page(replay.config, "one")
    assert "<dd>6</dd><dt>error tuples: 5 of split.odd, 1 of split.other</dt>" in html
    assert "rewindow errors one" in html


def test_errors_command_rejects_unknown_ports_unknown_windows_and_purged_replays(
    command: Command,
    replay: WithErrors,
) -> None:
    assert "error ports" not in command("errors", "one")[2]
    assert 'has no error port "split.none"' in command("errors", "one", "--port", "split.none")[2]
    assert "window 99 is not in replay" in command("errors", "one", "--window", 99)[2]
    rmtree(replay.root / PORTS[0])
    assert (
        f'5 error tuples of port "{PORTS[0]}" of replay "one" are gone'
        in command("errors", "one")[2]
    )
    assert (
        json.loads(command("errors", "one", "--port", PORTS[0], "--window", 102, "--json")[1])[
            "errors"
        ]
        == []
    )
