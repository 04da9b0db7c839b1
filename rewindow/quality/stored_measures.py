"""Measures that the replay has stored with its facts, and whether they speak of the rows that are
there now.

A stored value counts where three things hold: it belongs to the fact of the newest attempt that
sealed its window (R52), its digest is that of the measure as the suite has it now, and the staged
table consists of the files that the attempts have written, as they wrote them. Else the measure is
taken again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.loading.measures import Measure
from rewindow.location import location
from rewindow.recovery import OutputPlan, Plan
from rewindow.storage import Table

Ints = npt.NDArray[np.int64]
_COLUMNS = ["window_id", "direction", "port", "attempt", "lost", "measures"]
_OF_AN_ATTEMPT = re.compile(r"\d+-\d+/[^/]+")
_NOTHING = 0
_NULL = 1
_WHOLE = 2
_REAL = 3


def written_by_attempts(staged: Table) -> bool:
    """Returns whether every file of a staged table lies where attempts write, and is as long as
    when it was written.
    """
    for file in staged.files():
        place = location(file.path)
        if not _OF_AN_ATTEMPT.fullmatch(place.relative_to(staged.path)):
            return False
        if not place.exists() or place.size() != file.size:
            return False
    return True


class StoredMeasures:
    """Values of an output's measures, by window, as the facts have them.

    Args:
        taken: of each window of the range, the attempt whose rows readers take; below 0 where it is
            not sealed.
        measures: with their values filled in.
    """

    def __init__(
        self,
        plan: Plan,
        output: OutputPlan,
        facts: Table,
        taken: Ints,
        measures: Sequence[Measure],
    ) -> None:
        self._plan = plan
        self._output = output
        self._taken = taken
        self._places = {
            measure.digest(output.columns): place for place, measure in enumerate(measures)
        }
        self._names = {measure.name: place for place, measure in enumerate(measures)}
        shape = (len(measures), len(taken))
        self._kinds = np.zeros(shape, dtype=np.int8)
        self._bits = np.zeros(shape, dtype=np.int64)
        if "measures" in facts.schema.names:
            for file in facts.files(plan.first, plan.last):
                self._add(facts.read(file, _COLUMNS))

    def _add(self, rows: pa.Table) -> None:
        """Takes the values of one file of facts, which is that of a group, so that no more is in
        memory at a time.
        """
        if "measures" not in rows.column_names:
            return
        mine = pc.and_(
            pc.equal(rows["direction"], "out"),
            pc.equal(rows["port"], self._output.name),
        )
        rows = rows.filter(
            pc.and_(mine, pc.and_(pc.invert(rows["lost"]), pc.is_valid(rows["measures"])))
        )
        window = rows["window_id"].to_numpy() - self._plan.first
        inside = (window >= 0) & (window < len(self._taken))
        inside[inside] &= self._taken[window[inside]] == rows["attempt"].to_numpy()[inside]
        rows = rows.filter(pa.array(inside))
        window = window[inside]
        if not rows.num_rows:
            return
        cells = rows["measures"].combine_chunks()
        window = window[pc.list_parent_indices(cells).to_numpy()]
        values = pc.list_flatten(cells)
        # All measures of a window are in one list. In the flattened list each value has the digest
        # of its measure, so one comparison finds the values of a measure in all windows.
        digest = pc.struct_field(values, "measure")
        whole = pc.struct_field(values, "whole")
        real = pc.struct_field(values, "real")
        for wanted, place in self._places.items():
            chosen = pc.equal(digest, wanted)
            self._fill(
                place,
                window[chosen.to_numpy(zero_copy_only=False)],
                whole.filter(chosen),
                real.filter(chosen),
            )

    def _fill(self, place: int, window: Ints, whole: pa.Array, real: pa.Array) -> None:
        # Whole numbers and floats share one array of 64 bits; `_kinds` has the type of each value.
        is_whole = whole.is_valid().to_numpy(zero_copy_only=False)
        is_real = real.is_valid().to_numpy(zero_copy_only=False)
        self._kinds[place, window] = np.select([is_whole, is_real], [_WHOLE, _REAL], _NULL)
        floats = pc.fill_null(real, 0.0).to_numpy(zero_copy_only=False)
        integers = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)
        self._bits[place, window] = np.where(is_real, floats.view(np.int64), integers)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored of what is asked."""
        return not self._kinds.any()

    def has(self, measure: Measure, windows: npt.NDArray[np.bool_]) -> bool:
        """Returns whether a measure has a value, perhaps null, in all of some windows."""
        return bool(np.all(self._kinds[self._names[measure.name]][windows] != _NOTHING))

    def values(self, measure: Measure) -> tuple[pa.ChunkedArray, Ints]:
        """Returns the values of a measure, and the positions of their windows in the range."""
        place = self._names[measure.name]
        index = np.flatnonzero(self._kinds[place] != _NOTHING)
        kinds = self._kinds[place][index]
        bits = self._bits[place][index]
        nulls = kinds == _NULL
        if (kinds == _REAL).any():
            found = np.where(kinds == _REAL, bits.view(np.float64), bits.astype(np.float64))
            # From pandas false: not a number is no null.
            return pa.chunked_array([pa.array(found, mask=nulls, from_pandas=False)]), index
        return pa.chunked_array([pa.array(bits, mask=nulls)]), index
