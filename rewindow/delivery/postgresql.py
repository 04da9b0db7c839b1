"""The target `postgresql`: a table of a PostgreSQL database."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import csv

from rewindow.delivery.csv_rows import as_csv
from rewindow.delivery.target import RejectedRow, Target, WindowRows, WriteResult
from rewindow.errors import DeliveryError, InputError, OverlapError

WINDOW = "window_id"
PROGRESS = "rewindow_delivered"
REJECTED = "rewindow_rejected"
ROWS_AT_ONCE = 50_000
"""About the number of rows that one COPY writes."""
_TIMEOUTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""They end a connection to a computer that is gone after a minute: in seconds, the last one in
milliseconds."""
ANSWER_SECONDS_MAX = 600.0
"""Time in which the database must complete a statement."""
_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}
_TABLES = """
create table if not exists {progress} (
    target text, stream text, window_id bigint, publication bigint not null, digest text not null,
    tuples bigint not null, delivered_at timestamptz not null default now(),
    primary key (target, stream, window_id));
create table if not exists {rejected} (
    target text, stream text, window_id bigint, publication bigint not null, reason text not null,
    row jsonb not null, delivered_at timestamptz not null default now());
create index if not exists rewindow_rejected_window on {rejected} (target, stream, window_id);
"""


class PostgresTarget(Target):
    """Replaces the rows of windows in a table. The digests of the windows are stored in the same
    transaction.

    The table `rewindow_delivered` stores the digests, and `rewindow_rejected` stores the rows that
    the database rejects. Both are in the schema of the table.

    Args:
        url: URL of the database; no message contains it.
        table: name of the table, with or without its schema.
        create: whether to create the table if it does not exist.
    """

    def __init__(self, url: str, table: str, *, create: bool) -> None:
        super().__init__()
        self._url = url
        self._table = table
        self._create = create
        self._connection: Any = None
        self._timer: threading.Timer | None = None
        self._has_timed_out = False
        self._stream = ""
        self._columns = pa.schema([])

    def open(self, stream: str, columns: pa.Schema) -> None:
        """See Target.

        Raises:
            OverlapError: another process delivers to the table.
            InputError: the table does not exist, or has other columns than the output.
            DeliveryError: the database cannot be reached.
        """
        import psycopg

        self._stream = stream
        self._columns = columns
        try:
            self._connection = psycopg.connect(self._url, **_TIMEOUTS)
        except psycopg.Error as error:
            raise DeliveryError(
                f"the database of table {self._table} cannot be reached",
                detail=_without_secrets(error),
                hint="Check the environment variable that `url_env` names, and the server.",
            ) from None
        with self._failures("it changed nothing"), self._connection.transaction():
            self._lock()
            if not self._exists(self._table):
                self._create_table()
            self._check_columns()

    def delivered(self) -> Mapping[int, str]:
        """See Target."""
        with self._failures("it changed nothing"), self._connection.transaction():
            # A dry run must not create these tables, so the first write does.
            if not self._exists(self._beside(PROGRESS)):
                return {}
            rows = self._execute(
                "select window_id, digest from {progress} where target = %s and stream = %s",
                (self._table, self._stream),
            ).fetchall()
        return dict(rows)

    def write(
        self,
        window_id: int,
        publication: int,
        digest: str | None,
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        """See Target."""
        self.write_all(
            [
                WindowRows(
                    window_id,
                    publication,
                    digest,
                    0,
                    lambda: batches,
                )
            ]
        )

    def write_all(self, windows: Sequence[WindowRows]) -> WriteResult:
        """See Target.

        Either all windows are stored or none (R66).

        Raises:
            InputError: the table has rows of a window that was never delivered.
            DeliveryError: the database has failed. If it failed during the commit, the windows may
                be stored, all of them with their digests.
        """
        written = WriteResult()
        ids = f"windows {windows[0].window_id} to {windows[-1].window_id}"
        with self._failures(f"it did not confirm {ids}"), self._connection.transaction():
            self._execute(_TABLES)
            self._remove(windows, written)
            published = [window for window in windows if window.digest is not None]
            self._insert(published, written)
        return written

    @contextmanager
    def _failures(self, consequence: str) -> Iterator[None]:
        """Converts errors of the database into a DeliveryError."""
        import psycopg

        self._await_answer()
        try:
            yield
        except psycopg.Error as error:
            detail = _without_secrets(error)
            if self._has_timed_out:
                detail = f"It did not answer for {ANSWER_SECONDS_MAX:g} seconds"
            raise DeliveryError(
                f"the database of table {self._table} has failed: {consequence}",
                detail=detail,
                hint="Run the command again; it continues where it stopped.",
            ) from None
        finally:
            self._stop_timer()

    def _await_answer(self) -> None:
        """Starts the timer that ends the connection if the next statement takes too long."""
        self._stop_timer()
        self._timer = threading.Timer(ANSWER_SECONDS_MAX, self._disconnect)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _disconnect(self) -> None:
        """Closes the network connection, so that the waiting statement raises an error.

        The driver has no timeout for statements. If a server or a proxy stops without closing the
        connection, the driver waits forever.
        """
        self._has_timed_out = True
        with socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See Target."""
        if self._connection is not None:
            self._connection.close()

    def _lock(self) -> None:
        """Prevents other processes from delivering to the table until this connection ends."""
        name = f"rewindow/{self._table}"
        locked = self._execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", (name,))
        # The lock belongs to the session: it ends with the connection, however the process ends.
        if not locked.fetchone()[0]:
            raise OverlapError(
                f"another process is delivering to table {self._table}",
                hint="Wait until it has ended, and run the command again.",
            )

    def _exists(self, table: str) -> bool:
        found = self._execute("select to_regclass(%s)", (self._quoted(table),))
        return found.fetchone()[0] is not None

    def _create_table(self) -> None:
        if not self._create:
            raise InputError(
                f"table {self._table} does not exist",
                hint="Create it with: rewindow deliver OUTPUT TARGET --create",
            )
        columns = [f"{_quoted(WINDOW)} bigint not null"]
        for field in self._columns:
            columns.append(f"{_quoted(field.name)} {type_in_postgresql(field.type)}")
        self._execute(f"create table {{table}} ({', '.join(columns)})")
        self._execute("create index on {table} (window_id)")

    def _check_columns(self) -> None:
        """Compares the columns of the table with those of the output, by name and type."""
        rows = self._execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped",
            (self._quoted(self._table),),
        ).fetchall()
        known = dict(rows)
        for name, kind in {WINDOW: pa.int64(), **_types(self._columns)}.items():
            wanted = type_in_postgresql(kind)
            if known.get(name) != wanted:
                found = f"has type {known[name]}" if name in known else "does not exist"
                raise InputError(
                    f"column {name} of table {self._table} {found}; output {self._stream} has "
                    f"{wanted}",
                    hint="Change the table, or deliver to another one.",
                )

    def _remove(self, windows: Sequence[WindowRows], written: WriteResult) -> None:
        """Removes the rows, the rejected rows and the digests of windows.

        Raises:
            InputError: the table has rows of a window that was never delivered to it.
        """
        # The entries of the windows are removed with their rows. If the process dies before the
        # commit, the database keeps both.
        ids = [window.window_id for window in windows]
        place = (self._table, self._stream, ids)
        mine = "where target = %s and stream = %s and window_id = any(%s)"
        known = dict(
            self._execute(f"delete from {{progress}} {mine} returning window_id, tuples", place)
        )
        self._execute(f"delete from {{rejected}} {mine}", place)
        removed = dict(
            self._execute(
                "with gone as (delete from {table} where window_id = any(%s) returning window_id) "
                "select window_id, count(*) from gone group by window_id",
                (ids,),
            )
        )
        # No earlier delivery has written the rows of a window without an entry: they belong to
        # another program, and Rewindow could not restore them.
        for window, tuples in removed.items():
            if window not in known:
                raise InputError(
                    f"table {self._table} has {tuples} rows of window {window}, which was never "
                    "delivered to it",
                    detail="Another program or another output has written them. Nothing was "
                    "changed.",
                    hint="Delete these rows, or deliver to another table.",
                )
        for window, tuples in known.items():
            if removed.get(window, 0) != tuples:
                written.notes.append(
                    f"window {window}: another program has changed its rows, {tuples} were "
                    f"delivered and {removed.get(window, 0)} were found; they were replaced"
                )

    def _insert(self, windows: Sequence[WindowRows], written: WriteResult) -> None:
        """Inserts the rows of windows, the rejected rows, and then the digests."""
        stored = {window.window_id: 0 for window in windows}
        publications = {window.window_id: window.publication for window in windows}
        for rows in _in_parts(windows):
            for count in rows[WINDOW].value_counts().to_pylist():
                stored[count["values"]] += count["counts"]
            rejected = self._copy(rows)
            for one in rejected:
                stored[one.window_id] -= 1
                values = json.dumps(one.row, default=str).replace("\\u0000", "\\\\u0000")
                self._execute(
                    "insert into {rejected} (target, stream, window_id, publication, reason, row) "
                    "values (%s, %s, %s, %s, %s, %s)",
                    (
                        self._table,
                        self._stream,
                        one.window_id,
                        publications[one.window_id],
                        one.reason,
                        values,
                    ),
                )
            written.rejected += rejected
        # One COPY writes all digests, since a part has up to 500 windows.
        entries = []
        for window in windows:
            tuples = stored[window.window_id]
            entries.append((window.window_id, window.publication, window.digest, tuples))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(
                self._sql(
                    "copy {progress} (target, stream, window_id, publication, digest, tuples) "
                    "from stdin"
                )
            ) as copy,
        ):
            for entry in entries:
                copy.write_row((self._table, self._stream, *entry))

    def _copy(self, rows: pa.Table) -> list[RejectedRow]:
        """Copies rows into the table, and returns the rows that the database rejects (R67).

        After an error, each half of the rows is tried in a separate savepoint.
        """
        import psycopg

        try:
            with self._connection.transaction():
                self._copy_all(rows)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if rows.num_rows == 1:
                reason = str(error).partition("\n")[0]
                [row] = rows.to_pylist()
                return [
                    RejectedRow(
                        row.pop(WINDOW),
                        reason,
                        row,
                    )
                ]
            middle = rows.num_rows // 2
            return self._copy(rows.slice(0, middle)) + self._copy(rows.slice(middle))
        return []

    def _copy_all(self, rows: pa.Table) -> None:
        text = io.BytesIO()
        # Arrow writes quotes around texts only, so null is empty and an empty text is "". COPY
        # distinguishes the two in the same way.
        options = csv.WriteOptions(include_header=False)
        csv.write_csv(
            as_csv(rows),
            text,
            options,
        )
        columns = ", ".join(map(_quoted, rows.schema.names))
        self._await_answer()
        with (
            self._connection.cursor() as cursor,
            cursor.copy(self._sql(f"copy {{table}} ({columns}) from stdin (format csv)")) as copy,
        ):
            copy.write(text.getbuffer())

    def _execute(self, text: str, values: Sequence[object] | None = None) -> Any:
        self._await_answer()
        return self._connection.execute(self._sql(text), values)

    def _sql(self, text: str) -> Any:
        """Inserts the quoted names of the tables into a statement."""
        return text.format(
            table=self._quoted(self._table),
            progress=self._quoted(self._beside(PROGRESS)),
            rejected=self._quoted(self._beside(REJECTED)),
        )

    def _beside(self, name: str) -> str:
        """Returns the name of a table in the schema of the target's table."""
        schema = self._table.rpartition(".")[0]
        return f"{schema}.{name}" if schema else name

    @staticmethod
    def _quoted(name: str) -> str:
        return ".".join(map(_quoted, name.split(".")))


def _in_parts(windows: Sequence[WindowRows]) -> Iterator[pa.Table]:
    """Yields the rows of windows with `window_id` in large tables, because each COPY has a fixed
    cost.
    """
    waiting: list[pa.Table] = []
    count = 0
    for window in windows:
        for batch in window.batches():
            ids = pa.repeat(pa.scalar(window.window_id, pa.int64()), batch.num_rows)
            waiting.append(
                pa.Table.from_batches([batch]).add_column(
                    0,
                    WINDOW,
                    ids,
                )
            )
            count += batch.num_rows
            if count >= ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
                count = 0
    if count:
        yield pa.concat_tables(waiting)


def type_in_postgresql(kind: pa.DataType) -> str:
    """Returns the PostgreSQL type for an Arrow type.

    Lists and structs become jsonb.

    Raises:
        InputError: PostgreSQL has no such type.
    """
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if pa.types.is_nested(kind):
        return "jsonb"
    if kind not in _TYPES:
        raise InputError(f"type {kind} has no counterpart in PostgreSQL")
    return _TYPES[kind]


def _types(columns: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in columns}


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _without_secrets(error: Exception) -> str:
    """Returns the first line of a database error.

    It can contain the host and the user, but never the password.
    """
    return str(error).partition("\n")[0].strip() or type(error).__name__
