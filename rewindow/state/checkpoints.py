"""Checkpoints: operator states as rows of a Delta table (docs/rules/windows_and_checkpoints.md
section 6).

A small state is stored as an Arrow IPC stream in one cell. A large one is stored in files that the
row names, and the cell contains only its columns (`rewindow.state`). Either way all operators of a
container are saved in one commit, and reading a row executes no stored code. A row contains the
state's digest, which is independent of the form.

Rules: X48
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
"""Subfolder, in the folder of a replay's states, for the files of its start state."""
COMPRESSED_BYTES_MIN = 1 << 16
"""Smaller states are not compressed: the compression, which uses a separate thread, would take
longer than it saves."""
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
    """The origin of a state: code, settings, attempt, and input tables.

    Attributes:
        versions: operator name to its version.
        inputs: input stream to the Delta id of its table.

    Rules: W65
    """

    versions: Mapping[str, OperatorVersion]
    attempt: int
    inputs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, attempt: int) -> Provenance:
        """Returns the provenance of states that an attempt of a planned replay computes."""
        inputs = {entry.stream: entry.table_id for entry in plan.inputs}
        return cls(plan.versions, attempt, inputs)

    def columns(self, operator: str) -> dict[str, object]:
        """Returns the provenance as columns of an operator's row."""
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
    """The states of all stateful operators after the end of a window.

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
    exists.

    Args:
        window: the window.
        mark: its mark in the replay.
        states: operator name to its state.
        versions: operator name to the version of its state's schema.
        made: origin of the states.

    Raises:
        CheckpointError: a state is too large for one cell.

    Rules: W71
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
            f'state of operator "{name}" has {len(blob)} bytes, but a cell can have at most '
            f"{STATE_BYTES_MAX}",
            hint="Reduce replay.inline_state_bytes, so that larger states are stored in files.",
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
    """Checks a stored row's state against its digest and returns the state.

    Args:
        row: a stored row.
        table: the table that contains the row; files of states are next to it.

    Raises:
        CheckpointError: the state is damaged: it is not Arrow, has another digest, or a file is
            missing.
        ResourceError: a file could not be read, but may be intact.
    """
    state = _undecoded(row, table)
    try:
        if isinstance(state, StateFiles):
            state.check()
        digest = state.digest if isinstance(state, StateFiles) else frame_digest(state)
        if digest != row["digest"]:
            raise CheckpointError("its digest differs")
    except (CheckpointError, InputError) as error:  # InputError: the type cannot be hashed.
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
    """Returns the columns of a state with plain, nullable types.

    A damaged cell may declare other columns, because the digest does not cover nullability.
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
        raise _damaged(row, table, "its list of files cannot be read", str(error)) from error


def _frame(row: Mapping[str, object], table: Location) -> pa.Table:
    """Returns the content of a stored row's cell.

    It is a state, or an empty table with the columns of a state that is stored in files.
    """
    try:
        frame = pa.ipc.open_stream(row["state"]).read_all()
        frame.validate(full=True)  # A damaged offset could point outside of its buffer.
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
    """Returns the marks of the table's checkpoints in ascending order.

    Damaged or missing files are ignored.

    Raises:
        ResourceError: a file could not be read, but may be intact.
    """
    return [mark for mark in _all_marks(table) if mark >= 0]


def warm_up_marks(table: Log) -> list[int]:
    """Returns the marks of a warm-up's checkpoints in ascending order.

    They are negative, because a warm-up is before the range.
    """
    return [mark for mark in _all_marks(table) if mark < 0]


def _all_marks(table: Log) -> list[int]:
    marks: set[int] = set()
    for rows in _parts(table, ["mark"]):
        marks.update(rows["mark"].to_pylist())
    return sorted(marks)


def state_leaves(table: Log) -> set[str]:
    """Returns the folders of all state files that the table's checkpoints name."""
    return leaves_of(_parts(table, ["files"]))


def leaves_of(parts: Iterable[pa.Table]) -> set[str]:
    """Returns the folders of all state files that stored rows name."""
    texts: set[str] = set()
    for rows in parts:
        texts.update(rows["files"].drop_null().to_pylist())
    leaves: set[str] = set()
    for text in texts:
        leaves |= StateFiles.from_json(text, location(""), pa.schema([]), 0).leaves
    return leaves


