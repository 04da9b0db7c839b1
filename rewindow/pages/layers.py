"""Reads the layers of the calendar. Each layer is a quantity of streams or a replay's output, with
a value per window.

Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.facts.readers import seen_rows
from rewindow.loading.measures import TIMER_COLUMNS
from rewindow.location import Location
from rewindow.pages.replay_report import Layer
from rewindow.recovery import InputPlan, OutputPlan, Plan
from rewindow.sequences import present
from rewindow.settings.config import Config
from rewindow.storage import Table, in_windows, query, quoted
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class LayerMeasure:
    """A quantity of an output to show on the page.

    Attributes:
        sql: an aggregate over the output's columns, per window.
        total: whether the values of windows in the same cell are added up; otherwise they are
            averaged.
    """

    name: str
    label: str
    unit: str
    output: str
    sql: str
    total: bool = False
    hue: str = "amber"
    note: str = ""


def read_layers(
    config: Config,
    plan: Plan,
    measures: Iterable[LayerMeasure] = (),
) -> tuple[Layer, ...]:
    """Returns the layers of the calendar.

    These are the input tuples, the given measures, gaps of every input, and heartbeats if an output
    marks timers. If an input was deleted, its layers are left out. The layers of the replay's
    outputs still exist.
    """
    root = config.replay_root(plan.replay_id)
    inputs = [entry for entry in plan.inputs if Table.exists(entry.windows_table(config.state))]
    layers = [_tuples(config, plan)] if len(inputs) == len(plan.inputs) else []
    layers += [_measure(plan, root, measure) for measure in measures]
    layers += [_gaps(config, plan, entry) for entry in inputs]
    layers += present(_heartbeats(plan, root, output) for output in plan.outputs)
    return tuple(layers)


def _tuples(config: Config, plan: Plan) -> Layer:
    values = np.zeros(len(plan.range))
    for entry in plan.inputs:
        rows = query(
            f"select window_id, tuples as v from w where {in_windows(plan.range)}",
            w=_seals(config, entry),
        )
        values += np.nan_to_num(_spread(plan.range, rows))
    note = " and ".join(entry.stream for entry in plan.inputs)
    return Layer(
        "tuples", "Tuples", "tuples", values=values, hue="blue", note=f"recorded in {note}"
    )


def _measure(plan: Plan, root: Location, measure: LayerMeasure) -> Layer:
    sql = (
        f"select window_id, {measure.sql} as v from ({seen_rows('rows', measure.output)}) group "
        "by window_id"
    )
    rows = query(sql, rows=Table.open(root / measure.output), facts=Table.open(root / FACTS))
    values = _spread(plan.range, rows)
    return Layer(
        measure.name,
        measure.label,
        measure.unit,
        values=values,
        total=measure.total,
        hue=measure.hue,
        note=measure.note,
    )


def _gaps(config: Config, plan: Plan, entry: InputPlan) -> Layer:
    """Returns the number of silent keys of a stream in each window.

    For a stream without keys, returns whether the window was empty.
    """
    settings = config.streams.get(entry.stream)
    keys = ", ".join(map(quoted, settings.keys)) if settings else ""
    name = f"gaps_{entry.stream}"
    label = f"Gaps in {entry.stream}"
    if settings is None or not keys:
        rows = query(
            f"select window_id, tuples as v from w where {in_windows(plan.range)}",
            w=_seals(config, entry),
        )
        empty = _spread(plan.range, rows) == 0
        return Layer(
            name,
            label,
            "empty",
            values=empty.astype(float),
            hue="plum",
            note="windows without a tuple",
        )
    # Every key that the stream has ever had is expected in each window. The keys with a tuple in it
    # are counted, and the others are silent.
    table = Table.open(entry.table(config.state), entry.version)
    counted = query(f"select count(*) as n from (select distinct {keys} from t)", t=table)
    known = counted["n"][0].as_py()
    sql = f"""select window_id, count(*) as v from (
              select distinct window_id, {keys} from t where {in_windows(plan.range)})
                  group by window_id"""
    silent = known - np.nan_to_num(_spread(plan.range, query(sql, t=table)))
    note = f"of {known} keys ({', '.join(settings.keys)}), those without a tuple in the window"
    return Layer(name, label, "silent", values=silent, hue="plum", note=note)


def _heartbeats(plan: Plan, root: Location, output: OutputPlan) -> Layer | None:
    timer = next((name for name, _ in output.columns if name in TIMER_COLUMNS), None)
    if timer is None:
        return None
    measure = LayerMeasure(
        f"heartbeats_{output.name}",
        "Heartbeats",
        "timers",
        output=output.name,
        sql=f"count(*) filter (where {quoted(timer)})",
        total=True,
        hue="green",
        note=f"rows of {output.name} made by a timer because the source was silent",
    )
    return _measure(plan, root, measure)


def _seals(config: Config, entry: InputPlan) -> Table:
    return Table.open(entry.windows_table(config.state), entry.windows_version)


def _spread(windows: WindowRange, rows: pa.Table) -> npt.NDArray[np.float64]:
    """Returns a value for each window of the range. Windows without a row have NaN."""
    values = np.full(len(windows), np.nan)
    found = rows["v"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    values[rows["window_id"].to_numpy() - windows.first] = found
    return values
