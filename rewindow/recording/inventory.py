"""Lists recorded and published streams, reads the rows of a window, and deletes streams. Starts no
JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from rewindow.crash import crash_point
from rewindow.errors import InputError, OverlapError, RangeError
from rewindow.facts.seals import stream_end
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import Dependent, dependents
from rewindow.location import Location
from rewindow.names import did_you_mean, windows_name
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table, TuplesInPlace, query
from rewindow.storage.delta import total_size
from rewindow.storage.fields import column_pairs
from rewindow.storage.files import files_path
from rewindow.storage.streams import (
    CHANGED,
    LATE,
    sealed_streams,
    stored_grid,
    stored_settings,
)
from rewindow.windows import Grid, WindowRange, format_time, parse_time, to_ranges

_BESIDE = ("windows", "files", "checkpoints")


@dataclass(frozen=True)
class StreamEntry:
    """The summary of a stream.

    Attributes:
        is_published: whether it is an application's output; otherwise it was recorded.
        sealed: range from the first sealed window to the last one; None if none is sealed.
        windows, empty, missing: number of sealed windows, of those without a tuple, and of those
            inside the range that are not sealed.
        tuples, bytes: recorded amounts.
        end: last window of a stream that has ended.
        late: number of its tuples in quarantine that arrived after their windows were sealed.
        in_place: whether replays read its source instead of a copy.
    """

    name: str
    is_published: bool
    grid: Grid
    sealed: WindowRange | None
    windows: int
    empty: int
    missing: int
    tuples: int
    bytes: int
    end: int | None
    late: int
    in_place: bool = False

    def span(self) -> str:
        """Returns the time range that the stream's sealed windows cover."""
        if self.sealed is None:
            return "no sealed windows"
        begin = format_time(self.grid.start_us(self.sealed.first))
        return f"{begin} to {format_time(self.grid.end_us(self.sealed.last))}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the entry as plain values.

        Window ids are numbers.

        Rules: W14
        """
        first, last = (self.sealed.first, self.sealed.last) if self.sealed else (None, None)
        return {
            "stream": self.name,
            "published": self.is_published,
            "width_ms": self.grid.width_ms,
            "first": first,
            "last": last,
            "end": self.end,
            "windows": self.windows,
            "empty": self.empty,
            "missing": self.missing,
            "tuples": self.tuples,
            "bytes": self.bytes,
            "late": self.late,
            "in_place": self.in_place,
        }


def list_streams(config: Config) -> list[StreamEntry]:
    """Returns all recorded and published streams, by name."""
    names = sealed_streams(config.state / "streams")
    late = _late(config)
    return [
        _entry(config, name, late.get(name, 0))
        for name in names
        if Table.exists(config.stream_table(name))
    ]


def find_stream(config: Config, name: str) -> StreamEntry:
    """Returns the summary of a stream.

    Raises:
        InputError: the stream does not exist.
        TableError: one of its tables cannot be read.
    """
    if not any(path.exists() for path in tables_of(config, name)):
        known = names_of(list_streams(config))
        hint = (
            f"{did_you_mean(name, known)}Recorded and published streams: "
            f"{', '.join(known) or 'none'}."
        )
        raise InputError(f'stream "{name}" is not recorded', hint=hint)
    return _entry(config, name, _late(config).get(name, 0))


def _entry(config: Config, name: str, late: int) -> StreamEntry:
    data = Table.open(config.stream_table(name))
    seals = Table.open(config.windows_table(name))
    # Only the seals are read: they have the number of tuples of each window.
    sql = """select min(window_id) as first, max(window_id) as last, count(window_id) as windows,
             count(case when tuples = 0 then 1 end) as empty, coalesce(sum(tuples), 0) as tuples
                 from w"""
    row = query(sql, w=seals).to_pylist()[0]
    sealed = None if row["first"] is None else WindowRange(row["first"], row["last"])
    grid = stored_grid(seals)
    if sealed is not None:
        with seals.reading():  # A damaged seal may name a window that has no time.
            format_time(grid.start_us(sealed.first))
            format_time(grid.end_us(sealed.last))
    return StreamEntry(
        name,
        "." in name,
        grid,
        sealed=sealed,
        windows=row["windows"],
        empty=row["empty"],
        missing=len(sealed) - row["windows"] if sealed else 0,
        tuples=row["tuples"],
        bytes=total_size(data.files()),
        end=stream_end(seals),
        late=late,
        in_place=isinstance(data, TuplesInPlace),
    )


def _late(config: Config) -> dict[str, int]:
    if not Table.exists(config.quarantine_table):
        return {}
    sql = "select source, count(*) as n from q where reason = 'late' group by source"
    return dict(column_pairs(query(sql, q=config.quarantine_table), "source", "n"))


def late_windows(
    config: Config,
    name: str,
    reason: str = LATE,
) -> tuple[list[tuple[WindowRange, int]], int | None]:
    """Returns ranges of sealed windows that have quarantined tuples for a reason.

    Also returns the number of these tuples, and the end of the stream.

    Raises:
        InputError: the stream does not exist.
    """
    entry = find_stream(config, name)
    if entry.sealed is None or not Table.exists(config.quarantine_table):
        return [], entry.end
    quoted = name.replace("'", "''")
    sql = f"""select window_id, count(*) as n from q where source = '{quoted}'
              and reason = '{reason}'
              and window_id between {entry.sealed.first} and {entry.sealed.last}
                  group by window_id"""
    counts = dict(column_pairs(query(sql, q=config.quarantine_table), "window_id", "n"))
    late = [(part, sum(map(counts.__getitem__, part))) for part in to_ranges(counts)]
    return late, entry.end


def check_unchanged(config: Config, name: str) -> None:
    """Checks that no window of a stream has changed in its source, before late tuples are added.

    Raises:
        InputError: names the changed windows.
    """
    changed, _ = late_windows(config, name, CHANGED)
    if changed:
        raise InputError(
            f'windows {changed[0][0]} of stream "{name}" cannot be reopened: in the source, some '
            "of their tuples were removed and others were added",
            detail="Adding the new tuples would keep the removed ones in the stream."
            + (
                f" {len(changed) - 1:,} more ranges of windows were changed."
                if len(changed) > 1
                else ""
            )
            + " Nothing was changed.",
            hint="Replace these windows with the current contents of the source: rewindow record "
            f"{name} --reopen --replace; or restore the source and record it again.",
        )


def columns_of(config: Config, name: str) -> list[tuple[str, str]]:
    """Returns the names and types of a stream's columns as Delta stores them."""
    return [(field.name, str(field.type)) for field in Table.open(config.stream_table(name)).schema]


