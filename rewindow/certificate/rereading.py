"""Reads windows again for a comparison and reports rows that do not match their seals.

A window is read again if its seal may be wrong, or if all windows are requested.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.certificate.snapshots import Snapshot
from rewindow.recovery import OutputPlan
from rewindow.settings.config import Config
from rewindow.windows import WindowRange, to_ranges


def digested_again(
    config: Config,
    snapshots: tuple[Snapshot, Snapshot],
    full: bool,
) -> tuple[tuple[Snapshot, Snapshot], list[str], list[str]]:
    """Replaces the seals of snapshots by seals computed from rows, for all windows or for those
    whose seals may be wrong.

    Returns the snapshots and notes about them. The last list has sentences about windows whose rows
    do not match their seals although there was no reason to distrust these seals.
    """
    notes = []
    altered = []
    found = []
    for snapshot in snapshots:
        seals = snapshot.seals
        for output in snapshot.outputs:
            if output.name not in snapshot.data:
                continue
            doubts = snapshot.doubts.get(output.name, [])
            windows = [doubt.windows or snapshot.range for doubt in doubts]
            if full:
                windows = [snapshot.range]
            if windows:
                sealed = seals
                seals = _replaced(config, snapshot, seals, output, windows)
                altered += [] if doubts else _altered(snapshot, output.name, sealed, seals)
            read: set[int] = set()
            for part in windows:
                read.update(part.overlap(snapshot.range) or ())
            held = ", ".join(map(str, to_ranges(read)))
            notes += [
                f"{doubt.why} Windows {held} of {output.name} were read, and their digests were "
                "computed again."
                for doubt in doubts
            ]
        found.append(replace(snapshot, seals=seals))
    return (found[0], found[1]), list(dict.fromkeys(notes)), altered


def _altered(snapshot: Snapshot, output: str, sealed: pa.Table, read: pa.Table) -> list[str]:
    """Returns a sentence if the digests of an output's rows differ from the digests in its
    seals.
    """
    columns = ["window_id", "tuples", "digest"]
    before, now = (
        seals.filter(pc.equal(seals["port"], output)).select(columns) for seals in (sealed, read)
    )
    windows = before.join(now, keys=columns, join_type="left anti")["window_id"].to_pylist()
    if not windows:
        return []
    ranges = ", ".join(map(str, to_ranges(set(windows))))
    return [
        f"The rows of {output} in {snapshot.name} differ from their seals in windows {ranges}: "
        "they were changed afterwards."
    ]


def _replaced(
    config: Config,
    snapshot: Snapshot,
    seals: pa.Table,
    output: OutputPlan,
    windows: list[WindowRange],
) -> pa.Table:
    from rewindow.certificate.redigest import seals_of_rows
    from rewindow.spark.session import spark_session

    fresh = seals_of_rows(
        spark_session(config, "rewindow certify", quick=True),
        snapshot,
        output,
        windows=windows,
    )
    mine = pc.and_(
        pc.equal(seals["port"], output.name),
        pc.is_in(seals["window_id"], fresh["window_id"].combine_chunks()),
    )
    kept = seals.filter(pc.invert(mine))
    return pa.concat_tables([kept, fresh]).sort_by(
        [("port", "ascending"), ("window_id", "ascending")]
    )
