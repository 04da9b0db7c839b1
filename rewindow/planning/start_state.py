"""Chooses the state with which a replay starts.

It is the state after the window before the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rewindow.application import Application, FrameOperator
from rewindow.engine.ports import stateful_operators
from rewindow.errors import CheckpointError, InputError
from rewindow.ledger import Ledger
from rewindow.loading.catalog import LoadedApplication
from rewindow.location import Location
from rewindow.planning.request import ReplayRequest
from rewindow.planning.start_flaws import with_flaws
from rewindow.recovery import OperatorVersion, StartState, path_in
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, query
from rewindow.storage.delta import plain_schema
from rewindow.storage.formats import TableKind, check_format
from rewindow.storage.layout import CHECKPOINTS, check_replay_format
from rewindow.windows import WindowRange

_MADE_BY = "window_id, operator, code_version, configuration_digest, upstream"
"""Columns of a checkpoint with the versions of the operators that computed a state."""


def find_start_state(
    config: Config,
    loaded: LoadedApplication,
    windows: WindowRange,
    first_sealed: int,
    request: ReplayRequest,
    tables: Mapping[str, str],
) -> StartState:
    """Returns the start state of a range.

    In this order of preference: none for an application without state; the state of --state-from or
    --initial-state; the initial state at the first window that all inputs have sealed; the
    published checkpoint at the window before the range; a warm-up from the newest earlier published
    checkpoint, or from the very first window.

    Args:
        config: current settings.
        loaded: the application.
        windows: the range.
        first_sealed: first window that all inputs have sealed.
        request: the request.
        tables: input stream to the Delta id of its table.

    Raises:
        CheckpointError: --state-from names a replay without a checkpoint at the window before the
            range, or one of other code; the state was computed from another table of an input.
    """
    before = windows.first - 1
    versions = loaded.versions(request.checkpoint_windows)
    if not stateful_operators(loaded.app):
        return StartState(source="none", window=before)
    if request.state_from and request.initial_state:
        raise InputError("--state-from and --initial-state exclude each other")
    if request.state_from:
        return _of_replay(
            config,
            loaded,
            request.state_from,
            versions,
            before=before,
            allow_other_code=request.allow_other_code,
            tables=tables,
        )
    if request.initial_state or windows.first <= first_sealed:
        return StartState(source="initial", window=before)
    published = config.checkpoints_table(loaded.app.name)
    taken_from = path_in(config.state, published)
    earlier, others = newest_published(published, loaded.app, versions, before)
    if earlier == before:
        table = Table.open(published)
        rows = stored.rows_at(table, before)
        stored.check_inputs(rows, tables, f"the published state at window {before}")
        digest = stored.state_digest(rows)
        start = StartState(
            source="published",
            window=before,
            taken_from=taken_from,
            version=table.version,
            digest=digest,
        )
        return with_flaws(
            config,
            loaded.app.name,
            start,
        )
    if earlier is not None and earlier >= first_sealed:
        table = Table.open(published)
        rows = stored.rows_at(table, earlier)
        stored.check_inputs(rows, tables, f"the published state at window {earlier}")
        start = StartState(
            source="warm_up",
            window=earlier,
            taken_from=taken_from,
            version=table.version,
            warm_up_first=earlier + 1,
            other_versions=others,
        )
        return with_flaws(
            config,
            loaded.app.name,
            start,
        )
    return StartState(
        source="warm_up",
        window=first_sealed - 1,
        warm_up_first=first_sealed,
        other_versions=others,
    )


def newest_published(
    path: Location,
    app: Application,
    versions: Mapping[str, OperatorVersion],
    before: int,
) -> tuple[int | None, list[str]]:
    """Returns the window of the newest published state, up to `before`, that was computed by the
    given versions of the operators.

    Only operators with state and the operators upstream of them are compared. The second value
    lists the operators for which another version has computed a newer state.
    """
    if not Table.exists(path):
        return None, []
    table = check_format(Table.open(path), TableKind.STATES)
    sql = f"select {_MADE_BY} from c where window_id <= {before} order by window_id desc"
    others: list[str] = []
    rows = query(sql, c=table).to_pylist()
    for window, states in groupby(rows, itemgetter("window_id")):
        changed = _other_versions(states, app, versions, "a published state")
        if not changed:
            return window, others
        # Reports the operators of the newest state, which a user would expect to be used.
        if not others:
            others = changed
    return None, others


def _other_versions(
    rows: Iterable[Mapping[str, Any]],
    app: Application,
    versions: Mapping[str, OperatorVersion],
    what: str,
) -> list[str]:
    """Returns the operators for which another version has computed the states of a window.

    Operators with state whose state is missing are included.
    """
    saved = list(rows)
    changed = stored.other_versions(
        saved,
        versions,
        what,
    )
    missing = set(stateful_operators(app))
    for row in saved:
        missing.discard(row["operator"])
    return sorted(missing | changed)


def _of_replay(
    config: Config,
    loaded: LoadedApplication,
    replay_id: str,
    versions: Mapping[str, OperatorVersion],
    before: int,
    allow_other_code: bool,
    tables: Mapping[str, str],
) -> StartState:
    if Ledger.open(config.ledger_url).replays.get(replay_id).plan.get("candidate"):
        raise CheckpointError(
            f'replay "{replay_id}" is a candidate: no other replay can start with its state',
            hint="Start with the state of a replay that may be published, or with --initial-state.",
        )
    check_replay_format(config.replay_root(replay_id))
    table = Table.open(config.replay_root(replay_id) / CHECKPOINTS)
    rows = stored.rows_at(table, before)
    if not rows.num_rows:
        raise CheckpointError(
            f'replay "{replay_id}" has no checkpoint at window {before}',
            hint="A range starts from the state at the window before it; choose the range or the "
            "replay accordingly.",
        )
    what = f'checkpoint of replay "{replay_id}" at window {before}'
    others = _other_versions(rows.to_pylist(), loaded.app, versions, what)
    if others and not allow_other_code:
        raise CheckpointError(
            f"{what} was computed by another version of {_listed(others)}",
            detail="A state depends on the code and the configuration of its operator and of all "
            "operators upstream.",
            hint="Pass --allow-other-code if the state is still valid; this is stored with the "
            "replay.",
        )
    _check_fits(
        rows,
        loaded.app,
        what,
    )
    stored.check_inputs(rows, tables, f'the state of replay "{replay_id}" at window {before}')
    digest = stored.state_digest(rows)
    taken_from = path_in(config.state, table.path)
    start = StartState(
        source="replay",
        window=before,
        taken_from=taken_from,
        version=table.version,
        digest=digest,
    )
    return with_flaws(
        config,
        loaded.app.name,
        start,
        source=replay_id,
    )


def _check_fits(
    rows: pa.Table,
    app: Application,
    what: str,
) -> None:
    """Checks that an application's operators can continue from the given states, whatever code is
    allowed.

    Rules: W65
    """
    by_operator = {row["operator"]: row for row in rows.to_pylist() if row["operator"]}
    wanted = stateful_operators(app)
    if by_operator.keys() != wanted.keys():
        raise CheckpointError(
            f"{what} has the states of {_listed(by_operator)}, but the application needs "
            f"{_listed(wanted)}",
            hint="Start the range from the initial state or a warm-up, or restore the operators' "
            "names.",
        )
    for name, operator in wanted.items():
        have = stored.schema_of(by_operator[name])
        needed = operator.state_columns()
        version = by_operator[name]["schema_version"]
        fits = version == operator.state_version and have.equals(stored.stored_columns(needed))
        if (
            not fits
            and migrated(name, operator, version, rows=have.empty_table(), what=what) is None
        ):
            raise CheckpointError(
                f'{what}: state of operator "{name}" has version {version} with '
                f"{_columns(have)}, but the operator needs version {operator.state_version} with "
                f"{_columns(needed)}",
                hint="Start the range from the initial state or a warm-up, restore the fields of "
                "the operator's state, or define migrate_state.",
            )


def migrated(
    name: str,
    operator: FrameOperator,
    version: int,
    rows: pa.Table,
    what: str,
) -> pa.Table | None:
    """Converts a state of another version with the operator's `migrate_state`; returns None if that
    is not possible.

    Raises:
        CheckpointError: its code fails, or its result has other columns than its state.
    """
    if version == operator.state_version:
        return None
    try:
        converted = operator.migrate_state(version, rows)
    except Exception as error:
        raise CheckpointError(
            f'{what}: migrate_state of operator "{name}" failed: {type(error).__name__}: {error}',
            hint="Correct it; nothing was created.",
        ) from error
    needed = operator.state_columns()
    if converted is not None and (
        needed is None or not plain_schema(converted.schema).equals(plain_schema(needed))
    ):
        raise CheckpointError(
            f'{what}: migrate_state of operator "{name}" returned {_columns(converted.schema)}',
            detail=f"Its state has {_columns(needed or pa.schema([]))}.",
        )
    return converted


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no operator"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
