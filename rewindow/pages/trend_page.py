"""The page of an output's measures over its published windows, with the bounds of its suite.

Readers see a window as its newest publication left it, so its measures are those that this replay
has stored with its facts. Row measures are not stored, so they have no trend. The bounds are those
of the current suite.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError, RewindowError
from rewindow.facts.readers import seen_rows
from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import effective_publications
from rewindow.loading.measures import values_of
from rewindow.location import Location
from rewindow.pages.drawing import draw
from rewindow.pages.levels import CELLS_WANTED, View
from rewindow.quality.bounds import Bounds, bounds_of
from rewindow.quality.gate import suite_of
from rewindow.recovery import Plan
from rewindow.sequences import find_named
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange, format_time, without

PUBLICATIONS_MAX = 1_000
REPLAYS_MAX = 60
"""Largest number of publications whose facts are read for a page, the newest ones first."""
ROWS_MAX = 50
"""Largest number of cells outside of the bounds that are listed for a measure."""
_ROWS_DIGEST = 0
_SEALED = """direction in ('out', 'error') and port = '{output}' and not lost
    and window_id between {windows.first} and {windows.last}"""
_CELLS = """with seen as ({seen}), valued as (
    select (window_id - {first}) / {step} as cell, {rows} as measure, cast(tuples as double) as v
        from seen
    union all
    select cell, m['measure'], coalesce(m['real'], cast(m['whole'] as double)) from (
        select (window_id - {first}) / {step} as cell, unnest(measures) as m from seen)
) select measure, cell, min(v) as low, max(v) as high, sum(v) as total, count(v) as windows
from valued where v is not null group by measure, cell"""


def draw_trend_page(
    config: Config,
    name: str,
    between_us: tuple[int, int] | None = None,
) -> str:
    """Returns the page as HTML; see `read_trend`."""
    return draw(
        "trend.html",
        **read_trend(
            config,
            name,
            between_us,
        ),
    )


def read_trend(
    config: Config,
    name: str,
    between_us: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Returns the values of the page. Reads the ledger and facts, and starts no JVM.

    Args:
        config: current settings.
        name: name of the published output.
        between_us: range of time to show, by default everything that is published.

    Raises:
        InputError: the output has no published windows, or the range is empty.
    """
    ledger = Ledger.open(config.ledger_url, make=False)
    newest = ledger.publications.newest(table_name=name, limit=PUBLICATIONS_MAX)
    acts = []
    for act in effective_publications(newest):
        if act.closed_at is not None:
            acts.append(act)
    if not acts:
        raise InputError(f'output "{name}" has no published windows')
    grid = ledger.replays.get(acts[0].replay_id).read_plan().grid
    latest = max(acts, key=lambda act: act.last)
    if between_us is None:
        oldest = min(acts, key=lambda act: act.first)
        between_us = (grid.start_us(oldest.first), grid.end_us(latest.last))
    view = View.over(*between_us, grid.width_us)
    first, *_, after = view.cells(grid).first_windows.tolist()
    windows = WindowRange(first, after - 1)
    step = -(-len(windows) // CELLS_WANTED)
    parts = []
    covered: list[WindowRange] = []
    for act in acts:
        shown = act.range.overlap(windows)
        visible = without(shown, covered) if shown else []
        for part in visible:
            parts.append((act, part))
        covered += visible
    bounds: dict[str, Bounds] = {}
    values = []
    problems = {}
    for act, part in parts[:REPLAYS_MAX]:
        try:
            plan = ledger.replays.get(act.replay_id).read_plan()
            rows, known = _measures(
                config,
                plan,
                name,
                part,
                first,
                step,
            )
        except RewindowError as error:
            # A damaged replay must not hide the others.
            problems[error.primary] = act.replay_id
            continue
        values.append(rows)
        # The suite and the parameters of the newest publication decide.
        bounds = bounds or known
    return {
        "name": name,
        "grid": grid,
        "view": view,
        "windows": windows,
        "step": step,
        "newest": latest,
        "parts": parts,
        "omitted": max(0, len(parts) - REPLAYS_MAX),
        "problems": problems,
        "bounds": bounds,
        "points": _points(values),
        "rows_max": ROWS_MAX,
        "inf": inf,
        "time": format_time,
    }


def _measures(
    config: Config,
    plan: Plan,
    name: str,
    windows: WindowRange,
    first: int,
    step: int,
) -> tuple[pa.Table, dict[str, Bounds]]:
    """Returns the values that a replay has stored, and the bounds of each of its measures."""
    output = find_named(plan.staged, name.removeprefix(f"{plan.application}."))
    assert output is not None
    suite = suite_of(config, output)
    known = values_of(plan, output)
    names = {_ROWS_DIGEST: "output_rows"}
    for measure in suite.measures:
        names[measure.bound(known).digest(output.columns)] = measure.name
    bounds = dict.fromkeys(names.values(), Bounds())
    for entry in suite.expectations:
        kwargs = dict(entry["kwargs"])
        for key, value in kwargs.items():
            if isinstance(value, dict):
                kwargs[key] = known.get(str(value.get("$PARAMETER")))
        allowed = bounds_of(entry["type"], kwargs)
        if allowed.text and kwargs.get("column") in bounds:
            bounds[kwargs["column"]] = allowed
    rows = _cells(
        config.replay_root(plan.replay_id) / FACTS,
        output.name,
        windows,
        first,
        step,
    )
    rows = rows.filter(pc.is_in(rows["measure"], pa.array(names)))
    named = list(map(names.get, rows["measure"].to_pylist()))
    return rows.set_column(
        0,
        "measure",
        pa.array(named, pa.string()),
    ), bounds


@lru_cache(maxsize=4 * REPLAYS_MAX)
def _cells(
    facts: Location,
    output: str,
    windows: WindowRange,
    first: int,
    step: int,
) -> pa.Table:
    """Returns the values of all measures of a published output in cells of `step` windows.

    The result is kept, because the facts of a published replay do not change.
    """
    table = Table.open(facts)
    sealed = _SEALED.format(output=output, windows=windows)
    seen = f"select window_id, tuples, measures from facts where {sealed}"
    sql = f"select max(attempt) - min(attempt) as others from facts where {sealed}"
    # The join takes as long as everything else for a million windows.
    if query(sql, facts=table)["others"][0].as_py():
        seen = seen_rows(f"(select * from facts where {sealed})", output)
    sql = _CELLS.format(
        seen=seen,
        first=first,
        step=step,
        rows=_ROWS_DIGEST,
    )
    return query(sql, facts=table)


def _points(values: list[pa.Table]) -> dict[str, list[dict[str, float]]]:
    """Returns the cells of each measure in ascending order. Several replays can be in a cell."""
    points: dict[str, list[dict[str, float]]] = {}
    if values:
        cells = pa.concat_tables(values).group_by(["measure", "cell"])
        sums = [
            ("low", "min"),
            ("high", "max"),
            ("total", "sum"),
            ("windows", "sum"),
        ]
        for row in cells.aggregate(sums).sort_by("cell").to_pylist():
            row["mean"] = row["total_sum"] / row["windows_sum"]
            points.setdefault(row["measure"], []).append(row)
    return points
