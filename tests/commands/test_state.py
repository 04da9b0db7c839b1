"""`rewindow state`: what it shows of operators' states; from tables made by hand."""

from __future__ import annotations

import json
from shutil import rmtree

import pytest

from rewindow.settings.config import Config
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


def test_newest_checkpoint_is_shown_or_the_one_before_a_given_window(
    command: Command,
    replay: StagedReplay,
) -> None:
    assert shown(command) == [(109, 2, [20, 21])]
    assert shown(command, "--window", "109") == [(109, 2, [20, 21])]
    assert shown(command, "--window", "108") == [(104, 2, [10, 11])]
    assert shown(command, "--window", "100") == [(99, 2, [0, 1])]


def test_rows_of_the_state_are_filtered_by_key_and_truncated_with_a_count(
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
def test_unknown_names_are_reported_with_the_existing_ones(
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
