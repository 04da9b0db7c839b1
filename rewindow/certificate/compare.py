"""Compares two sides first by digests, without reading data.

Then it compares windows with differing digests row by row.

Rules: O137 to O140
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.certificate.changes import ColumnChange, merge_changes
from rewindow.certificate.rows import RowComparison
from rewindow.certificate.snapshots import Snapshot
from rewindow.recovery import OutputPlan
from rewindow.storage import query

TUPLES_PER_BATCH = 400_000
WINDOWS_PER_BATCH = 2_000


class Difference(StrEnum):
    """How a window of side b differs from the same window of side a."""

    EQUAL = "equal"
    LOST = "lost"
    REPEATED = "repeated"
    CHANGED = "changed"
    AFFECTED = "affected"
    NOT_VERIFIABLE = "not verifiable"


@dataclass(frozen=True)
class WindowPair:
    """A window of an output for which digests alone do not show whether both sides are equal.

    Attributes:
        tuples_a, tuples_b: rows on each side; None if the window is not sealed there.
        exact: the digests of the exact columns are equal, but those of floating-point columns
            differ, or rows are repeated.
    """

    window: int
    tuples_a: int | None
    tuples_b: int | None
    exact: bool = False

    @property
    def only_in(self) -> str | None:
        """The only side that has the window; None if both sides or neither have it."""
        if (self.tuples_a is None) == (self.tuples_b is None):
            return None
        return "b" if self.tuples_a is None else "a"

    @property
    def in_both(self) -> bool:
        """Whether both sides have the window."""
        return self.tuples_a is not None and self.tuples_b is not None


@dataclass(frozen=True)
class WindowResult:
    """The result for a window.

    `missing` and `surplus` count rows of b relative to a. `in_neither` means that no side has the
    window.
    """

    window: int
    difference: Difference
    missing: int
    surplus: int
    only_in: str | None = None
    in_neither: bool = False


@dataclass
class OutputResult:
    """The comparison of one output.

    Attributes:
        by_digest: rows of a side were purged, so windows that both sides have were compared only by
            digest.
        not_verifiable: windows that both sides have, of an output that reads external systems.

    Rules: R88
    """

    output: OutputPlan
    windows: int
    tuples_a: int
    tuples_b: int
    differing: list[WindowResult] = field(default_factory=list)
    equal_within_tolerance: int = 0
    changes: dict[str, ColumnChange] = field(default_factory=dict)
    rows_added: int = 0
    rows_removed: int = 0
    rows_changed: int = 0
    data_read: bool = False
    by_digest: bool = False
    not_verifiable: list[int] = field(default_factory=list)


def compare_output(a: Snapshot, b: Snapshot, output: OutputPlan, raw: bool) -> OutputResult:
    """Returns the differences of an output between two sides.

    It reads data of differing windows only.
    """
    pairs, equal = _pairs(a, b, output.name)
    if raw and output.name in a.data and output.name in b.data:
        pairs = _with_repeats(a, b, output.name, pairs=pairs)
    result = OutputResult(
        output,
        windows=equal + len(pairs),
        tuples_a=_tuples(a, output.name),
        tuples_b=_tuples(b, output.name),
    )
    both = []
    for pair in pairs:
        if pair.in_both:
            both.append(pair)
        else:
            result.differing.append(_not_in_both(pair))
    if output.reads_outside:
        windows = (side.output_seals(output.name)["window_id"].to_numpy() for side in (a, b))
        result.not_verifiable = np.intersect1d(*windows).tolist()
        return result
    if output.name in a.data and output.name in b.data:
        result.data_read = bool(both)
        comparison = RowComparison(a, b, output, raw=raw)
        for batch in _batches(both):
            _compare_batch(comparison, batch, a, b=b, result=result)
    else:
        result.by_digest = bool(both)
        result.differing += [_by_digest(pair, a, b, output=output.name) for pair in both]
    result.differing.sort(key=lambda found: found.window)
    return result


def _compare_batch(
    comparison: RowComparison,
    batch: list[WindowPair],
    a: Snapshot,
    b: Snapshot,
    result: OutputResult,
) -> None:
    name = result.output.name
    rows = comparison.differing_rows([pair.window for pair in batch])
    counts = comparison.counts(rows)
    for pair in batch:
        missing, surplus, repeats = counts.get(pair.window, (0, 0, 0))
        found = _classify(missing, surplus, repeats)
        if found is Difference.EQUAL and not pair.exact:
            # A column outside of the comparison differs, or a table was altered after it was
            # sealed.
            found = Difference.CHANGED
        if found is Difference.EQUAL:
            result.equal_within_tolerance += 1
            continue
        if found is not Difference.REPEATED and _is_affected(pair, a, b, output=name):
            found = Difference.AFFECTED
        result.differing.append(WindowResult(pair.window, found, missing, surplus=surplus))
    added, removed, changed = merge_changes(result.changes, rows, comparison)
    result.rows_added += added
    result.rows_removed += removed
    result.rows_changed += changed


def _classify(missing: int, surplus: int, repeats: int) -> Difference:
    if not missing and not surplus:
        return Difference.EQUAL
    if not surplus:
        return Difference.LOST
    return Difference.REPEATED if not missing and repeats == surplus else Difference.CHANGED


def _not_in_both(pair: WindowPair) -> WindowResult:
    if pair.only_in is None:
        return WindowResult(pair.window, Difference.LOST, 0, surplus=0, in_neither=True)
    if pair.only_in == "a":
        return WindowResult(
            pair.window, Difference.LOST, pair.tuples_a or 0, surplus=0, only_in="a"
        )
    return WindowResult(pair.window, Difference.CHANGED, 0, surplus=pair.tuples_b or 0, only_in="b")


def _by_digest(pair: WindowPair, a: Snapshot, b: Snapshot, output: str) -> WindowResult:
    """Returns the result for a window from digests only, because rows were purged."""
    more = (pair.tuples_b or 0) - (pair.tuples_a or 0)
    found = Difference.AFFECTED if _is_affected(pair, a, b, output=output) else Difference.CHANGED
    return WindowResult(pair.window, found, max(-more, 0), surplus=max(more, 0))


def _is_affected(pair: WindowPair, a: Snapshot, b: Snapshot, output: str) -> bool:
    window = pair.window
    return a.losses.is_affected(output, window) or b.losses.is_affected(output, window)


def _pairs(a: Snapshot, b: Snapshot, output: str) -> tuple[list[WindowPair], int]:
    """Returns the windows that cannot be classified by digests alone, in ascending order, and the
    number of equal windows.

    Windows that neither side has are included, because it is unknown whether they are equal.
    """
    left = a.output_seals(output)
    right = b.output_seals(output)
    if left.equals(right):
        return _in_neither(a, b, left), left.num_rows
    # A full join keeps windows that only one side has. Arrow compares whole columns, so Python code
    # only processes the windows that differ.
    joined = left.join(
        right,
        "window_id",
        join_type="full outer",
        left_suffix="_a",
        right_suffix="_b",
    )
    exact = pc.and_(_same(joined, "tuples"), _same(joined, "digest"))
    whole = pc.and_(exact, _same_or_null(joined, "float_digest"))
    rest = joined.append_column("exact", exact).filter(pc.invert(whole)).sort_by("window_id")
    columns = rest.select(["window_id", "tuples_a", "tuples_b", "exact"]).to_pydict().values()
    pairs = list(starmap(WindowPair, zip(*columns, strict=True))) + _in_neither(a, b, joined)
    return sorted(pairs, key=lambda pair: pair.window), joined.num_rows - rest.num_rows


def _in_neither(a: Snapshot, b: Snapshot, sealed: pa.Table) -> list[WindowPair]:
    """Returns the windows of the compared ranges that neither side has."""
    shared = a.range.overlap(b.range)
    if sealed.num_rows == len(a.range) + len(b.range) - (len(shared) if shared else 0):
        return []
    wanted = np.union1d(
        np.arange(a.range.first, a.range.last + 1),
        np.arange(b.range.first, b.range.last + 1),
    )
    missing = np.setdiff1d(wanted, sealed["window_id"].to_numpy())
    return [WindowPair(window, None, None) for window in missing.tolist()]


def _same(joined: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(joined[f"{name}_a"], joined[f"{name}_b"]), False)


def _same_or_null(joined: pa.Table, name: str) -> pa.ChunkedArray:
    left = joined[f"{name}_a"]
    right = joined[f"{name}_b"]
    return pc.or_(_same(joined, name), pc.and_(pc.is_null(left), pc.is_null(right)))


def _tuples(snapshot: Snapshot, output: str) -> int:
    return pc.sum(snapshot.output_seals(output)["tuples"]).as_py() or 0


def _with_repeats(
    a: Snapshot,
    b: Snapshot,
    output: str,
    pairs: list[WindowPair],
) -> list[WindowPair]:
    """Adds the windows in which a side has more rows than readers see, and returns all pairs."""
    found = {pair.window: pair for pair in pairs}
    sealed_a = _counts(a.output_seals(output))
    sealed_b = _counts(b.output_seals(output))
    for side, sealed in ((a, sealed_a), (b, sealed_b)):
        if side.facts is None:
            continue
        counted = query(
            f"""select window_id, count(*) as tuples from t
                where window_id between {side.range.first} and {side.range.last}
                    group by window_id""",
            t=side.data[output],
        )
        for window, tuples in _counts(counted).items():
            if tuples != sealed.get(window) and window not in found:
                found[window] = WindowPair(
                    window,
                    sealed_a.get(window),
                    sealed_b.get(window),
                    exact=True,
                )
    return sorted(found.values(), key=lambda pair: pair.window)


def _counts(table: pa.Table) -> dict[int, int]:
    return dict(zip(table["window_id"].to_pylist(), table["tuples"].to_pylist(), strict=True))


def _batches(pairs: list[WindowPair]) -> Iterator[list[WindowPair]]:
    """Yields the pairs in batches of limited size, so that memory use does not depend on the number
    of differences.
    """
    batch: list[WindowPair] = []
    tuples = 0
    for pair in pairs:
        size = (pair.tuples_a or 0) + (pair.tuples_b or 0)
        if batch and (tuples + size > TUPLES_PER_BATCH or len(batch) >= WINDOWS_PER_BATCH):
            yield batch
            batch = []
            tuples = 0
        batch.append(pair)
        tuples += size
    if batch:
        yield batch