def place_of(config: Config, name: str) -> str:
    """Returns the table of a stream in place, and the version at which it is sealed."""
    table = Table.open(config.stream_table(name))
    assert isinstance(table, TuplesInPlace), "asked for a stream in place"
    return f"{table.columns.source} at version {table.version}"


def settings_of(config: Config, name: str) -> dict[str, str]:
    """Returns the settings with which a stream was recorded."""
    return stored_settings(Table.open(config.windows_table(name)))


def rows_of(config: Config, name: str, window: str, limit: int) -> tuple[int, bool, pa.Table]:
    """Returns a window's id, whether it is sealed, and its tuples in order.

    Args:
        config: current settings.
        name: the stream.
        window: the window's id, or a time inside it.
        limit: maximum number of tuples.

    Raises:
        RangeError: the stream starts after the window, has ended before it, or is recorded only up
            to an earlier window.
    """
    entry = find_stream(config, name)
    number = int(window) if window.lstrip("-").isdigit() else entry.grid.window(parse_time(window))
    tables = {
        "s": Table.open(config.stream_table(name)),
        "w": Table.open(config.windows_table(name)),
    }
    seals = query(f"select count(*) as n from w where window_id = {number}", **tables)[
        "n"
    ].to_pylist()[0]
    rows = query(
        f'select * from s where window_id = {number} order by "offset" limit {limit}',
        **tables,
    )
    last = max(entry.sealed.last, entry.end or entry.sealed.last) if entry.sealed else 0
    if not rows.num_rows and (entry.sealed is None or not entry.sealed.first <= number <= last):
        raise _outside(entry, number)
    return number, bool(seals), rows


def _outside(entry: StreamEntry, window: int) -> RangeError:
    """Returns the error for a window before a stream's first window or after its last one."""
    if entry.sealed is None:
        return RangeError(
            f'stream "{entry.name}" has no window {window}: it has no sealed windows',
            hint=f"Record the stream: rewindow record {entry.name}",
        )
    begin, end = entry.span().split(" to ")
    hint = f"Use a window in {entry.sealed}, or a time from {begin} to {end}."
    if window < entry.sealed.first:
        words = f"has no window {window}: it starts with window {entry.sealed.first} ({begin})"
    elif entry.end is not None:
        words = (
            f"has no window {window}: it ends with window {max(entry.end, entry.sealed.last)} "
            f"({end})"
        )
    else:
        words = f"has no window {window} yet: it is sealed up to window {entry.sealed.last} ({end})"
        hint += f" If the source has new tuples, record them: rewindow record {entry.name}"
    return RangeError(f'stream "{entry.name}" {words}', hint=hint)


def tables_of(config: Config, name: str) -> list[Location]:
    """Returns the folders of a stream's tables.

    Raises:
        InputError: the name belongs to an internal table, not to a stream.
    """
    beside = name.rpartition(".")[0] and name.rpartition(".")[2] in _BESIDE
    if beside or config.stream_table(name) == config.quarantine_table:
        raise InputError(
            f'table "{name}" is not a stream',
            hint="To list all streams: rewindow streams",
        )
    data = config.stream_table(name)
    return [data, data.with_name(windows_name(data.name)), files_path(data)]


