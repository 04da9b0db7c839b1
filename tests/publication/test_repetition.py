"""Publications that repeat what they replace make nothing stale; all others do, where no state was
saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from rewindow.facts.seals import seal_rows
from rewindow.publication.publish import publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.storage.streams import WINDOWS_SCHEMA
from tests.publication.staging import StagedReplay, rows_of, simple, state_of

_COUNTS = pa.schema([WINDOWS_SCHEMA.field(place) for place in range(4)])


def published(
    config: Config, name: str, last: int, plus: int = 0, **more: Any
) -> PublicationResult:
    """Publishes a replay from window 100 on, which saves its state at its last window alone."""
    simple(config, name, 100, last, plus, publishable=True, outputs=("ranks",), **more)
    return publish(config, name)


def test_identical_publication_does_not_make_windows_stale(config: Config) -> None:
    published(config, "whole", 119)
    assert published(config, "again", 109).stale == []
    assert published(config, "third", 109).stale == [], "what repeats a repetition"
    assert undo(config, "third").stale == []


@pytest.mark.parametrize(
    "other",
    [
        {"code_version": "code-2"},
        {"parameters": {"limit": "3"}},
        {"input_version": 4, "inputs": (("flights", 2),)},
        {"inputs": (("weather", 1),)},
        {"ended": 119},
        {"start_state": state_of(7)},
        {"plus": 5},
    ],
    ids=["code", "parameters", "input seals", "input", "end", "start state", "outputs"],
)
def test_publication_that_differs_makes_later_windows_stale(
    config: Config,
    other: dict[str, pa.Table | Any],
) -> None:
    published(config, "whole", 119)
    assert published(config, "other", 109, **other).stale == [("app.ranks", 110, 119)]


def test_input_that_grew_or_was_resealed_identically_counts_as_unchanged(config: Config) -> None:
    data = create_table(config.state / "flights", pa.schema([("window_id", pa.int64())]))
    seals = create_table(config.state / "flights.windows", WINDOWS_SCHEMA)

    def seal(windows: Iterable[int], tuples: int) -> int:
        """Seals windows with a number of tuples, and returns the version of the seals."""
        rows = [
            {"window_id": window, "tuples": tuples, "digest": "d", "float_digest": None}
            for window in windows
        ]
        found = seal_rows(pa.Table.from_pylist(rows, _COUNTS), data, "{}")
        seals.commit_arrow(found, app_id="record", version=seals.version)
        return seals.version

    versions = [seal(range(100, 120), 1), seal(range(120, 130), 2)]
    published(config, "whole", 119, inputs=(("flights", versions[0]),))
    assert published(config, "grown", 109, inputs=(("flights", versions[1]),)).stale == []
    seals.delta.delete("window_id = 105")
    seals.refresh()
    changed = seal([105], 7)
    stale = published(config, "changed", 109, inputs=(("flights", changed),)).stale
    assert stale == [("app.ranks", 110, 119)]


def test_republishing_several_publications_keeps_later_windows_stale(config: Config) -> None:
    # The outputs are those of `whole` and `middle`, but the state at the end is that of neither.
    published(config, "whole", 119)
    simple(config, "middle", 105, 109, 5, publishable=True, outputs=("ranks",))
    publish(config, "middle")
    both = StagedReplay(config, "both", 100, 109, outputs=("ranks",))
    rows = rows_of(range(100, 105))["ranks"] | rows_of(range(105, 110), 5)["ranks"]
    both.group(100, 109, {"ranks": rows}, state=state_of(1)).digest().end()
    assert publish(config, "both").stale == [("app.ranks", 110, 119)]


def test_identical_republication_does_not_hide_windows_that_were_already_stale(
    config: Config,
) -> None:
    published(config, "whole", 119)
    assert published(config, "fix", 104, plus=5).stale == [("app.ranks", 105, 119)]
    assert published(config, "again", 104, plus=5).stale == [("app.ranks", 105, 119)]
