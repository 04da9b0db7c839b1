"""Checkpoints: state frames as rows of a Delta table (docs/rules/windows_and_checkpoints.md section 6).

A state frame is stored as an Arrow IPC stream in one cell, with its digest, so that all operators of a container
are saved in one commit and reading one runs no code. A state must fit into the driver's memory.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import CheckpointError
from rewindow.recovery import Plan
from rewindow.storage.delta import plain_schema
from rewindow.storage.failures import may_be_whole, table_failure
from rewindow.storage.fence import Log

STATE_BYTES_MAX = 1 << 30
COMPRESSED_BYTES_MIN = 1 << 16
"""Smaller states are stored as they are: compressing one takes longer, in a thread of its own, than it saves."""
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
        ("attempt", pa.int64()),
        ("inputs", pa.string()),
        ("state", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Provenance:
    """What made a state (W65): code, settings, attempt, and the tables that it was computed from.

    Attributes:
        inputs: input stream to the Delta id of its table.
    """

    code_version: str
    configuration_digest: str
    attempt: int
    inputs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, attempt: int) -> Provenance:
        """Returns what makes the states of a planned replay in one of its attempts."""
        inputs = {entry.stream: entry.table_id for entry in plan.inputs}
        return cls(plan.code_version, plan.configuration_digest, attempt, inputs)


@dataclass(frozen=True)
class Checkpoint:
    """The states of all stateful operators after a window's end.

    Attributes:
        mark: windows of the replay that the state has seen.
        states: operator name to its state frame.
    """

    window: int
    mark: int
    states: Mapping[str, pa.Table]


def encode(
    window: int, mark: int, states: Mapping[str, pa.Table], versions: Mapping[str, int], made: Provenance
) -> pa.Table:
    """Returns the rows that store the states of all operators after a window.

    An application without state stores one row without an operator, so that a checkpoint always exists (W71).

    Raises:
        CheckpointError: a state is too large for one cell.
    """
    rows = [_row(name, window, mark, frame, versions[name], made) for name, frame in sorted(states.items())]
    rows = rows or [_row("", window, mark, pa.table({}), 1, made)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(name: str, window: int, mark: int, frame: pa.Table, version: int, made: Provenance) -> dict[str, object]:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if frame.nbytes > COMPRESSED_BYTES_MIN else None)
    with pa.ipc.new_stream(sink, frame.schema, options=options) as writer:
        writer.write_table(frame)
    blob = sink.getvalue()
    if len(blob) > STATE_BYTES_MAX:
        raise CheckpointError(
            f'state of operator "{name}" takes {len(blob)} bytes, allowed are {STATE_BYTES_MAX}',
            hint="Keep less per key, or fewer keys, in the state.",
        )
    return {
        "operator": name, "key_range": "all", "window_id": window, "mark": mark, "schema_version": version,
        "rows": frame.num_rows, "digest": frame_digest(frame), "code_version": made.code_version,
        "configuration_digest": made.configuration_digest, "attempt": made.attempt,
        "inputs": json.dumps(dict(made.inputs), sort_keys=True), "state": blob,
    }  # fmt: skip


def decode(row: Mapping[str, object]) -> pa.Table:
    """Returns the state frame of a stored row.

    Raises:
        CheckpointError: the bytes are damaged: not Arrow, or another digest.
    """
    name = f'checkpoint of operator "{row["operator"]}" at window {row["window_id"]}'
    try:
        frame = pa.ipc.open_stream(row["state"]).read_all()
    except (pa.ArrowException, OSError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{name} is damaged: its state cannot be read", detail=str(error)) from error
    if frame_digest(frame) != row["digest"]:
        raise CheckpointError(f"{name} is damaged: its digest differs")
    return frame


def marks(table: Log) -> list[int]:
    """Returns the marks at which the table has checkpoints, ascending; a file that is damaged or gone has none.

    Raises:
        ResourceError: the machine could not read a file that may be whole.
    """
    return [mark for mark in _all_marks(table) if mark >= 0]


def warm_up_marks(table: Log) -> list[int]:
    """Returns the marks of a warm-up's checkpoints, ascending: they lie before the range, so they are below zero."""
    return [mark for mark in _all_marks(table) if mark < 0]