def delete_stream(config: Config, name: str, *, force: bool = False) -> list[Dependent]:
    """Deletes a stream's tables and its rows in quarantine. Returns the replays that needed the
    stream.

    If a deletion is interrupted, the next one completes it.

    Args:
        config: current settings.
        name: the stream.
        force: delete it even if a replay needs it.

    Raises:
        InputError: the stream does not exist.
        OverlapError: a replay needs the stream, or it is being recorded; nothing was deleted.
    """
    from rewindow.recording.stream import recording_lock

    if not any(path.exists() for path in [*tables_of(config, name), *_drafts(config, name)]):
        find_stream(config, name)
    needed = dependents(Ledger.open(config.ledger_url), name)
    if needed and not force:
        raise still_needed(name, needed)
    with recording_lock(config, name):
        remove_stream(config, name)
    return needed


def check_unneeded(config: Config, name: str) -> None:
    """Checks that no replay needs a stream, before the stream's recorded tuples are removed.

    Raises:
        OverlapError: names the replays that need it.
    """
    if needed := dependents(Ledger.open(config.ledger_url), name):
        raise still_needed(name, needed, what="started over")


def remove_stream(config: Config, name: str) -> None:
    """Removes a stream's tables and its rows in quarantine. The caller must have the stream's lock.

    The tables are moved aside one by one, the tuples first, and deleted after all have moved. So
    `finish_removal` recognizes an interrupted removal by the moved tables, and completes it.
    """
    drafts = _drafts(config, name)
    for number, (path, draft) in enumerate(
        zip(tables_of(config, name), drafts, strict=True),
        start=1,
    ):
        if path.exists():
            draft.delete_tree()
            path.move_to(draft)
        crash_point("remove_after_move", number)
    if Table.exists(config.quarantine_table):
        quoted = name.replace("'", "''")
        Table.open(config.quarantine_table).delta.delete(f"source = '{quoted}'")
    crash_point("remove_after_quarantine")
    for draft in drafts:
        draft.delete_tree()


def finish_removal(config: Config, name: str) -> None:
    """Completes an interrupted removal.

    If the tuples exist again, a user has restored them, and they are kept.
    """
    drafts = [draft for draft in _drafts(config, name) if draft.exists()]
    if drafts and not config.stream_table(name).exists():
        remove_stream(config, name)
    for draft in drafts:
        draft.delete_tree()


def _drafts(config: Config, name: str) -> list[Location]:
    return [path.with_name(f".{path.name}.deleted") for path in tables_of(config, name)]


class QuarantinedRow(TypedDict):
    """A row of a source that did not become a tuple.

    Keys:
        window_id: window of a late tuple; None for other rows.
        reason: the same text for all rows that are wrong in the same way.
        problem: the reason with the value of this row.
        position: file and row number.
        payload: its content as text.
    """

    window_id: int | None
    reason: str
    problem: str
    position: str | None
    payload: str | None


def quarantined(config: Config, name: str, limit: int) -> list[QuarantinedRow]:
    """Returns the quarantined rows of a stream, sorted by reason, then in the order of their
    files.
    """
    # PySpark is slow to import, and most commands that use this module do not need it.
    from rewindow.recording.malformed import problem_of

    if not Table.exists(config.quarantine_table):
        return []
    # A position is a file and a row number in it, such as "day.csv:12".
    sql = f"""select window_id, reason, position, payload from q where {_of_stream(name)}
              order by reason, regexp_replace(position, ':[0-9]+$', ''),
                  try_cast(regexp_replace(position, '^.*:', '') as bigint), window_id
              limit {limit}"""
    rows: list[QuarantinedRow] = query(sql, q=config.quarantine_table).to_pylist()
    for row in rows:
        row["problem"] = problem_of(row["reason"], row["payload"] or "")
    return rows


def quarantine_counts(config: Config, name: str) -> dict[str, int]:
    """Returns the number of a stream's quarantined rows for each reason, the most frequent reason
    first.
    """
    if not Table.exists(config.quarantine_table):
        return {}
    sql = f"""select reason, count(*) as n from q where {_of_stream(name)}
              group by reason order by n desc, reason"""
    return dict(column_pairs(query(sql, q=config.quarantine_table), "reason", "n"))


def _of_stream(name: str) -> str:
    quoted = name.replace("'", "''")
    return f"source = '{quoted}'"


def still_needed(name: str, needed: Sequence[Dependent], what: str = "deleted") -> OverlapError:
    """Returns the error for deleting or restarting a stream that replays still need.

    It lists these replays.
    """
    force = (
        f", or delete the stream anyway: rewindow streams delete {name} --force"
        if what == "deleted"
        else ""
    )
    return OverlapError(
        f'stream "{name}" is still needed: {needed[0].why}',
        holder=needed[0].replay_id,
        detail="; ".join(entry.why for entry in needed[1:10])
        + (f"; and {len(needed) - 10} more" if len(needed) > 10 else "")
        + ("." if len(needed) > 1 else f"The stream was not {what}."),
        hint="Abandon or undo these replays "
        f"first{force or ', or record the source under another stream name'}.",
    )
