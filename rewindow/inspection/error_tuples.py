"""Reads the error tuples of a replay from its staged tables, or from the published tables if the
staged tables were purged.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rewindow.application.error_tuples import POSITION, REASON, error_columns
from rewindow.errors import InputError, TableError
from rewindow.facts.readers import newest_seals, seen_rows
from rewindow.ledger import Ledger
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table, query, quoted
from rewindow.storage.layout import FACTS, event_columns
from rewindow.storage.names import data_name


@dataclass(frozen=True)
class ErrorCount:
    """The number of error tuples with one reason in one window.

    Rules: O65
    """

    window: int
    reason: str
    tuples: int


@dataclass(frozen=True)
class ReasonTotal:
    """The error tuples with one reason in all windows: their number, the number of windows, and the
    first and last window.
    """

    reason: str
    tuples: int
    windows: int
    first: int
    last: int


@dataclass(frozen=True)
class ErrorTuples:
    """The tuples of an error port.

    Attributes:
        count: number of tuples.
        rows: the first tuples, by window and position; or a sample with a number of tuples per
            reason.
        read_from: "staged", or the published table.
        counts: by window and reason.
    """

    port: str
    count: int
    rows: pa.Table
    read_from: str
    counts: tuple[ErrorCount, ...] = ()

    def reasons(self) -> list[ReasonTotal]:
        """Returns the reasons, the most frequent reason first."""
        found: dict[str, list[ErrorCount]] = {}
        for count in self.counts:
            found.setdefault(count.reason, []).append(count)
        totals = []
        for reason, counts in found.items():
            tuples = sum(count.tuples for count in counts)
            first = counts[0].window
            totals.append(
                ReasonTotal(reason, tuples, len(counts), first=first, last=counts[-1].window)
            )
        return sorted(totals, key=lambda total: (-total.tuples, total.reason))


def list_errors(
    config: Config,
    replay_id: str,
    *,
    window: int | None = None,
    port: str | None = None,
    limit: int = 100,
    sample: int | None = None,
) -> list[ErrorTuples]:
    """Returns the visible error tuples of a replay's operators, one entry per port.

    The counts by window and reason cover all tuples, even if the rows are limited.

    Args:
        config: current settings.
        replay_id: a replay.
        window: id of the only window to read.
        port: the only error port to read, as operator.port.
        limit: maximum number of rows per port.
        sample: return this number of rows per reason instead of the first rows.

    Raises:
        InputError: the replay, the error port or the window does not exist.
        TableError: see read_errors.

    Rules: O65, O66
    """
    plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    known = names_of(plan.errors)
    if port is not None and port not in known:
        raise InputError(
            f'replay "{replay_id}" has no error port "{port}"',
            hint=f"It has: {', '.join(known) or 'none'}.",
        )
    if window is not None and window not in plan.range:
        raise InputError(
            f'window {window} is not in replay "{replay_id}", which has '
            f"{plan.grid.describe(plan.range)}"
        )
    return [
        read_errors(config, plan, name, window=window, limit=limit, sample=sample)
        for name in known
        if port in (None, name)
    ]


def read_errors(
    config: Config,
    plan: Plan,
    port: str,
    window: int | None,
    limit: int,
    sample: int | None = None,
) -> ErrorTuples:
    """Returns at most `limit` visible error tuples.

    Raises:
        TableError: the staged tables were purged, and the published table has the rows of another
            replay.
    """
    root = config.replay_root(plan.replay_id)
    inside = (
        f"window_id = {window}"
        if window is not None
        else f"window_id between {plan.first} and {plan.last}"
    )
    if Table.exists(root / port) and Table.exists(root / FACTS):
        tables = {"e": Table.open(root / port), "facts": Table.open(root / FACTS)}
        columns = ["window_id", "attempt", *event_columns(tables["e"]).names]
        seen = seen_rows("e", port, columns=", ".join(f"o.{quoted(name)}" for name in columns))
        return _read(port, tables, _Part(seen, inside, limit, sample), "staged")
    name = data_name(plan.application, port)
    path = config.stream_table(name)
    if Table.exists(path):
        seen = f"select * from e where _rw_replay = '{plan.replay_id}'"
        found = _read(
            port,
            {"e": Table.open(path)},
            _Part(seen, inside, limit, sample),
            f"published in {name}",
        )
        if found.count:
            return found
    counted = _counted(root / FACTS, port, inside)
    if counted:
        raise TableError(
            f'{counted} error tuples of port "{port}" of replay "{plan.replay_id}" are gone',
            detail="Its staged tables were purged, and what is published now has none of them.",
            hint="Plan the range again to see them.",
        )
    return ErrorTuples(
        port, 0, error_columns(pa.schema([])).empty_table(), read_from="counted in the facts"
    )


def count_errors(config: Config, plan: Plan, port: str) -> int:
    """Returns the number of error tuples of a port from the facts, which a purge keeps.

    Rules: O66
    """
    return _counted(
        config.replay_root(plan.replay_id) / FACTS,
        port,
        f"window_id between {plan.first} and {plan.last}",
    )


def _counted(facts: Location, port: str, inside: str) -> int:
    """Returns the number of error tuples from the facts, which are kept when a replay's other
    tables are purged.
    """
    if not Table.exists(facts):
        return 0
    sql = f"""select sum(f.tuples) as n from facts f join ({newest_seals()}) s
              on f.window_id = s.window_id and f.attempt = s.attempt and f.port = s.port
              where f.port = '{port}' and f.direction = 'error' and not f.lost and f.{inside}"""
    return int(query(sql, facts=facts)["n"][0].as_py() or 0)


@dataclass(frozen=True)
class _Part:
    """A selection of error tuples: a query for the visible ones, a condition on windows, and
    limits.
    """

    seen: str
    inside: str
    limit: int
    sample: int | None

    @property
    def rows(self) -> str:
        """The SQL query for the rows to show."""
        order = f"order by window_id, {POSITION} limit {self.limit}"
        if self.sample is None:
            return f"select * from ({self.seen}) where {self.inside} {order}"
        number = f"row_number() over (partition by {REASON} order by window_id, {POSITION}) as n_"
        numbered = f"select *, {number} from ({self.seen}) where {self.inside}"
        return f"select * from ({numbered}) where n_ <= {self.sample} {order}"

    @property
    def counts(self) -> str:
        """The SQL query for the counts by window and reason."""
        counted = (
            f"select window_id as window, {REASON} as reason, count(*) as tuples from ({self.seen})"
        )
        return f"{counted} where {self.inside} group by 1, 2 order by 1, 2"


def _read(port: str, tables: dict[str, Table], part: _Part, read_from: str) -> ErrorTuples:
    counts = tuple(ErrorCount(**row) for row in query(part.counts, **tables).to_pylist())
    rows = query(part.rows, **tables)
    if "n_" in rows.column_names:
        rows = rows.drop_columns(["n_"])
    return ErrorTuples(
        port, sum(one.tuples for one in counts), rows, read_from=read_from, counts=counts
    )
