"""Checkpoints: state frames as rows of a Delta table (docs/rules/windows_and_checkpoints.md section
6).

A small state is stored as an Arrow IPC stream in one cell, a large one in files that the row names;
the cell then holds its columns alone (`rewindow.state`). Either way all operators of a container
are saved in one commit, and reading a row runs no code. A row has the state's digest, which does
not depend on the form (X48).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import CheckpointError, InputError, TableError
from rewindow.json_files import reading_json
from rewindow.location import Location, location
from rewindow.recovery import OperatorVersion, Plan
from rewindow.state.files import FIELD, OperatorState, StateFiles, folder_of
from rewindow.state.row_hash import digest_text, row_sum
from rewindow.storage.delta import plain_schema
from rewindow.storage.failures import DAMAGE, plain_text, reading_table
from rewindow.storage.fence import Log
from rewindow.storage.log_gaps import restore_hint

STATE_BYTES_MAX = 1 << 30
START = "start"
"""Where the files of the state lie with which a replay begins, in the folder of its states."""
COMPRESSED_BYTES_MIN = 1 << 16
"""Smaller states are stored as they are: compressing one takes longer, in a thread of its own, than
it saves."""
SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("key_range", pa.string()),
        ("window_id", pa.int64()),
        ("mark", pa.int64()),
        ("schema_version", pa.int32()),
        ("rows", pa.int64()),
        ("digest", pa.string()),
        ("code_version", pa.string()),
        ("configuration_digest", pa.string()),
        ("upstream", pa.string()),
        ("attempt", pa.int64()),
        ("inputs", pa.string()),
        ("state", pa.binary()),
        ("field", pa.string()),
        ("files", pa.string()),
    ]
)


@dataclass(frozen=True)
class Provenance:
    """What made a state (W65): code, settings, attempt, and the tables that it was computed from.

    Attributes:
        versions: operator name to its version.
        inputs: input stream to the Delta id of its table.
    """

    versions: Mapping[str, OperatorVersion]
    attempt: int
    inputs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, attempt: int) -> Provenance:
        """Returns what makes the states of a planned replay in one of its attempts."""
        inputs = {entry.stream: entry.table_id for entry in plan.inputs}
        return cls(plan.versions, attempt, inputs)

    def columns(self, operator: str) -> dict[str, object]:
        """Returns the columns of an operator's row that have the provenance."""
        version = self.versions.get(operator, OperatorVersion())
        upstream = {}
        for name in version.upstream:
            upstream[name] = self.versions[name].pair
        return {
            "code_version": version.code_version,
            "configuration_digest": version.configuration_digest,
            "upstream": json.dumps(upstream, sort_keys=True),
            "attempt": self.attempt,
            "inputs": json.dumps(dict(self.inputs), sort_keys=True),
        }


@dataclass(frozen=True)
class Checkpoint:
    """The states of all stateful operators after a window's end.

    Attributes:
        mark: windows of the replay that the state has seen.
        states: operator name to its state.
    """

    window: int
    mark: int
    states: Mapping[str, OperatorState]


