"""Error tuples of a replay, read from its staged tables or, once these are purged, from what was published."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rewindow.application.error_tuples import error_columns
from rewindow.config import Config
from rewindow.errors import InputError, TableError
from rewindow.facts.readers import newest_seals, seen_rows
from rewindow.ledger import Ledger
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.storage import Table, query, quoted
from rewindow.storage.layout import FACTS, event_columns
from rewindow.storage.names import data_name


@dataclass(frozen=True)
class ErrorTuples:
    """The tuples of an error port.

    Attributes:
        count: how many there are.
        rows: the first of them, by window and then by columns.
        read_from: "staged", or the published table.
    """

    port: str
    count: int
    rows: pa.Table
    read_from: str


def list_errors(
    config: Config, replay_id: str, *, window: int | None = None, port: str | None = None, limit: int = 100
) -> list[ErrorTuples]:
    """Returns the tuples that a replay's operators put on error ports, as readers see them, an entry a port.

    Args:
        config: settings in force.
        replay_id: a replay.
        window: id of the only window to look at.
        port: the only error port to look at, as operator.port.
        limit: rows of each port at most.

    Raises:
        InputError: there is no such replay, or it has no such error port or window.
        TableError: see read_errors.
    """
    plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    known = [table.name for table in plan.errors]
    if port is not None and port not in known:
        raise InputError(
            f'replay "{replay_id}" has no error port "{port}"', hint=f"It has: {', '.join(known) or 'none'}."
        )
    if window is not None and window not in plan.range:
        raise InputError(f'window {window} is not in replay "{replay_id}", which has {plan.range}')
    return [read_errors(config, plan, name, window, limit) for name in known if port in (None, name)]


def read_errors(config: Config, plan: Plan, port: str, window: int | None, limit: int) -> ErrorTuples:
    """Returns the error tuples that readers see, at most `limit` of them.

    Raises:
        TableError: the staged tables were purged, and what is published now is not of this replay.
    """
    root = config.replay_root(plan.replay_id)
    inside = f"window_id = {window}" if window is not None else f"window_id between {plan.first} and {plan.last}"
    if Table.exists(root / port) and Table.exists(root / FACTS):
        tables = {"e": Table.open(root / port), "facts": Table.open(root / FACTS)}
        columns = ["window_id", "attempt", *event_columns(tables["e"]).names]
        seen = seen_rows("e", port, columns=", ".join(f"o.{quoted(name)}" for name in columns))
        return _read(port, tables, seen, inside, limit, "staged")
    name = data_name(plan.application, port)
    path = config.stream_table(name)
    if Table.exists(path):
        seen = f"select * from e where _rw_replay = '{plan.replay_id}'"
        found = _read(port, {"e": Table.open(path)}, seen, inside, limit, f"published in {name}")
        if found.count:
            return found
    counted = _counted(root / FACTS, port, inside)
    if counted:
        raise TableError(
            f'{counted} error tuples of port "{port}" of replay "{plan.replay_id}" are gone',
            detail="Its staged tables were purged, and what is published now has none of them.",
            hint="Plan the range again to see them.",
        )
    return ErrorTuples(port, 0, error_columns(pa.schema([])).empty_table(), "counted in the facts")


def _counted(facts: Location, port: str, inside: str) -> int:
    """Returns how many error tuples the facts count; they are kept when a replay's other tables are purged."""
    if not Table.exists(facts):
        return 0
    sql = f"""select sum(f.tuples) as n from facts f join ({newest_seals()}) s
              on f.window_id = s.window_id and f.attempt = s.attempt and f.port = s.port
              where f.port = '{port}' and f.direction = 'error' and not f.lost and f.{inside}"""
    return int(query(sql, facts=facts)["n"][0].as_py() or 0)


def _read(port: str, tables: dict[str, Table], seen: str, inside: str, limit: int, read_from: str) -> ErrorTuples:
    count = query(f"select count(*) as n from ({seen}) where {inside}", **tables)["n"][0].as_py()
    rows = query(f"select * from ({seen}) where {inside} order by window_id, _rw_position limit {limit}", **tables)
    return ErrorTuples(port, int(count), rows, read_from)
