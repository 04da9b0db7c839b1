"""What is known of windows as columns: filled, cut and compared as a naive reader would with
dicts.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewindow.facts.window_facts import COUNTS_SCHEMA, DIGESTS_SCHEMA, WindowFacts, ids_of
from rewindow.windows import WindowRange

COUNTS = st.dictionaries(st.integers(-20, 40), st.integers(1, 9))
RANGES = st.tuples(st.integers(-30, 50), st.integers(0, 30)).map(
    lambda part: WindowRange(part[0], part[0] + part[1])
)
DIGEST = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, "x", "y"]),
)


def facts(known: dict[int, tuple[object, ...]], schema: pa.Schema = DIGESTS_SCHEMA) -> WindowFacts:
    columns = list(zip(*((window, *said) for window, said in known.items()), strict=True)) or [
        () for _ in schema
    ]
    return WindowFacts.of(pa.table(columns, schema=schema), schema)


def known(found: WindowFacts) -> dict[int, int]:
    return dict(zip(*found.rows.to_pydict().values(), strict=True))


@given(COUNTS, RANGES)
def test_window_facts_have_exactly_one_row_per_requested_window(
    counts: dict[int, int],
    asked: WindowRange,
) -> None:
    found = facts({window: (count,) for window, count in counts.items()}, COUNTS_SCHEMA)
    assert known(found.reindex(ids_of(asked), tuples=0)) == {
        window: counts.get(window, 0) for window in asked
    }
    assert known(found.within(asked)) == {
        window: counts[window] for window in sorted(counts) if window in asked
    }
    assert found.tuples == sum(counts.values())


@given(st.dictionaries(st.integers(0, 9), st.tuples(DIGEST, DIGEST)))
def test_windows_with_different_column_values_are_reported_as_different(
    both: dict[int, tuple[tuple[object, ...], tuple[object, ...]]],
) -> None:
    here, there = (facts({window: pair[side] for window, pair in both.items()}) for side in (0, 1))
    for names, places in ((("tuples", "digest"), (0, 1)), (("float_digest",), (2,))):
        wanted = [
            w for w, (a, b) in sorted(both.items()) if any(a[place] != b[place] for place in places)
        ]
        assert here.diff(there, *names).tolist() == wanted


def test_reindexed_window_facts_keep_known_values_and_use_defaults_otherwise() -> None:
    found = facts({7: (2, "d", None), 3: (1, "e", "f")})
    filled = found.reindex(
        np.array([3, 5, 7]),
        tuples=0,
        digest="empty",
        float_digest="none",
    ).with_column("attempt", 4)
    assert [tuple(row.values()) for row in filled.rows.to_pylist()] == [
        (3, 1, "e", "f", 4),
        (5, 0, "empty", "none", 4),
        (7, 2, "d", None, 4),
    ]


def test_one_million_windows_are_not_stored_as_python_objects() -> None:
    windows = 1_000_000
    rows = pa.table(
        [np.arange(0, windows, 2), np.ones(windows // 2, np.int64)],
        schema=COUNTS_SCHEMA,
    )
    tracemalloc.start()
    filled = WindowFacts.of(rows).reindex(np.arange(windows), tuples=0)
    assert filled.tuples == windows // 2 and len(filled.diff(filled, "tuples")) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * windows, peak
