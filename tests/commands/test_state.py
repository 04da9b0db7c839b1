"""`rewindow state`: what it shows of operators' states; from tables made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree

import pytest

from rewindow.settings.config import Config
from rewindow.storage import Table
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, rows_of, state_of

FIRST = 100
LAST = 109


@pytest.fixture
def replay(config: Config) -> StagedReplay:
    """An ended replay with checkpoints after the windows 104 and 109."""
    made = StagedReplay(config, "one", FIRST, LAST)
    made.group(FIRST, 104, rows_of(range(FIRST, 105)), state=state_of(10))
    made.group(105, LAST, rows_of(range(105, LAST + 1)), state=state_of(20))
    made.end()
    return made


def shown(command: Command, *words: str) -> list[tuple[int, int, list[int]]]:
    """Returns window, rows, and the minutes that are shown, of each operator."""
    code, text, errors = command("state", "one", *words, "--json")
    assert (code, errors) == (0, ""), errors
    states = json.loads(text)["states"]
    return [
        (one["window"], one["rows"], [row["minutes"] for row in one["shown"]]) for one in states
    ]


def test_state_command_shows_the_newest_checkpoint_or_that_of_a_given_window(
    command: Command,
    replay: StagedReplay,
) -> None:
    assert shown(command) == [(109, 2, [20, 21])]
    assert shown(command, "--window", "109") == [(109, 2, [20, 21])]
    assert shown(command, "--window", "108") == [(104, 2, [10, 11])]
    assert shown(command, "--window", "100") == [(99, 2, [0, 1])]


def test_state_rows_are_filtered_by_key_and_truncated_with_a_count(
    command: Command,
    replay: StagedReplay,
) -> None:
    assert shown(command, "--where", "carrier=UA") == [(109, 2, [21])]
    assert shown(command, "--limit", "1") == [(109, 2, [20])]
    text = command("state", "one", "--limit", "1")[1]
    assert "after window 109: 2 rows" in text and "1 of 2 are shown" in text and "AA" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--window", "99"), "window 99 is not in replay"),
        (("nosuch",), 'operator "nosuch" of replay "one" has no state'),
        (("--where", "carrierz=UA"), 'the state has no column "carrierz"'),
    ],
)
def test_unknown_names_in_state_are_reported_with_the_existing_names(
    command: Command,
    replay: StagedReplay,
    words: tuple[str, ...],
    message: str,
) -> None:
    code, text, errors = command("state", "one", *words)
    assert code != 0 and message in errors, (text, errors)


def test_purged_replay_has_no_state(command: Command, replay: StagedReplay) -> None:
    rmtree(replay.root)
    code, _, errors = command("state", "one")
    assert code != 0 and 'replay "one" has no checkpoints' in errors


def damage(config: Config, window: int) -> None:
    """Removes the files of the checkpoints after a window."""
    table = Table.open(config.replay_root("one") / "checkpoints")
    for file in table.files():
        if file.first == window:
            Path(file.path).write_bytes(b"PAR1")


def verified(command: Command) -> tuple[int, dict]:
    code, text, errors = command("state", "one", "--verify", "--json")
    assert not errors
    [found] = json.loads(text)["containers"]
    return code, found


def test_verify_shows_all_checkpoints_and_marks_the_one_used_for_a_resume(
    command: Command,
    replay: StagedReplay,
) -> None:
    code, found = verified(command)
    assert code == 0
    assert [one["window"] for one in found["checkpoints"]] == [109, 104, 99]
    [state] = found["checkpoints"][1]["states"]
    assert (state["operator"], state["rows"], state["code_version"]) == ("ranks_operator", 2, "")
    assert state["bytes"] > 100 and state["digest"] and state["schema_version"] == 1
    assert found["restored"] == 109
    assert found["why"] == "the newest undamaged one that every table has reached"
    text = command("state", "one", "--verify")[1]
    assert "a resume restores the checkpoint of window 109" in text


def test_verify_reports_a_damaged_checkpoint_and_the_cost_of_its_loss(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    damage(config, 109)
    code, found = verified(command)
    assert code == 1
    newest = found["checkpoints"][0]
    assert newest["window"] == 109 and newest["damage"]
    assert "5 windows [105, 109] would be computed again" in newest["cost"]
    assert found["restored"] == 104
    assert "that of window 109 is damaged" in found["why"]
    assert "continues with window 105" in found["recovery"]


def test_verify_reports_that_no_checkpoint_can_be_restored(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    for window in (99, 104, 109):
        damage(config, window)
    code, found = verified(command)
    assert (code, found["restored"], found["recovery"]) == (1, None, "")
    assert "no usable checkpoint" in found["why"]
    text = command("state", "one", "--verify")[1]
    assert "a resume cannot restore any checkpoint" in text
    assert command("state", "one", "totals", "--verify")[0] == 2
