"""Delivers an output: writes only the published windows that differ from those at a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from rewindow.delivery.progress_file import ProgressFile
from rewindow.delivery.target import AT_LEAST_ONCE, RejectedRow, Target, WindowRows, WriteResult
from rewindow.errors import DeliveryError, InputError, TableError
from rewindow.facts.seals import read_seals
from rewindow.ledger import publish_app_id
from rewindow.names import did_you_mean, windows_name
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.names import open_published
from rewindow.storage.queries import query_in_parts, quoted
from rewindow.storage.streams import sealed_streams

TUPLES_AT_ONCE = 200_000
"""Tuples in memory and in a transaction at a time. A larger window has a separate transaction."""
WINDOWS_AT_ONCE = 500
_BATCH = 50_000
_REJECTED_KEPT = 20


@dataclass
class DeliveryResult:
    """The result of a delivery, or of a dry run.

    Attributes:
        stream: the output, as `application.output`.
        target: name of the target in the settings.
        promise: "exactly once" or "at least once".
        publication: number of the newest publication or undo of the output.
        unchanged: number of windows that the target already stores with the same digest.
        written: number of windows whose rows were replaced, or would be in a dry run.
        removed: number of windows that were removed because they are no longer published.
        tuples: number of rows in the written windows.
        rejected: number of rows that the target rejected.
        examples: the first rejected rows, 20 at most.
        notes: messages of the target for the user.
    """

    stream: str
    target: str
    promise: str
    publication: int
    unchanged: int = 0
    written: int = 0
    removed: int = 0
    tuples: int = 0
    rejected: int = 0
    examples: list[RejectedRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Published:
    """A published output: one version of its table, with the digest and the tuple count of each
    window.
    """

    data: Table
    columns: list[str]
    publication: int
    digests: Mapping[int, str]
    tuples: Mapping[int, int]


def deliver(
    config: Config,
    stream: str,
    name: str,
    target: Target,
    *,
    at_least_once: bool = False,
    dry_run: bool = False,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> DeliveryResult:
    """Writes the windows of an output whose digest differs from the digest at the target.

    `deliver_to` creates the target from the settings. Its other arguments and errors are the same.

    Args:
        stream: an output, as `application.output`.
        name: name of the target in the settings.
        target: the target; it is opened and closed here.
        at_least_once: whether to accept a target that does not list its windows. A file in the
            state folder then stores their digests.
    """
    published = _published(config, stream)
    progress = None
    if not target.knows_its_windows:
        if not at_least_once:
            raise InputError(
                f'target "{name}" does not list its windows',
                detail="After a crash, its last windows would be written twice.",
                hint=f"Define `delivered`, or set at_least_once = true in [targets.{name}].",
            )
        file = config.state.local() / "deliveries" / name / f"{stream}.jsonl"
        progress = ProgressFile(file, f"target {name}")
    promise = target.promise if progress is None else AT_LEAST_ONCE
    result = DeliveryResult(
        stream,
        name,
        promise,
        published.publication,
    )
    schema = pa.schema(list(map(published.data.schema.field, published.columns)))
    try:
        if progress is not None:
            progress.open()
        target.open(stream, schema)
        known = dict(target.delivered() if progress is None else progress.digests)
        windows = _windows_to_write(published, known)
        result.unchanged = len(known.keys() & published.digests.keys())
        result.unchanged -= sum(
            one.digest is not None and one.window_id in known for one in windows
        )
        done = 0
        for part in _parts(windows):
            if not dry_run:
                written = _write(
                    name,
                    target,
                    _with_rows(published, part),
                )
                # The rows are stored before their digests: after a crash in between they are
                # written again, and none are lost.
                if progress is not None:
                    for one in part:
                        progress.note(one.window_id, one.publication, one.digest)
                result.rejected += len(written.rejected)
                result.examples = (result.examples + written.rejected)[:_REJECTED_KEPT]
                result.notes += written.notes
            for one in part:
                result.written += one.digest is not None
                result.removed += one.digest is None
                result.tuples += one.tuples
            done += len(part)
            report(done, len(windows))
    finally:
        target.close()
        if progress is not None:
            progress.close()
    return result


def _write(name: str, target: Target, windows: Sequence[WindowRows]) -> WriteResult:
    try:
        return target.write_all(windows)
    except OSError as error:
        raise DeliveryError(
            f'target "{name}" could not store windows {windows[0].window_id} to '
            f"{windows[-1].window_id}",
            detail=f"{error}. Earlier windows are stored.",
            hint="Run the command again; it continues where it stopped.",
        ) from error


def _published(config: Config, stream: str) -> _Published:
    known = sealed_streams(config.state / "streams")
    if stream not in known or "." not in stream:
        outputs = [one for one in known if "." in one]
        raise InputError(
            f'no output "{stream}" is published',
            hint=f"{did_you_mean(stream, outputs)}Published: {', '.join(outputs) or 'none'}. "
            "Write it as APPLICATION.OUTPUT.",
        )
    data = open_published(config, stream)
    seals = open_published(config, windows_name(stream))
    # A publication commits the rows before the seals. Between the two commits, the rows of a window
    # do not match its seal.
    number = max(data.txn(publish_app_id(stream)), 0)
    if max(seals.txn(publish_app_id(windows_name(stream))), 0) != number:
        raise DeliveryError(
            f"a publication of {stream} is not finished",
            hint="Wait for it to end, or repeat a killed `rewindow publish` or `rewindow undo`.",
        )
    rows = read_seals(seals, table_id=data.id)
    digests = {}
    for window, digest, floats in zip(
        *(rows[name].to_pylist() for name in ("window_id", "digest", "float_digest")), strict=True
    ):
        digests[window] = f"{digest}/{floats}" if floats else digest
    tuples = dict(
        zip(
            rows["window_id"].to_pylist(),
            rows["tuples"].to_pylist(),
            strict=True,
        )
    )
    # Only the columns of the output are delivered: the table also has internal columns.
    sealed: set[str] = set()
    for text in rows["columns"].unique().to_pylist():
        sealed |= json.loads(text).keys()
    columns = [name for name in data.schema.names if name in sealed]
    return _Published(
        data,
        columns,
        number,
        digests,
        tuples,
    )


def _windows_to_write(published: _Published, known: Mapping[int, str]) -> list[WindowRows]:
    """Returns the windows that differ at the target, in ascending order.

    If a window is no longer published, its digest is None.
    """
    windows = []
    for window in sorted(published.digests.keys() | known.keys()):
        digest = published.digests.get(window)
        if digest != known.get(window):
            tuples = published.tuples.get(window, 0) if digest is not None else 0
            windows.append(
                WindowRows(
                    window,
                    published.publication,
                    digest,
                    tuples,
                    tuple,
                )
            )
    return windows


def _parts(windows: Sequence[WindowRows]) -> Iterator[list[WindowRows]]:
    """Divides windows into parts, each small enough for memory and one transaction."""
    part: list[WindowRows] = []
    tuples = 0
    for one in windows:
        is_full = tuples + one.tuples > TUPLES_AT_ONCE or len(part) == WINDOWS_AT_ONCE
        if part and is_full:
            yield part
            part = []
            tuples = 0
        part.append(one)
        tuples += one.tuples
    if part:
        yield part


def _with_rows(published: _Published, windows: Sequence[WindowRows]) -> list[WindowRows]:
    """Returns the windows with functions that read their rows. One query reads several windows."""
    if len(windows) == 1:
        [one] = windows
        batches = partial(
            _checked,
            one,
            partial(_read_in_parts, published, one.window_id),
        )
        return [_with(one, batches)]
    ids = ", ".join(str(one.window_id) for one in windows if one.tuples)
    rows = None
    if ids:
        columns = ", ".join(map(quoted, ["window_id", *published.columns]))
        rows = query(f"select {columns} from t where window_id in ({ids})", t=published.data)
        # One query reads the windows of a part, since each query opens all files of the table.
        # Sorted rows are then cut into windows without a scan for each window.
        rows = rows.sort_by("window_id").combine_chunks()
        numbers = rows["window_id"].to_numpy()
    found = []
    for one in windows:
        parts: list[pa.RecordBatch] = []
        if rows is not None:
            begin, end = np.searchsorted(numbers, [one.window_id, one.window_id + 1])
            of_window = rows.slice(begin, end - begin).drop_columns("window_id")
            parts = of_window.to_batches(_BATCH)
        found.append(
            _with(
                one,
                partial(
                    _checked,
                    one,
                    partial(iter, parts),
                ),
            )
        )
    return found


def _with(window: WindowRows, batches: Callable[[], Iterable[pa.RecordBatch]]) -> WindowRows:
    return WindowRows(
        window.window_id,
        window.publication,
        window.digest,
        window.tuples,
        batches,
    )


def _read_in_parts(published: _Published, window: int) -> Iterator[pa.RecordBatch]:
    columns = ", ".join(map(quoted, published.columns))
    sql = f"select {columns} from t where window_id = {window}"
    for part in query_in_parts(
        sql,
        _BATCH,
        t=published.data,
    ):
        yield from part.to_batches()


def _checked(
    window: WindowRows,
    read: Callable[[], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a window, and checks them.

    Raises:
        TableError: the number of rows is not that of the seal.
    """
    if window.digest is None:
        return
    count = 0
    for batch in read():
        count += batch.num_rows
        yield batch
    if count != window.tuples:
        raise TableError(
            f"window {window.window_id} has {count} rows in the published table, but its seal "
            f"counts {window.tuples}",
            hint="Another program has changed the table. Publish the window again.",
        )
