"""Compares recomputed windows with the committed ones, so that a different result is always
reported.

Rules: R70, R85, R87
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
"""Number of rows that are compared one by one at a time. The limit bounds memory, since each is a
Python object."""


@dataclass(frozen=True)
class RecomputedOutput:
    """Windows of an output that were committed before, with their current digests.

    Attributes:
        committed: its seals.
        recomputed: its current digests, for the same windows.
        rows: returns two frames with the output's rows of some windows: committed, and computed
            now.
        tolerance: floats are equal if |a - b| <= tolerance * max(1, |a|, |b|), as in a certificate.
    """

    name: str
    committed: WindowFacts
    recomputed: WindowFacts
    rows: Callable[[Ids], tuple[DataFrame, DataFrame]]
    tolerance: float


def check_recomputed(replay_id: str, outputs: Iterable[RecomputedOutput]) -> None:
    """Compares recomputed windows with the committed ones.

    Args:
        replay_id: the replay, for the hint.
        outputs: in topological order. The reported difference is in the lowest window, and there in
            the first output.

    Raises:
        NotDeterministicError: a window differs; the message has window and output, both digests and
            some rows.
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
    ids = np.array([window])
    committed, now = (
        side.reindex(ids).rows.to_pylist()[0] for side in (output.committed, output.recomputed)
    )
    rows = "; ".join(_sample(*output.rows(ids)))
    raise NotDeterministicError(
        f'output "{output.name}" of window {window} differs when computed again',
        detail=f"Committed: {committed['tuples']} tuples, {committed['digest']}; now "
        f"{now['tuples']}, "
        f"{now['digest']}. {rows}.",
        hint="Check its operators for clocks, random numbers or a dependence on row order, or "
        "declare a tolerance of the output if only floats differ. Then abandon the replay: "
        f"rewindow abandon {whole_replay(replay_id)}",
    )


def _first_differing(output: RecomputedOutput) -> int | None:
    """Returns the first window that differs; None if all are equal.

    Rows are only read if the float digests alone differ.
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
    """Returns the windows in which floats differ by more than the tolerance."""
    left, right = map(_by_window, (committed, now))
    windows = left.keys() | right.keys()
    return [
        window
        for window in windows
        if not are_close(left.get(window), right.get(window), tolerance)
    ]


def _by_window(frame: DataFrame) -> dict[int, list[Any]]:
    by_window: dict[int, list[Any]] = {}
    for row in frame.toArrow().to_pylist():
        values = [in_one_order(row[name]) for name in sorted(row) if name not in NOT_DIGESTED]
        by_window.setdefault(row["window_id"], []).append(values)
    return {window: sorted(rows, key=sort_key) for window, rows in by_window.items()}


def _sample(committed: DataFrame, now: DataFrame) -> list[str]:
    """Returns a few rows that only one side has, as text."""
    before, after = (Counter(map(_text, frame.toArrow().to_pylist())) for frame in (committed, now))
    samples = []
    for words, mine, others in (("Only committed", before, after), ("Only now", after, before)):
        rows = sorted((mine - others).elements())[:SAMPLE_ROWS]
        samples += [f"{words}: {', '.join(rows)}"] if rows else []
    return samples


def _text(row: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{name}={row[name]}" for name in row if name not in NOT_DIGESTED) + ")"
