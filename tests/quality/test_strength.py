"""What a gate would not notice: planted damages, told by column and kind, and the replay left as it
is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.errors import GateError, InputError
from rewindow.ledger import ReplayState
from rewindow.pages.expectation_index import write_index
from rewindow.quality import Strength, check, runs, strength
from rewindow.quality.strength import damages_of
from rewindow.storage.results import strength_file
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay, ended, expectation

TWO_EACH = expectation(
    "two-each",
    "expect_column_values_to_be_in_set",
    column="not_two",
    value_set=[0],
)
NOT_TWO = {"not_two": "count(*) filter (where flights is null or flights <> 2)"}


@pytest.fixture
def staged(tmp_path: Path) -> StagedReplay:
    """A faultless replay of so many windows that most damages find room in one copy."""
    return StagedReplay(tmp_path, windows=WindowRange(100, 199))


def tried(staged: StagedReplay) -> tuple[Strength, dict[tuple[str, str], str]]:
    """Returns the strength of the only output's gate, and what was seen of each damage, by column
    and kind.
    """
    (found,) = strength(staged.config, staged.replay_id)
    return found, {(one.damage.column, one.damage.kind): one.seen for one in found.planted}


def test_damages_missed_by_a_suite_are_listed_by_column_and_kind(staged: StagedReplay) -> None:
    ended(staged)
    found, seen = tried(staged)
    stopped = {("", "row doubled"), ("origin", "null")}
    assert {place for place, level in seen.items() if level == "stopped"} == stopped
    holes = {
        ("origin", "renamed"),
        ("flights", "off by one"),
        ("", "row dropped"),
        ("is_timer", "the opposite"),
    }
    assert holes <= {(one.damage.column, one.damage.kind) for one in found.holes}
    assert ("", "rows exchanged with the next window's") in found.without_place

    staged.add_suite("mine", TWO_EACH, measures=NOT_TWO)
    staged.replay_id = "made-again"
    ended(staged)
    closed = {place for place, level in tried(staged)[1].items() if level == "stopped"} - stopped
    assert closed == {
        ("flights", kind) for kind in ("null", "of the other sign", "of another unit", "off by one")
    }


def test_damage_that_causes_only_a_warning_is_neither_stopped_nor_missed(
    staged: StagedReplay,
) -> None:
    staged.add_suite("mine", {**TWO_EACH, "severity": "warning"}, measures=NOT_TWO)
    ended(staged)
    found, seen = tried(staged)
    assert seen["flights", "off by one"] == "warning"
    assert found.noticed == found.stopped + 4


def test_check_that_fails_in_later_windows_does_not_hide_other_damages(
    staged: StagedReplay,
) -> None:
    sql = (
        "select window_id, max(max(flights)) over (order by window_id) as value from output "
        "group by window_id"
    )
    few = expectation(
        "few-so-far",
        "expect_column_values_to_be_between",
        column="most",
        max_value=2,
    )
    staged.add_suite("mine", few, row_measures={"most": {"sql": sql, "windows": "several"}})
    ended(staged)
    seen = tried(staged)[1]
    assert (seen["flights", "off by one"], seen["is_timer", "the opposite"]) == (
        "stopped",
        "unseen",
    )
    assert seen["origin", "renamed"] == "unseen"


def test_check_strength_is_deterministic_for_a_seed_and_changes_no_table(
    staged: StagedReplay,
) -> None:
    ledger = ended(staged)
    first = strength(staged.config, staged.replay_id)
    again = strength(staged.config, staged.replay_id)
    assert [one.to_dict() for one in first] == [one.to_dict() for one in again]
    assert (ledger.replays.get(staged.replay_id).state, runs(staged.config)) == (
        ReplayState.ENDED,
        [],
    )


def test_time_page_shows_the_share_of_detected_damages(staged: StagedReplay) -> None:
    ended(staged)
    check(staged.config, staged.replay_id)
    assert "planted damages" not in write_index(staged.config).read_text()
    (found,) = strength(staged.config, staged.replay_id)
    text = (
        f"{found.noticed} of {len(found.planted)} planted damages are noticed, {found.stopped} "
        "stop the publication"
    )
    assert text in write_index(staged.config).read_text()
    kept = json.loads(strength_file(staged.config, staged.replay_id, "made").read_text())
    assert kept == found.to_dict()


def test_check_strength_rejects_unknown_outputs_and_rows_that_cannot_be_checked(
    staged: StagedReplay,
) -> None:
    staged.add_suite("mine", TWO_EACH, measures={"not_two": "sum(nowhere)"})
    ended(staged)
    with pytest.raises(InputError, match='has no output "other"'):
        strength(staged.config, staged.replay_id, "other")
    with pytest.raises(GateError, match='"not_two" of output "made" cannot be computed'):
        strength(staged.config, staged.replay_id)


def test_generated_damages_match_the_column_types() -> None:
    types = {
        "s": pa.string(),
        "b": pa.bool_(),
        "t": pa.timestamp("us", tz="UTC"),
        "d": pa.decimal128(5, 2),
    }
    found = list(damages_of(pa.schema(list(types.items())), 3_600_000_000))
    by_column = {name: {one.kind for one in found if one.column == name} for name in ("", *types)}
    exchanged = "exchanged between two rows"
    assert by_column == {
        "": {"row dropped", "row doubled", "rows exchanged with the next window's"},
        "s": {"null", "renamed", exchanged},
        "b": {"null", "the opposite", exchanged},
        "t": {"null", "off by one window", exchanged},
        "d": {"null", "of the other sign", "of another unit", "off by one", exchanged},
    }