def encode(
    window: int,
    mark: int,
    states: Mapping[str, OperatorState],
    versions: Mapping[str, int],
    made: Provenance,
) -> pa.Table:
    """Returns the rows that store the states of all operators after a window.

    An application without state stores one row without an operator, so that a checkpoint always
    exists (W71).

    Raises:
        CheckpointError: a state is too large for one cell.
    """
    rows = []
    for name, state in sorted(states.items()):
        rows.append(_row(name, window, mark, state, versions[name], made))
    rows = rows or [_row("", window, mark, pa.table({}), 1, made)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(
    name: str,
    window: int,
    mark: int,
    state: OperatorState,
    version: int,
    made: Provenance,
) -> dict[str, object]:
    if isinstance(state, StateFiles):
        rows = state.rows
        digest = state.digest
        files = state.to_json()
        blob = _blob(state.schema.empty_table())
    else:
        rows = state.num_rows
        digest = frame_digest(state)
        files = None
        blob = _blob(state)
    if len(blob) > STATE_BYTES_MAX:
        raise CheckpointError(
            f'state of operator "{name}" takes {len(blob)} bytes, allowed in a cell are '
            f"{STATE_BYTES_MAX}",
            hint="Keep states in files from a smaller size on: setting replay.inline_state_bytes.",
        )
    return {
        "operator": name,
        "key_range": "all",
        "window_id": window,
        "mark": mark,
        "schema_version": version,
        "rows": rows,
        "digest": digest,
        "state": blob,
        "field": FIELD if name else None,
        "files": files,
        **made.columns(name),
    }


def _blob(frame: pa.Table) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(
        compression="zstd" if frame.nbytes > COMPRESSED_BYTES_MIN else None
    )
    with pa.ipc.new_stream(sink, frame.schema, options=options) as writer:
        writer.write_table(frame)
    return sink.getvalue()


def decode(row: Mapping[str, object], table: Location) -> OperatorState:
    """Returns the state of a stored row, once all of it has been held against its digest.

    Args:
        row: a stored row.
        table: the table that it comes from; files of states lie beside it.

    Raises:
        CheckpointError: it is damaged: not Arrow, another digest, or a file of it is gone.
        ResourceError: the machine could not read a file that may be whole.
    """
    state = _undecoded(row, table)
    try:
        if isinstance(state, StateFiles):
            state.check()
        digest = state.digest if isinstance(state, StateFiles) else frame_digest(state)
        if digest != row["digest"]:
            raise CheckpointError("its digest differs")
    except (CheckpointError, InputError) as error:  # No state has a type without a hash.
        raise _damaged(row, table, error.primary, error.detail) from error
    except DAMAGE as error:
        raise _damaged(row, table, "its state cannot be read", plain_text(error)) from error
    return state


def schema_of(row: Mapping[str, object]) -> pa.Schema:
    """Returns the columns of a stored row's state.

    Raises:
        CheckpointError: the row is damaged.
    """
    return _frame(row, location("")).schema


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Returns columns as a state has them: of plain types, and each may be null, whatever a cell
    has, since no digest covers that.
    """
    return pa.schema([column.with_nullable(True) for column in plain_schema(schema)])


def _undecoded(row: Mapping[str, object], table: Location) -> OperatorState:
    frame = _frame(row, table)
    if not row.get("files"):
        return frame
    try:
        return StateFiles.from_json(
            str(row["files"]),
            folder_of(table),
            frame.schema,
            int(str(row["rows"])),
        )
    except (TypeError, ValueError, LookupError) as error:
        raise _damaged(row, table, "it names no files that it could", str(error)) from error


def _frame(row: Mapping[str, object], table: Location) -> pa.Table:
    """Returns what the cell of a stored row holds: a state, or the columns of one that lies in
    files.
    """
    try:
        frame = pa.ipc.open_stream(row["state"]).read_all()
        frame.validate(full=True)  # Offsets that were changed would be followed out of the buffers.
        return frame.cast(stored_columns(frame.schema))
    except (*DAMAGE, TypeError, AttributeError) as error:
        raise _damaged(row, table, "its state cannot be read", plain_text(error)) from error


def _damaged(row: Mapping[str, object], table: Location, why: str, detail: str) -> CheckpointError:
    return CheckpointError(
        f"{_name(row)} is damaged: {why}",
        detail=f"{detail.rstrip('.')}. It is in table {table}." if detail else "",
        hint=restore_hint(table),
    )


def _name(row: Mapping[str, object]) -> str:
    return f'checkpoint of operator "{row["operator"]}" at window {row["window_id"]}'


def marks(table: Log) -> list[int]:
    """Returns the marks at which the table has checkpoints, ascending; a file that is damaged or
    gone has none.

    Raises:
        ResourceError: the machine could not read a file that may be whole.
    """
    return [mark for mark in _all_marks(table) if mark >= 0]


def warm_up_marks(table: Log) -> list[int]:
    """Returns the marks of a warm-up's checkpoints, ascending: they lie before the range, so they
    are below zero.
    """
    return [mark for mark in _all_marks(table) if mark < 0]


def _all_marks(table: Log) -> list[int]:
    found: set[int] = set()
    for rows in _parts(table, ["mark"]):
        found.update(rows["mark"].to_pylist())
    return sorted(found)


def state_leaves(table: Log) -> set[str]:
    """Returns the folders of all files of states that the table's checkpoints name."""
    return leaves_of(_parts(table, ["files"]))


def leaves_of(parts: Iterable[pa.Table]) -> set[str]:
    """Returns the folders of all files of states that stored rows name."""
    texts: set[str] = set()
    for rows in parts:
        texts.update(rows["files"].drop_null().to_pylist())
    leaves: set[str] = set()
    for text in texts:
        leaves |= StateFiles.from_json(text, location(""), pa.schema([]), 0).leaves
    return leaves


def load(table: Log, mark: int) -> Checkpoint:
    """Returns the checkpoint at a mark, of the newest attempt that saved it (X33).

    Raises:
        CheckpointError: it is not there, or damaged.
        ResourceError: the machine could not read a file that may be whole.
    """
    rows: list[dict[str, object]] = []
    for part in _parts(table, SCHEMA.names):
        rows += part.filter(pc.equal(part["mark"], mark)).to_pylist()
    if not rows:
        raise CheckpointError(
            f'checkpoint not found at mark {mark} in table "{table.path.parent.name}"',
            hint=restore_hint(table.path),
        )
    newest = max(int(str(row["attempt"])) for row in rows)
    states = {}
    for row in rows:
        # The row without an operator stands for an application without state.
        if row["attempt"] == newest and row["operator"]:
            states[str(row["operator"])] = decode(row, table.path)
    return Checkpoint(int(str(rows[0]["window_id"])), mark, states)


def rows_at(table: Log, window: int) -> pa.Table:
    """Returns the stored rows, state included, of the newest attempt at a window; no rows when
    there is none.
    """
    parts = [part.filter(pc.equal(part["window_id"], window)) for part in stored_rows(table)]
    rows = pa.concat_tables([SCHEMA.empty_table(), *parts])
    return (
        rows.filter(pc.equal(rows["attempt"], pc.max(rows["attempt"]))) if rows.num_rows else rows
    )


def stored_rows(table: Log) -> Iterable[pa.Table]:
    """Returns all stored rows, file by file."""
    return _parts(table, SCHEMA.names)


def brought(
    rows: pa.Table,
    source: Location,
    target: Location,
    place: str,
) -> pa.Table:
    """Returns stored rows as another table of checkpoints may hold them; the files of their states
    then lie beside it.

    Args:
        rows: stored rows of the table `source`.
        source: folder of the table that they come from.
        target: folder of the table that they are for.
        place: where the files go, in the folder of the target's states; bringing them again changes
            nothing.

    Raises:
        CheckpointError: a state is damaged.
    """
    files: list[str | None] = []
    for row in rows.to_pylist():
        state = _undecoded(row, source)
        in_files = isinstance(state, StateFiles)
        files.append(state.copied_to(folder_of(target), place).to_json() if in_files else None)
    moved = rows.set_column(
        SCHEMA.get_field_index("files"),
        SCHEMA.field("files"),
        pa.array(files, pa.string()),
    )
    check(moved, target)
    return moved


def check(rows: pa.Table, table: Location) -> None:
    """Reads the states of stored rows, and holds them against their digests.

    Raises:
        CheckpointError: a state is damaged.
        ResourceError: the machine could not read a file that may be whole.
    """
    for row in rows.to_pylist():
        decode(row, table)


def check_there(rows: pa.Table, table: Location) -> None:
    """Makes sure that the files of the states of stored rows are there.

    Raises:
        CheckpointError: a file is gone.
    """
    for row in rows.to_pylist():
        state = _undecoded(row, table)
        for path in state.all_paths() if isinstance(state, StateFiles) else ():
            if not path.is_file():
                raise _damaged(row, table, "a file of its state is gone", path.uri)


def as_checkpoint(rows: pa.Table, made: Provenance, mark: int = 0) -> pa.Table:
    """Returns stored rows as a checkpoint of another replay, by default as its start state (mark
    0).
    """
    found = []
    for row in rows.to_pylist():
        found.append({**row, "mark": mark, **made.columns(row["operator"])})
    return pa.Table.from_pylist(found, schema=SCHEMA)


def other_versions(
    rows: Iterable[Mapping[str, Any]],
    versions: Mapping[str, OperatorVersion],
    what: str,
) -> set[str]:
    """Returns the operators of which another version made the states of stored rows.

    Operators with state and those upstream of them are compared.

    Args:
        rows: stored rows of a window.
        versions: operator name to its current version.
        what: text that names the states in an error, with an article.

    Raises:
        CheckpointError: the versions of a row are damaged.
    """
    found: set[str] = set()
    for row in rows:
        name = row["operator"]
        with reading_json(what, "versions of", "Put the checkpoints back from a copy."):
            made = json.loads(row["upstream"])
        if not name:
            continue
        made[name] = [row["code_version"], row["configuration_digest"]]
        upstream = versions[name].upstream if name in versions else []
        # Operators that were added or removed upstream are in one of the two only.
        for other in {*made, *upstream}:
            now = versions.get(other)
            if now is None or made.get(other) != now.pair:
                found.add(other)
    return found


def check_inputs(rows: pa.Table, tables: Mapping[str, str], what: str) -> None:
    """Refuses a state that was computed from other tables than those that an application now reads.

    A stream that was deleted and recorded again is another stream, although it has the same name.

    Args:
        rows: stored rows of a window.
        tables: input stream to the Delta id of its table now.
        what: names the state in the error, with its article.

    Raises:
        CheckpointError: names the stream and both tables.
    """
    for text in pc.unique(rows["inputs"]).to_pylist():
        with reading_json(what, "list of inputs of", "Put the checkpoints back from a copy."):
            made_from = json.loads(text)
        for stream, table_id in tables.items():
            before = made_from.get(stream, table_id)
            if before != table_id:
                raise CheckpointError(
                    f'{what} was computed from another table of stream "{stream}" than the one '
                    "that is there",
                    detail=f"It was computed from table {before}, the stream is now table "
                    f"{table_id}: it was deleted "
                    "and recorded again.",
                    hint="Replay from the first sealed window of the stream on and publish that, "
                    "or pass "
                    "--initial-state, which starts without what happened before.",
                )


def state_digest(rows: pa.Table) -> str:
    """Returns one digest over the states of all operators at a window, from their stored rows."""
    pairs = sorted(zip(rows["operator"].to_pylist(), rows["digest"].to_pylist(), strict=True))
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:32]


def _parts(table: Log, columns: list[str]) -> Iterable[pa.Table]:
    """Reads the table's files; those that are damaged or gone are passed over, those that may be
    whole never (R25).
    """
    for file in table.files():
        with suppress(TableError), reading_table(table.path):
            rows = table.read(file, columns).select(columns)
            yield rows.cast(pa.schema(list(map(SCHEMA.field, columns))))


def frame_digest(frame: pa.Table) -> str:
    """Returns the digest of a state in memory: of its rows as a multiset, whatever their order and
    its columns'.

    >>> frame_digest(pa.table({"a": [1, 2]})) == frame_digest(pa.table({"a": [2, 1]}))
    True
    """
    frame = frame.cast(stored_columns(frame.schema))
    return digest_text(frame.schema, frame.num_rows, row_sum(frame))