def load(table: Log, mark: int) -> Checkpoint:
    """Returns the checkpoint at a mark, from the newest attempt that saved it.

    Raises:
        CheckpointError: the checkpoint is missing or damaged.
        ResourceError: a file could not be read, but may be intact.

    Rules: X33
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
    """Returns the stored rows at a window from the newest attempt, including states.

    If there are none, returns an empty table.
    """
    parts = [part.filter(pc.equal(part["window_id"], window)) for part in stored_rows(table)]
    rows = pa.concat_tables([SCHEMA.empty_table(), *parts])
    return (
        rows.filter(pc.equal(rows["attempt"], pc.max(rows["attempt"]))) if rows.num_rows else rows
    )


def stored_rows(table: Log) -> Iterable[pa.Table]:
    """Returns all stored rows, one table per file."""
    return _parts(table, SCHEMA.names)


def copy_states(
    rows: pa.Table,
    source: Location,
    target: Location,
    place: str,
) -> pa.Table:
    """Copies stored rows for another table of checkpoints.

    It links or copies the files of their states, and returns rows with the new paths.

    Args:
        rows: stored rows of the table `source`.
        source: folder of the table that contains the rows.
        target: folder of the table that receives the rows.
        place: subfolder for the files, in the folder of the target's states. Repeating the call has
            no further effect.

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
    """Reads the states of stored rows and compares them with their digests.

    Raises:
        CheckpointError: a state is damaged.
        ResourceError: a file could not be read, but may be intact.
    """
    for row in rows.to_pylist():
        decode(row, table)


def check_there(rows: pa.Table, table: Location) -> None:
    """Checks that the state files of stored rows exist.

    Raises:
        CheckpointError: a file is missing.
    """
    for row in rows.to_pylist():
        state = _undecoded(row, table)
        for path in state.all_paths() if isinstance(state, StateFiles) else ():
            if not path.is_file():
                raise _damaged(row, table, "a file of its state is missing", path.uri)


def as_checkpoint(rows: pa.Table, made: Provenance, mark: int = 0) -> pa.Table:
    """Returns stored rows as a checkpoint of another replay, with the provenance of that replay.

    By default, it is the start state (mark 0).
    """
    checkpoint = []
    for row in rows.to_pylist():
        checkpoint.append({**row, "mark": mark, **made.columns(row["operator"])})
    return pa.Table.from_pylist(checkpoint, schema=SCHEMA)


def other_versions(
    rows: Iterable[Mapping[str, Any]],
    versions: Mapping[str, OperatorVersion],
    what: str,
) -> set[str]:
    """Returns the operators whose version differs from the version that computed the states of
    stored rows.

    Operators with state and the operators upstream of them are compared.

    Args:
        rows: stored rows of a window.
        versions: operator name to its current version.
        what: description of the states for an error, with an article.

    Raises:
        CheckpointError: the versions of a row are damaged.
    """
    changed: set[str] = set()
    for row in rows:
        name = row["operator"]
        with reading_json(what, "versions of", "Restore the checkpoints from a backup."):
            stored_versions = json.loads(row["upstream"])
        if not name:
            continue
        stored_versions[name] = [row["code_version"], row["configuration_digest"]]
        upstream = versions[name].upstream if name in versions else []
        # Operators that were added or removed upstream are in one of the two only.
        for other in {*stored_versions, *upstream}:
            now = versions.get(other)
            if now is None or stored_versions.get(other) != now.pair:
                changed.add(other)
    return changed


def check_inputs(rows: pa.Table, tables: Mapping[str, str], what: str) -> None:
    """Checks that a state was computed from the same tables that the application reads now.

    A stream that was deleted and recorded again is another stream, although it has the same name.

    Args:
        rows: stored rows of a window.
        tables: input stream to the current Delta id of its table.
        what: description of the state for the error, with an article.

    Raises:
        CheckpointError: a table differs; the message names the stream and both tables.
    """
    for text in pc.unique(rows["inputs"]).to_pylist():
        with reading_json(what, "list of inputs of", "Restore the checkpoints from a backup."):
            made_from = json.loads(text)
        for stream, table_id in tables.items():
            before = made_from.get(stream, table_id)
            if before != table_id:
                raise CheckpointError(
                    f'{what} was computed from another table of stream "{stream}", not from the '
                    "current one",
                    detail=f"The state was computed from table {before}. The stream is now table "
                    f"{table_id}: it was deleted and recorded again.",
                    hint="Replay from the first sealed window of the stream and publish the "
                    "result, or pass --initial-state to start without the earlier windows.",
                )


def state_digest(rows: pa.Table) -> str:
    """Returns one digest of the states of all operators at a window, from their stored rows."""
    pairs = sorted(zip(rows["operator"].to_pylist(), rows["digest"].to_pylist(), strict=True))
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:32]


def _parts(table: Log, columns: list[str]) -> Iterable[pa.Table]:
    """Yields columns of the table's rows, file by file.

    Damaged or missing files are skipped. A file that may be intact raises an error instead.

    Rules: R25
    """
    for file in table.files():
        with suppress(TableError), reading_table(table.path):
            rows = table.read(file, columns).select(columns)
            yield rows.cast(pa.schema(list(map(SCHEMA.field, columns))))


def frame_digest(frame: pa.Table) -> str:
    """Returns the digest of a state in memory, independent of the order of its rows and columns.

    >>> frame_digest(pa.table({"a": [1, 2]})) == frame_digest(pa.table({"a": [2, 1]}))
    True
    """
    frame = frame.cast(stored_columns(frame.schema))
    return digest_text(frame.schema, frame.num_rows, row_sum(frame))
