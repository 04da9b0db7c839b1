"""Reads measures that the replay has stored with its facts, if they are still valid for the current
rows.

A stored value is valid under three conditions: it belongs to the fact of the newest attempt that
sealed its window, its digest equals the digest of the measure in the current suite, and the staged
table consists of unchanged files that attempts have written. Otherwise the measure is computed
again.

Rules: R52
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
    """Returns whether every file of a staged table is in the folder of an attempt and has its
    original size.
    """
    for file in staged.files():
        place = location(file.path)
        if not _OF_AN_ATTEMPT.fullmatch(place.relative_to(staged.path)):
            return False
        if not place.exists() or place.size() != file.size:
            return False
    return True


class StoredMeasures:
    """Stored values of an output's measures, by window.

    The values of all measures are in two arrays of shape (measures, windows): `_kinds` has the type
    of each value or that there is none, `_bits` the 64 bits of the whole number or float. So a
    million windows need no Python objects.

    Args:
        plan: the plan of the replay.
        output: the output.
        facts: the replay's facts.
        taken: for each window of the range, the attempt whose rows readers see; negative if it is
            not sealed.
        measures: the measures, with parameters filled in.
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
        """Adds the values of one file of facts.

        A file has the facts of one group, so memory use is limited to one group.
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
        """Whether no value of any measure is stored."""
        return not self._kinds.any()

    def has(self, measure: Measure, windows: npt.NDArray[np.bool_]) -> bool:
        """Returns whether a measure has a stored value, which may be null, in all of the given
        windows.
        """
        return bool(np.all(self._kinds[self._names[measure.name]][windows] != _NOTHING))

    def values(self, measure: Measure) -> tuple[pa.ChunkedArray, Ints]:
        """Returns the values of a measure, and the indexes of their windows in the range."""
        place = self._names[measure.name]
        index = np.flatnonzero(self._kinds[place] != _NOTHING)
        kinds = self._kinds[place][index]
        bits = self._bits[place][index]
        nulls = kinds == _NULL
        if (kinds == _REAL).any():
            floats = np.where(kinds == _REAL, bits.view(np.float64), bits.astype(np.float64))
            # With from_pandas, NaN would become null.
            return pa.chunked_array([pa.array(floats, mask=nulls, from_pandas=False)]), index
        return pa.chunked_array([pa.array(bits, mask=nulls)]), index
