"""Windows computed again, held against what is committed: a second version never passes silently
(R70, R85, R87).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rewindow.errors import NotDeterministicError
from rewindow.facts.closeness import are_close, in_one_order, sort_key
from rewindow.facts.window_facts import Ids, WindowFacts
from rewindow.names import whole_replay
from rewindow.spark.digests import NOT_DIGESTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 3
ROWS_AT_ONCE = 100_000
"""Rows that are compared one by one at a time, since they are Python objects."""


@dataclass(frozen=True)
class RecomputedOutput:
    """Windows of an output that were committed before, with their digests now.

    Attributes:
        committed: its seals.
        recomputed: its digests now, of the same windows.
        rows: returns two frames of the output's rows of some windows: as committed, and as computed
            now.
        tolerance: floats are equal when |a - b| <= tolerance * max(1, |a|, |b|), as in a
            certificate.
    """

    name: str
    committed: WindowFacts
    recomputed: WindowFacts
    rows: Callable[[Ids], tuple[DataFrame, DataFrame]]
    tolerance: float


def check_recomputed(replay_id: str, outputs: Iterable[RecomputedOutput]) -> None:
    """Compares windows computed again with what is committed.

    Args:
        replay_id: the replay, for the hint.
        outputs: in topological order: the first difference is that of the lowest window, there of
            the first output.

    Raises:
        NotDeterministicError: names window and output, with both digests and some rows.
    """
    known = list(outputs)
    differing = []
    for place, output in enumerate(known):
        first = _first_differing(output)
        if first is not None:
            differing.append((first, place))
    if not differing:
        return
    window, place = min(differing)
    output = known[place]
    found = np.array([window])
    committed, now = (
        side.reindex(found).rows.to_pylist()[0] for side in (output.committed, output.recomputed)
    )
    rows = "; ".join(_sample(*output.rows(found)))
    raise NotDeterministicError(
        f'output "{output.name}" of window {window} differs when computed again',
        detail=f"Committed: {committed['tuples']} tuples, {committed['digest']}; now "
        f"{now['tuples']}, "
        f"{now['digest']}. {rows}.",
        hint="Look for wall clock, random numbers or order in its operators, or declare a "
        "tolerance "
        "of the output if only floats differ; then abandon the replay: rewindow abandon "
        f"{whole_replay(replay_id)}",
    )


def _first_differing(output: RecomputedOutput) -> int | None:
    """Returns the first window that differs; rows are read only where floats alone differ, so many
    at a time.
    """
    exact = output.recomputed.diff(output.committed, "tuples", "digest")
    floats = np.setdiff1d(
        output.recomputed.diff(output.committed, "float_digest"),
        exact,
        assume_unique=True,
    )
    if len(exact):
        floats = floats[floats < exact[0]]
    # Windows in which only floats differ are compared row by row, some at a time, to bound the
    # memory. Only those before the first exact difference can come first.
    rows = np.cumsum(output.recomputed.reindex(floats).rows["tuples"].to_numpy())
    for part in (
        np.split(floats, np.flatnonzero(np.diff(rows // ROWS_AT_ONCE)) + 1) if len(floats) else ()
    ):
        beyond = _beyond_tolerance(*output.rows(part), output.tolerance)
        if beyond:
            return min(beyond)
    return int(exact[0]) if len(exact) else None


def _beyond_tolerance(committed: DataFrame, now: DataFrame, tolerance: float) -> list[int]:
    """Returns the windows in which rows that are equal but for their floats do not lie close to
    each other.
    """
    left, right = map(_by_window, (committed, now))
    windows = left.keys() | right.keys()
    return [
        window
        for window in windows
        if not are_close(left.get(window), right.get(window), tolerance)
    ]


def _by_window(frame: DataFrame) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for row in frame.toArrow().to_pylist():
        values = [in_one_order(row[name]) for name in sorted(row) if name not in NOT_DIGESTED]
        found.setdefault(row["window_id"], []).append(values)
    return {window: sorted(rows, key=sort_key) for window, rows in found.items()}


def _sample(committed: DataFrame, now: DataFrame) -> list[str]:
    """Returns, in words, some rows that only one side has."""
    there, here = (Counter(map(_text, frame.toArrow().to_pylist())) for frame in (committed, now))
    found = []
    for words, mine, others in (("Only committed", there, here), ("Only now", here, there)):
        rows = sorted((mine - others).elements())[:SAMPLE_ROWS]
        found += [f"{words}: {', '.join(rows)}"] if rows else []
    return found


def _text(row: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{name}={row[name]}" for name in row if name not in NOT_DIGESTED) + ")"
