"""Prepares published tables: creates them at the first publication and checks them at every later
one.

No JVM.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from rewindow.errors import TableError
from rewindow.recovery import OutputPlan, Plan
from rewindow.retention.horizon import retention
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table
from rewindow.storage.fields import fields_without
from rewindow.storage.files import open_files
from rewindow.storage.formats import TableKind, check_format, format_property
from rewindow.storage.layout import event_columns
from rewindow.storage.published_tables import Kind, PublicationTarget, targets_of
from rewindow.storage.staged_replay import StagedReplay
from rewindow.storage.streams import create_stream, stored_grid

_TIME = pa.timestamp("us", tz="UTC")
OWN_COLUMNS = pa.schema([("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", _TIME)])
"""The first columns of every published stream, the same as those of a recorded stream."""


def published_schema(events: pa.Schema) -> pa.Schema:
    """Returns the schema of a published stream.

    If the output has a column `arrived_at`, it replaces the derived one.
    """
    first = [
        events.field(column.name) if column.name in events.names else column
        for column in OWN_COLUMNS
    ]
    return pa.schema([*first, *fields_without(events, OWN_COLUMNS.names)])


def prepare_tables(config: Config, replay: StagedReplay) -> dict[str, int]:
    """Creates missing tables, checks existing tables, and returns the version of every table in
    commit order.

    Raises:
        TableError: a table was not created by Rewindow, or its columns do not match.
    """
    targets = targets_of(replay.plan)
    return {target.name: _prepare(config, replay, target).version for target in targets}


def check_tables(config: Config, replay: StagedReplay) -> None:
    """Checks existing tables in the same way as `prepare_tables`, without changing anything.

    Raises:
        TableError: see prepare_tables.
    """
    for target in targets_of(replay.plan):
        path = config.stream_table(target.name)
        if not Table.exists(path):
            continue
        table = Table.open(path)
        if target.kind is Kind.DATA:
            assert target.output is not None, "tuples belong to an output"
            events = event_columns(replay.table(target.output.name))
            _check_columns(target.name, table.schema, published_schema(events))
            check_format(table, TableKind.STREAM)
        table.check_committable()


def _prepare(config: Config, replay: StagedReplay, target: PublicationTarget) -> Table:
    plan = replay.plan
    path = config.stream_table(target.name)
    exists = Table.exists(path)
    if target.kind is Kind.CHECKPOINTS:
        table = create_table(
            path,
            stored.SCHEMA,
            {**retention(config), **format_property(TableKind.STATES)},
        )
        table.check_committable()
        return check_format(table, TableKind.STATES)
    assert target.output is not None, "tuples and seals belong to an output"
    events = event_columns(replay.table(target.output.name))
    if "offset" in events.names:
        raise TableError(
            f'output "{target.output.name}" has a column "offset", a reserved name in published '
            "streams",
            hint="Rename the column.",
        )
    if target.kind is Kind.DATA:
        schema = published_schema(events)
        if exists:
            table = Table.open(path)
            _check_columns(target.name, table.schema, schema)
            check_format(table, TableKind.STREAM)
        create_stream(
            path, schema, _settings(plan, target.output, events), properties=retention(config)
        )
        open_files(path)
        table = Table.open(path)
        table.check_committable()
        return _with_columns(table, schema)
    table = Table.open(path)
    _check_windows(table, plan)
    return check_format(table, TableKind.SEALS)


def _with_columns(table: Table, wanted: pa.Schema) -> Table:
    """Adds missing columns to a table in a separate commit. Can be repeated."""
    new = fields_without(wanted, table.schema.names)
    if new:
        table.delta.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
    return table.refresh()


def _check_windows(table: Table, plan: Plan) -> None:
    table.check_committable()
    grid = stored_grid(table)
    if grid != plan.grid:
        raise TableError(
            f'table "{table.path.name}" has windows of {grid}, but replay "{plan.replay_id}" has '
            f"windows of {plan.grid}",
            hint="One table cannot have window ids of different grids; rename the application.",
        )


def _check_columns(name: str, existing: pa.Schema, wanted: pa.Schema) -> None:
    """Checks that the output has all existing columns with the same types.

    It can have additional columns.
    """
    if "window_id" not in existing.names or "offset" not in existing.names:
        raise TableError(f'table "{name}" exists but was not published by Rewindow')
    for column in existing:
        if column.name not in wanted.names:
            raise TableError(
                f'table "{name}" has the column "{column.name}", which the output no longer has',
                hint="Keep the column in the output (it may be null), or publish under another "
                "application name.",
            )
        if wanted.field(column.name).type != column.type:
            raise TableError(
                f'column "{column.name}" of table "{name}" is {column.type}, but the output has '
                f"{wanted.field(column.name).type}",
                hint="Keep the type, or publish under another application name.",
            )


def _settings(plan: Plan, output: OutputPlan, events: pa.Schema) -> dict[str, object]:
    """Returns the settings that are stored with a published stream, in the same format as for a
    recorded stream.

    Rules: W4
    """
    schema = published_schema(events)
    return {
        "width_ms": plan.width_ms,
        "origin_ms": plan.origin_ms,
        "arrived_at": "arrived_at" if "arrived_at" in events.names else "start of the window",
        "event_at": "",
        "keys": ",".join(output.key),
        "zone": "UTC",
        "schema": ", ".join(f"{column.name} {column.type}" for column in list(schema)[2:]),
        "application": plan.application,
        "output": output.name,
    }
