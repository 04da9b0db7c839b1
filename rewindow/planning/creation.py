"""Creates the tables of a planned replay, all in one step, with the plan stored in them.

They are created in a scratch folder, which is then renamed. If a planner dies before it has
recorded the replay in the ledger, it leaves tables with a plan. The next planner with the same id
uses these, so that tables and ledger never have two plans.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Application
from rewindow.engine.ports import stateful_operators
from rewindow.errors import CheckpointError, TableError
from rewindow.location import Location, location
from rewindow.planning.start_state import migrated
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.settings import make_scratch, scratch_folder
from rewindow.state import checkpoints as stored
from rewindow.state.files import FIELD, folder_of, read_rows, write_state
from rewindow.storage import Table, create_table
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.layout import (
    CHECKPOINTS,
    CODE,
    FACTS,
    FACTS_SCHEMA,
    LOG_KEPT,
    app_id,
    create_staged,
)
from rewindow.storage.staged_marks import plan_in, staged_positions


def create_tables(
    config: Config,
    plan: Plan,
    app: Application,
    code: Location | None = None,
) -> Plan:
    """Creates the tables of a replay, and returns the plan that they contain.

    If the tables already existed, this can be another plan.

    Args:
        config: current settings.
        plan: the plan.
        app: its application.
        code: folder of a candidate's code, which is copied so that every attempt runs the same
            code.

    Raises:
        TableError: the folder exists, but attempts that the ledger does not list have written to
            it, or it is not a replay.
    """
    root = config.replay_root(plan.replay_id)
    if not root.exists():
        make_scratch(config)
        draft = location(scratch_folder(config) / f"plan-{uuid.uuid4().hex[:8]}")
        _fill(config, draft, plan, app)
        if code is not None:
            for file in code.files():
                (draft / CODE / file.relative_to(code)).write(file.read_bytes())
        if not draft.move_to(root):
            draft.delete_tree()  # Another process has created the tables first.
    return _plan_of(root, plan.replay_id)


def _fill(config: Config, root: Location, plan: Plan, app: Application) -> None:
    schemas = {name: app.columns(output) for name, output in app.staged().items()}
    create_staging(root, schemas, plan.model_dump_json())
    rows = _start_rows(config, plan, app, table=root / CHECKPOINTS)
    if plan.start.source != "warm_up":
        checkpoints = Table.open(root / CHECKPOINTS)
        checkpoints.commit_arrow(rows, app_id=app_id(plan.replay_id, CHECKPOINTS), version=0)


def _plan_of(root: Location, replay_id: str) -> Plan:
    """Checks that no attempt has written to existing tables, and returns the plan that they
    contain.
    """
    unknown = f'folder of replay "{replay_id}" exists, but the ledger does not list that replay'
    hint = (
        "Rebuild the ledger from the tables (rewindow ledger rebuild), or give the new replay "
        "another id."
    )
    try:
        plan = plan_in(root)
    except TableError as error:
        raise TableError(
            unknown,
            detail=f"{root} has no readable plan.",
            hint=hint,
        ) from error
    newest = max(place.epoch for place in staged_positions(root, plan).values())
    if newest or plan.replay_id != replay_id:
        raise TableError(
            unknown,
            detail=f"Attempt {newest} has written to its tables. Nothing was changed.",
            hint=hint,
        )
    return plan


def _start_rows(config: Config, plan: Plan, app: Application, table: Location) -> pa.Table:
    """Returns the start state as checkpoint 0 of the replay.

    If the state is stored elsewhere, its files are linked, even for a warm-up, so that the replay
    does not depend on the original files.

    Rules: R9, R25, W63, X4
    """
    provenance = stored.Provenance.of(plan, 0)
    if plan.start.taken_from:
        assert plan.start.window is not None, "a state belongs to a window"
        source = Table.open(plan.start.table(config.state), plan.start.version)
        rows = stored.rows_at(source, plan.start.window)
        if plan.container:
            rows = rows.filter(pc.is_in(rows["operator"], pa.array(stateful_operators(app))))
        copied = stored.as_checkpoint(
            stored.copy_states(rows, source.path, table, place=stored.START), provenance
        )
        return _migrated(config, app, copied, table=table, made=provenance)
    stateful = stateful_operators(app)
    folder = folder_of(table)
    states = {}
    for name, operator in stateful.items():
        key = operator.state_key_columns()
        rows = operator.initial_state()
        place = f"0-0/{name}/{FIELD}"
        states[name] = write_state(
            rows,
            config.replay.inline_state_bytes,
            folder,
            place=place,
            key=key,
            buckets=operator.state_buckets,
        )
    versions = {name: operator.state_version for name, operator in stateful.items()}
    return stored.encode(plan.first - 1, 0, states, versions=versions, made=provenance)


def _migrated(
    config: Config,
    app: Application,
    rows: pa.Table,
    table: Location,
    made: stored.Provenance,
) -> pa.Table:
    """Converts states that another version of an operator has saved, and returns the rows of the
    start state.
    """
    states = []
    for row in rows.to_pylist():
        node = app.nodes.get(row["operator"])
        if node is None or row["schema_version"] == node.operator.state_version:
            states.append(row)
            continue
        operator = node.operator
        what = f"state at window {row['window_id']}"
        new = migrated(
            node.name,
            operator,
            row["schema_version"],
            rows=read_rows(stored.decode(row, table)),
            what=what,
        )
        if new is None:
            raise CheckpointError(
                f'{what}: operator "{node.name}" cannot convert version {row["schema_version"]}'
            )
        place = f"{stored.START}-migrated/{node.name}/{FIELD}"
        key = operator.state_key_columns()
        state = write_state(
            new,
            config.replay.inline_state_bytes,
            folder_of(table),
            place=place,
            key=key,
            buckets=operator.state_buckets,
        )
        versions = {node.name: operator.state_version}
        states += stored.encode(
            row["window_id"],
            row["mark"],
            {node.name: state},
            versions=versions,
            made=made,
        ).to_pylist()
    return pa.Table.from_pylist(states, schema=rows.schema)


def create_staging(root: Location, outputs: Mapping[str, pa.Schema], plan_json: str) -> None:
    """Creates every table of a replay. Existing tables are not changed."""
    properties = {"rewindow.plan": plan_json, **format_property(TableKind.CHECKPOINTS), **LOG_KEPT}
    for name, schema in outputs.items():
        create_staged(root / name, schema)
    create_table(root / FACTS, FACTS_SCHEMA, {**format_property(TableKind.FACTS), **LOG_KEPT})
    create_table(root / CHECKPOINTS, stored.SCHEMA, properties)