def _all_marks(table: Log) -> list[int]:
    found: set[int] = set()
    for rows in _parts(table, ["mark"]):
        found.update(rows["mark"].to_pylist())
    return sorted(found)


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
        raise CheckpointError(f'checkpoint not found at mark {mark} in table "{table.path.parent.name}"')
    newest = max(int(str(row["attempt"])) for row in rows)
    states = {str(row["operator"]): decode(row) for row in rows if row["attempt"] == newest and row["operator"]}
    return Checkpoint(int(str(rows[0]["window_id"])), mark, states)


def rows_at(table: Log, window: int) -> pa.Table:
    """Returns the stored rows, state included, of the newest attempt at a window; no rows when there is none."""
    parts = [part.filter(pc.equal(part["window_id"], window)) for part in _parts(table, SCHEMA.names)]
    rows = pa.concat_tables([SCHEMA.empty_table(), *parts])
    return rows.filter(pc.equal(rows["attempt"], pc.max(rows["attempt"]))) if rows.num_rows else rows


def check_inputs(rows: pa.Table, tables: Mapping[str, str], what: str) -> None:
    """Refuses a state that was computed from other tables than those that an application now reads.

    A stream that was deleted and recorded again is another stream, although it has the same name. What an older
    version of Rewindow has published does not say which tables it came from, and is believed.

    Args:
        rows: stored rows of a window.
        tables: input stream to the Delta id of its table now.
        what: names the state in the error, with its article.

    Raises:
        CheckpointError: names the stream and both tables.
    """
    for text in pc.unique(rows["inputs"]).to_pylist():
        made_from = json.loads(text) if text else {}
        for stream, table_id in tables.items():
            before = made_from.get(stream) or table_id
            if before != table_id:
                raise CheckpointError(
                    f'{what} was computed from another table of stream "{stream}" than the one that is there',
                    detail=f"It was computed from table {before}, the stream is now table {table_id}: it was deleted "
                    "and recorded again.",
                    hint="Replay from the first sealed window of the stream on and publish that, or pass "
                    "--initial-state, which starts without what happened before.",
                )


def state_digest(rows: pa.Table) -> str:
    """Returns one digest over the states of all operators at a window, from their stored rows."""
    pairs = sorted(zip(rows["operator"].to_pylist(), rows["digest"].to_pylist(), strict=True))
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:32]


def _parts(table: Log, columns: list[str]) -> Iterable[pa.Table]:
    """Reads the table's files; those that are damaged or gone are passed over, those that may be whole never (R25)."""
    for file in table.files():
        try:
            yield _completed(table.read(file, columns), columns)
        except (OSError, pa.ArrowException) as error:
            if may_be_whole(error):
                primary = f'checkpoints of replay "{table.path.parent.name}" cannot be read'
                raise table_failure(primary, error) from error


def _completed(rows: pa.Table, columns: list[str]) -> pa.Table:
    """Returns stored rows in the present schema; columns that an older version did not write are null."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    for column in schema:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows.select(columns).cast(schema)


def frame_digest(frame: pa.Table) -> str:
    """Returns a digest of a frame's rows as a multiset: column order, row order and chunks do not matter.

    >>> frame_digest(pa.table({"a": [1, 2]})) == frame_digest(pa.table({"a": [2, 1]}))
    True
    """
    names = sorted(frame.column_names)
    frame = pa.table([frame[name] for name in names], names=names)
    frame = frame.cast(plain_schema(frame.schema))
    digest = hashlib.sha256(str([(field.name, str(field.type)) for field in frame.schema]).encode())
    digest.update(str(frame.num_rows).encode())
    if frame.num_rows and names:
        if any(pa.types.is_nested(field.type) for field in frame.schema):
            for row in sorted(repr(sorted(row.items())) for row in frame.to_pylist()):
                digest.update(row.encode())
        else:
            order = pc.sort_indices(frame, sort_keys=[(name, "ascending") for name in names])
            for name in names:
                _update(digest, frame[name].take(order).combine_chunks())
    return digest.hexdigest()[:32]


def _update(digest: hashlib._Hash, column: pa.Array | pa.ChunkedArray) -> None:
    """Feeds a flat column: its null bitmap, then its values with a fixed filling for nulls."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    digest.update(pc.cast(pc.is_null(column), pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_decimal(kind):
        column = pc.cast(column, pa.string())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64()) if kind.bit_width == 64 else column.view(pa.int32())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0)
        digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
        for value in column.drop_null().cast(pa.binary()).to_pylist():
            digest.update(value)
    elif not pa.types.is_null(column.type):
        digest.update(pc.fill_null(column, 0).to_numpy(zero_copy_only=False).tobytes())
