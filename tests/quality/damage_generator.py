"""Damages that a gate should notice, generated from the columns of an output alone.

The generator reads the names and types of columns, which of them are keys, and what their names
mean by the conventions of the operators. It reads no suite: no damage was written with a check in
mind, so that the share of damages that a suite stops is a measure of the suite. Each damage is one
that a defect of stream processing causes: lost, repeated and misplaced rows, wrong units, wrong
time zones, values of another row or column, made rows confused with recorded ones.

A kind is the same words for all columns that it applies to; column and kind together are unique.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from rewindow.quality.planting import Damage, Row, Rows, copy_of

Part = list[Row]
"""The rows of one window, sorted by their first column of time if they have one."""
PartChange = Callable[[Part, Random], Part]
Change = Callable[[Rows, int, Random], None]
Cell = Callable[[Any], Any]
"""Returns a damaged value. Null is passed only to those of `_for_null`."""

BOOKKEEPING = ("window_id", "attempt")
ROW = "in a row"
ALL = "in every row"
_MADE_FLAG = re.compile(r"made|timer|filled|generated|synthetic|imputed|interpolated")
_MADE_BY = re.compile(r"^(_rw_)?(methods?|cause)$")
_TIME = re.compile(r"(_us|_ms|_at|_ts|_time|^at|^ts|timestamp)$")
_DURATION = re.compile(r"late_by|before_us|after_us|_for_|age|delay|duration|lag|elapsed|waited")
_ORDINAL = re.compile(r"emission|rank|pane|place|ordinal|offset|position|index")
_COUNT = re.compile(r"count|tuples|rows|total")
_SECOND_US = 1_000_000
_HOUR_US = 3_600 * _SECOND_US
_DAY_US = 24 * _HOUR_US
_CONTRARY = {
    "crossing": "timeout",
    "on_time": "late",
    "pending_before": "pending_after",
    "forward": "backward",
    "linear": "constant",
    "left": "right",
}
_CONTRARY |= {value: key for key, value in _CONTRARY.items()}
"""Words of the operators that a defect confuses, also where a window has one of them alone."""
_UNITS_US = {"s": _SECOND_US, "ms": 1_000, "us": 1}


def generated_damages(
    columns: pa.Schema,
    keys: Sequence[str] = (),
    *,
    made: str | None = None,
    everywhere: bool = True,
) -> list[Damage]:
    """Returns the damages of an output, in the order of its columns.

    Args:
        columns: those of the output; `window_id` and `attempt` among them are left alone.
        keys: names of the columns that identify a row within a window.
        made: the column that marks rows that an operator made, by true or by a text that is not
            null; found by its name unless given.
        everywhere: also those that continue to the last window; each is judged by itself.
    """
    output = _Output.of(columns, keys, made)
    damages = list(_row_damages(output))
    if everywhere:
        damages += _lasting_damages(output)
    damages += _made_damages(output)
    for field in output.columns:
        damages += _value_damages(output, field)
        damages += _placement_damages(output, field)
        if field.name in output.keys:
            damages += _key_damages(output, field)
    return [*damages, *_pair_damages(output)]


@dataclass(frozen=True)
class _Output:
    """Columns of an output, by what they mean."""

    columns: pa.Schema
    keys: tuple[str, ...]
    made: str | None
    times: tuple[str, ...]

    @classmethod
    def of(cls, columns: pa.Schema, keys: Sequence[str], made: str | None) -> _Output:
        fields = [field for field in columns if field.name not in BOOKKEEPING]
        payload = pa.schema(fields)
        times = tuple(field.name for field in payload if _time_unit_us(field) is not None)
        return cls(payload, tuple(keys), made or _made_column(payload), times)

    @property
    def values(self) -> list[pa.Field]:
        """The columns that are not keys."""
        return [field for field in self.columns if field.name not in self.keys]

    def is_made(self, row: Row) -> bool:
        assert self.made is not None
        value = row[self.made]
        return value is not None and value is not False

    def damage(self, kind: str, change: Change, column: str = "", reach: int | None = 0) -> Damage:
        """Returns a damage that leaves the rows as they are unless they differ and still fit."""

        def plant(rows: Rows, window: int, random: Random) -> bool:
            reached = list(rows)
            if reach is not None:
                reached = [one for one in range(window, window + reach + 1) if one in rows]
            before = {one: rows[one] for one in reached}
            changed = copy_of(before)
            # The result must not depend on the order in which files were read.
            for part in changed.values():
                part.sort(key=self._sort_key)
            change(changed, window, random)
            new = list(_new_rows(before, changed))
            if not self._fits(new) or contents(before) == contents(changed):
                return False
            for one in reached:
                rows[one][:] = changed[one]
            return True

        return Damage(kind, plant, column, reach)

    def inside(self, kind: str, change: PartChange, column: str = "") -> Damage:
        """Returns a damage of one window."""

        def change_window(rows: Rows, window: int, random: Random) -> None:
            if rows[window]:
                rows[window] = change(rows[window], random)

        return self.damage(kind, change_window, column)

    def _sort_key(self, row: Row) -> tuple[Any, ...]:
        shown = {name: value for name, value in row.items() if name != "attempt"}
        present = [row[name] for name in self.times[:1] if row[name] is not None]
        return (not present, *present, plain(shown))

    def _fits(self, rows: Part) -> bool:
        return all(fits(row[field.name], field) for row in rows for field in self.columns)


def plain(value: Any) -> str:
    """Returns a text that is equal for equal values: nan equals nan, -0.0 equals 0.0."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{plain(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(plain, value)) + "]"
    return repr(value + 0.0) if isinstance(value, float) else repr(value)


def contents(rows: Rows) -> dict[int, Counter[str]]:
    """Returns the rows of each window without their order."""
    return {window: Counter(map(plain, part)) for window, part in rows.items()}


def fits(value: Any, field: pa.Field) -> bool:
    """Returns whether a column can have a value."""
    if value is None:
        return bool(field.nullable)
    try:
        stored = pa.scalar(value, field.type).as_py()
        # A fraction of a number or of a second would silently be cut off.
        is_cut = pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
        return stored == value if is_cut else True
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def _new_rows(before: Rows, changed: Rows) -> Iterator[Row]:
    known = {window: set(map(plain, part)) for window, part in before.items()}
    for window, part in changed.items():
        for row in part:
            if plain(row) not in known[window]:
                yield row


def _made_column(columns: pa.Schema) -> str | None:
    for field in columns:
        if pa.types.is_boolean(field.type) and _MADE_FLAG.search(field.name.lower()):
            return str(field.name)
    for field in columns:
        if _is_text(field.type) and _MADE_BY.search(field.name.lower()):
            return str(field.name)
    return None


def _time_unit_us(field: pa.Field) -> int | None:
    """Returns how many microseconds a unit of an instant has; None for other columns."""
    name = field.name.lower()
    if pa.types.is_timestamp(field.type):
        return _UNITS_US.get(field.type.unit)
    if pa.types.is_int64(field.type) and _TIME.search(name) and not _DURATION.search(name):
        return _UNITS_US["ms"] if name.endswith("_ms") else 1
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    is_decimal = pa.types.is_decimal(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal)


# Rows


def _row_damages(output: _Output) -> Iterator[Damage]:
    inside = output.inside
    yield inside("a row dropped", _without_one)
    yield inside("every row dropped", lambda part, random: [])
    yield inside("every second row dropped", lambda part, random: part[::2])
    yield inside("a row doubled", lambda part, random: [*part, random.choice(part)])
    yield inside("every row doubled", lambda part, random: part * 2)
    yield inside("a row replaced by a copy of another", _copy_in_place)
    if output.times:
        yield inside("the first row by time dropped", lambda part, random: part[1:])
        yield inside("the last row by time dropped", lambda part, random: part[:-1])
    if output.values and output.keys:
        yield inside("a row doubled with the values of another", _doubled_with_values(output))
        yield inside("the values of two rows exchanged", _values_exchanged(output))
        yield inside("the values of every row those of the row before", _values_late(output))
        yield inside("values of a row null", _values_null(output))
    if any(_is_plain_number(output, field) for field in output.values):
        yield inside("two rows added up to one", _added_up(output))
    yield output.damage("a row moved to the next window", _move_one, reach=1)
    yield output.damage("every row moved to the next window", _move_all, reach=1)
    yield output.damage("the first row of the next window taken over", _take_first, reach=1)
    yield output.damage("rows exchanged with the next window", _exchange_windows, reach=1)
    yield output.damage("a row repeated in the next window", _repeat_one, reach=1)
    yield output.damage("every row repeated in the next window", _repeat_all, reach=1)
    yield output.damage("the next window has a copy of these rows alone", _copy_over, reach=1)


def _lasting_damages(output: _Output) -> Iterator[Damage]:
    yield output.damage("all rows from here on a window late", _shift_all, reach=None)
    yield output.damage("no row from here on", _end_all, reach=None)
    yield output.damage("the same rows from here on", _freeze_all, reach=None)
    yield output.damage("a row doubled in each window from here on", _double_all, reach=None)


def _without_one(part: Part, random: Random) -> Part:
    place = random.randrange(len(part))
    return [*part[:place], *part[place + 1 :]]


def _copy_in_place(part: Part, random: Random) -> Part:
    for place, other in _pairs_of(part, random):
        if plain(part[place]) != plain(part[other]):
            return _with_row(part, place, part[other])
    return part


def _pairs_of(part: Part, random: Random) -> Iterator[tuple[int, int]]:
    """Yields places of two rows: all neighbours, in the order of the seed."""
    places = list(range(len(part) - 1))
    random.shuffle(places)
    for place in places:
        yield (place, place + 1) if random.random() < 0.5 else (place + 1, place)


def _with_row(part: Part, place: int, row: Row) -> Part:
    return [*part[:place], dict(row), *part[place + 1 :]]


def _of(row: Row, fields: Sequence[pa.Field]) -> Row:
    return {field.name: row[field.name] for field in fields}


def _doubled_with_values(output: _Output) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            twin = {**part[place], **_of(part[other], output.values)}
            if plain(twin) != plain(part[place]):
                return [*part, twin]
        return part

    return change


def _values_exchanged(output: _Output) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            one = {**part[place], **_of(part[other], output.values)}
            two = {**part[other], **_of(part[place], output.values)}
            changed = _with_row(_with_row(part, place, one), other, two)
            if contents({0: part}) != contents({0: changed}):
                return changed
        return part

    return change


def _values_late(output: _Output) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        sources = [part[0], *part[:-1]]
        moved = zip(part, sources, strict=True)
        return [{**row, **_of(source, output.values)} for row, source in moved]

    return change


def _values_null(output: _Output) -> PartChange:
    nulls = {field.name: None for field in output.values if field.nullable}

    def change(part: Part, random: Random) -> Part:
        place = random.randrange(len(part))
        return _with_row(part, place, {**part[place], **nulls})

    return change


def _is_plain_number(output: _Output, field: pa.Field) -> bool:
    """Returns whether a column counts or measures: not an instant, not a position."""
    is_ordinal = _ORDINAL.search(field.name.lower()) and not _COUNT.search(field.name.lower())
    is_other = field.name in (*output.times, *output.keys) or is_ordinal
    return _is_number(field.type) and not is_other


def _added_up(output: _Output) -> PartChange:
    summed = [field for field in output.values if _is_plain_number(output, field)]

    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            row = dict(part[place])
            for field in summed:
                both = [one[field.name] for one in (row, part[other])]
                present = [value for value in both if value is not None]
                row[field.name] = sum(present) if present else None
            return [one for n, one in enumerate(_with_row(part, place, row)) if n != other]
        return part

    return change


def _into(row: Row, window: int) -> Row:
    return {**row, "window_id": window} if "window_id" in row else dict(row)


def _move_one(rows: Rows, window: int, random: Random) -> None:
    if rows[window] and window + 1 in rows:
        place = random.randrange(len(rows[window]))
        rows[window + 1].append(_into(rows[window].pop(place), window + 1))


def _move_all(rows: Rows, window: int, random: Random) -> None:
    if window + 1 in rows:
        rows[window + 1] += [_into(row, window + 1) for row in rows[window]]
        rows[window] = []


def _take_first(rows: Rows, window: int, random: Random) -> None:
    if rows.get(window + 1):
        rows[window].append(_into(rows[window + 1].pop(0), window))


def _exchange_windows(rows: Rows, window: int, random: Random) -> None:
    if window + 1 in rows:
        here, there = rows[window], rows[window + 1]
        rows[window] = [_into(row, window) for row in there]
        rows[window + 1] = [_into(row, window + 1) for row in here]


def _repeat_one(rows: Rows, window: int, random: Random) -> None:
    if rows[window] and window + 1 in rows:
        rows[window + 1].append(_into(random.choice(rows[window]), window + 1))


def _repeat_all(rows: Rows, window: int, random: Random) -> None:
    if window + 1 in rows:
        rows[window + 1] += [_into(row, window + 1) for row in rows[window]]


def _copy_over(rows: Rows, window: int, random: Random) -> None:
    if window + 1 in rows:
        rows[window + 1] = [_into(row, window + 1) for row in rows[window]]


def _from(rows: Rows, window: int) -> list[int]:
    return sorted(one for one in rows if one >= window)


def _shift_all(rows: Rows, window: int, random: Random) -> None:
    later: Part = []
    for one in _from(rows, window):
        later, rows[one] = rows[one], [_into(row, one) for row in later]


def _end_all(rows: Rows, window: int, random: Random) -> None:
    for one in _from(rows, window):
        rows[one] = []


def _freeze_all(rows: Rows, window: int, random: Random) -> None:
    for one in _from(rows, window):
        rows[one] = [_into(row, one) for row in rows[window]]


def _double_all(rows: Rows, window: int, random: Random) -> None:
    for one in _from(rows, window):
        rows[one] += rows[one][:1]


# Rows that an operator made


def _made_damages(output: _Output) -> Iterator[Damage]:
    made, is_made, inside = output.made, output.is_made, output.inside
    if made is None:
        return
    field = output.columns.field(made)
    present: Cell = (lambda value: True) if pa.types.is_boolean(field.type) else _method_of(made)
    absent = False if pa.types.is_boolean(field.type) else None

    def only(asked: bool) -> PartChange:
        return lambda part, random: [row for row in part if is_made(row) is asked]

    yield inside("made rows dropped", only(False), made)
    yield inside("recorded rows dropped", only(True), made)
    yield inside("a made row dropped", _one_of(is_made, lambda row: []), made)
    yield inside("a made row doubled", _one_of(is_made, lambda row: [row, row]), made)
    yield inside("a made row marked as recorded", _one_of(is_made, _marked(made, absent)), made)
    yield inside("made rows marked as recorded", _each_of(is_made, made, absent), made)
    yield inside("made rows without a trace of it", _without_trace(output), made)

    def is_recorded(row: Row) -> bool:
        return not is_made(row)

    mark = present(None)
    yield inside("a recorded row marked as made", _one_of(is_recorded, _marked(made, mark)), made)
    yield inside("recorded rows marked as made", _each_of(is_recorded, made, mark), made)
    yield inside("a recorded row replaced by a made one", _made_instead(output, mark), made)
    yield inside("a made row added", _made_added(output, mark), made)
    yield inside("a made row with the values of a recorded one", _values_from(output, True), made)
    yield inside("a recorded row with the values of a made one", _values_from(output, False), made)


def _method_of(made: str) -> Cell:
    word = "timeout" if "cause" in made.lower() else "forward"
    return lambda value: word


def _one_of(asked: Callable[[Row], bool], change: Callable[[Row], Part]) -> PartChange:
    def change_one(part: Part, random: Random) -> Part:
        places = [place for place, row in enumerate(part) if asked(row)]
        if not places:
            return part
        place = random.choice(places)
        return [*part[:place], *change(part[place]), *part[place + 1 :]]

    return change_one


def _marked(name: str, value: Any) -> Callable[[Row], Part]:
    return lambda row: [{**row, name: value}]


def _each_of(asked: Callable[[Row], bool], name: str, value: Any) -> PartChange:
    return lambda part, random: [{**row, name: value} if asked(row) else row for row in part]


def _provenance(output: _Output) -> list[str]:
    """Returns the columns that were added to a stream's own, by their prefix; the mark is one."""
    added = [name for name in output.columns.names if name.startswith("_rw_")]
    own = [name for name in added if not name.startswith("_rw_filled_")]
    return list(
        dict.fromkeys([str(output.made), *(name for name in own if "emission" not in name)])
    )


def _without_trace(output: _Output) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        recorded = [row for row in part if not output.is_made(row)]
        if not recorded:
            return part
        trace = {name: recorded[0][name] for name in _provenance(output)}
        return [{**row, **trace} if output.is_made(row) else row for row in part]

    return change


def _payload(output: _Output) -> list[pa.Field]:
    """Returns columns that are neither keys nor times nor provenance."""
    known = {*output.times, *_provenance(output)}
    added = [field for field in output.values if field.name not in known]
    return [field for field in added if "emission" not in field.name]


def _made_instead(output: _Output, mark: Any) -> PartChange:
    nulls = {field.name: None for field in _payload(output) if field.nullable}

    def change(part: Part, random: Random) -> Part:
        asked = _one_of(
            lambda row: not output.is_made(row),
            lambda row: [{**row, **nulls, str(output.made): mark}],
        )
        return asked(part, random)

    return change


def _made_added(output: _Output, mark: Any) -> PartChange:
    """Adds a copy of a made row, or of a recorded one without its values, a second later."""
    nulls = {field.name: None for field in _payload(output) if field.nullable}

    def change(part: Part, random: Random) -> Part:
        made = [row for row in part if output.is_made(row)]
        row = dict(random.choice(made)) if made else {**random.choice(part), **nulls}
        row[str(output.made)] = row[str(output.made)] if made else mark
        for name in output.times[:1]:
            unit_us = _time_unit_us(output.columns.field(name))
            if row[name] is not None:
                row[name] = _moved(_SECOND_US, unit_us or 1)(row[name])
        return [*part, row]

    return change


def _values_from(output: _Output, into_made: bool) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        made = [place for place, row in enumerate(part) if output.is_made(row)]
        recorded = [place for place, row in enumerate(part) if not output.is_made(row)]
        if not made or not recorded:
            return part
        into, source = random.choice(made), random.choice(recorded)
        if not into_made:
            into, source = source, into
        return _with_row(part, into, {**part[into], **_of(part[source], _payload(output))})

    return change


# Values of one column


def _value_damages(output: _Output, field: pa.Field) -> Iterator[Damage]:
    for kind, cell, scopes in _cells(field):
        if ROW in scopes:
            yield output.inside(f"{kind} {ROW}", _in_one(field, cell), field.name)
        if ALL in scopes:
            yield output.inside(f"{kind} {ALL}", _in_all(field, cell), field.name)
        # An operator can be wrong in its made rows alone.
        if output.made not in (None, field.name) and scopes == _BOTH:
            in_made = _in_one(field, cell, output.is_made)
            yield output.inside(f"{kind} in a made row", in_made, field.name)


def _in_one(
    field: pa.Field, cell: Cell, asked: Callable[[Row], bool] = lambda row: True
) -> PartChange:
    name = field.name

    def change(part: Part, random: Random) -> Part:
        for place in random.sample(range(len(part)), len(part)):
            value = cell(part[place][name])
            if not asked(part[place]):
                continue
            if plain(value) != plain(part[place][name]) and fits(value, field):
                return _with_row(part, place, {**part[place], name: value})
        return part

    return change


def _in_all(field: pa.Field, cell: Cell) -> PartChange:
    name = field.name

    def change(part: Part, random: Random) -> Part:
        values = [cell(row[name]) for row in part]
        pairs = zip(part, values, strict=True)
        return [{**row, name: value} if fits(value, field) else row for row, value in pairs]

    return change


Kinds = Iterator[tuple[str, Cell, tuple[str, ...]]]
"""The name of a change, the change, and its scopes: `ROW`, `ALL`, or both as two damages."""
_BOTH = (ROW, ALL)


def _cells(field: pa.Field) -> Kinds:
    """Yields the damages of a value that do not depend on other rows."""
    kind = field.type
    unit_us = _time_unit_us(field)
    if field.nullable:
        yield "null", lambda value: None, _BOTH
    if (default := _default(kind)) is not None:
        yield "null replaced by a default", _for_null(default), (ALL,)
    typed: Kinds = iter(())
    if unit_us is not None:
        typed = _time_cells(kind, unit_us)
    elif pa.types.is_boolean(kind):
        typed = iter([("inverted", lambda value: not value, _BOTH)])
    elif pa.types.is_date(kind):
        typed = _date_cells()
    elif pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        typed = _exact_cells(kind)
    elif pa.types.is_floating(kind):
        typed = _float_cells()
    elif _is_text(kind):
        typed = _text_cells()
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        typed = _sequence_cells("a byte", b"")
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        typed = _sequence_cells("an entry", [])
    elif pa.types.is_struct(kind):
        typed = _struct_cells(kind)
    for name, cell, scopes in typed:
        yield name, _not_null(cell), scopes


def _not_null(cell: Cell) -> Cell:
    return lambda value: None if value is None else cell(value)


def _for_null(default: Any) -> Cell:
    return lambda value: default if value is None else value


def _default(kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return datetime(1970, 1, 1) if kind.tz is None else _utc_epoch(kind)
    defaults = [
        (pa.types.is_boolean, False),
        (pa.types.is_integer, 0),
        (pa.types.is_floating, 0.0),
        (pa.types.is_decimal, Decimal(0)),
        (_is_text, ""),
        (pa.types.is_date, date(1970, 1, 1)),
        (pa.types.is_list, []),
    ]
    return next((default for asked, default in defaults if asked(kind)), None)


def _utc_epoch(kind: pa.DataType) -> Any:
    return pa.scalar(0, pa.timestamp("us", kind.tz)).as_py()


def _exact_cells(kind: pa.DataType) -> Kinds:
    step = Decimal(1).scaleb(-kind.scale) if pa.types.is_decimal(kind) else 1
    yield "one too many", lambda value: value + 1, _BOTH
    yield "one too few", lambda value: value - 1, _BOTH
    yield "of the other sign", lambda value: -value, _BOTH
    yield "in a unit a thousand times smaller", lambda value: value * 1000, _BOTH
    yield "in a unit a thousand times larger", lambda value: value // (1000 * step) * step, (ALL,)
    yield "in minutes instead of hours", lambda value: value * 60, (ALL,)
    yield "counted twice", lambda value: value * 2, _BOTH
    yield "zero", lambda value: value * 0, _BOTH
    yield "minus one", lambda value: value * 0 - 1, (ROW,)
    yield "ten percent less", lambda value: value - value // (10 * step) * step, (ALL,)
    if pa.types.is_int64(kind):
        yield "cut to 32 bits", lambda value: (value + (1 << 31)) % (1 << 32) - (1 << 31), (ROW,)
    if pa.types.is_integer(kind) and pa.types.is_signed_integer(kind):
        largest = (1 << (kind.bit_width - 1)) - 1
        yield "the largest of its type", lambda value: largest, (ROW,)
    if pa.types.is_decimal(kind):
        yield "rounded to whole", lambda value: Decimal(int(value)), (ALL,)


def _float_cells() -> Kinds:
    finite: list[tuple[str, Cell, tuple[str, ...]]] = [
        ("one too many", lambda value: value + 1, _BOTH),
        ("one too few", lambda value: value - 1, _BOTH),
        ("of the other sign", lambda value: -value, _BOTH),
        ("in a unit a thousand times smaller", lambda value: value * 1000, _BOTH),
        ("in a unit a thousand times larger", lambda value: value / 1000, (ALL,)),
        ("in minutes instead of hours", lambda value: value * 60, (ALL,)),
        ("counted twice", lambda value: value * 2, _BOTH),
        ("zero", lambda value: 0.0, _BOTH),
        ("minus one", lambda value: -1.0, (ROW,)),
        ("ten percent less", lambda value: value * 0.9, (ALL,)),
        ("rounded to whole", lambda value: float(round(value)), (ALL,)),
    ]
    for kind, cell, scopes in finite:
        yield kind, _if_finite(cell), scopes
    yield "not a number", lambda value: math.nan, _BOTH
    yield "infinite", lambda value: math.inf, (ROW,)
    yield "minus infinite", lambda value: -math.inf, (ROW,)


def _if_finite(cell: Cell) -> Cell:
    return lambda value: cell(value) if math.isfinite(value) else value


def _time_cells(kind: pa.DataType, unit_us: int) -> Kinds:
    named = {1: "a microsecond", 1_000: "a millisecond", _SECOND_US: "a second"}
    yield f"{named[unit_us]} early", _moved(-unit_us, unit_us), _BOTH
    yield f"{named[unit_us]} late", _moved(unit_us, unit_us), (ROW,)
    yield "an hour late", _moved(_HOUR_US, unit_us), _BOTH
    yield "an hour early", _moved(-_HOUR_US, unit_us), (ALL,)
    yield "five hours early", _moved(-5 * _HOUR_US, unit_us), (ALL,)
    yield "a day late", _moved(_DAY_US, unit_us), (ROW,)
    yield "a hundred years late", _moved(36_525 * _DAY_US, unit_us), (ROW,)
    if unit_us < _SECOND_US:
        yield "cut to seconds", _cut(_SECOND_US, unit_us), (ALL,)
    yield "cut to hours", _cut(_HOUR_US, unit_us), (ALL,)
    yield "cut to days", _cut(_DAY_US, unit_us), (ALL,)
    yield "at the epoch", _epoch_of, _BOTH
    yield "a thousandth since the epoch", _thousandth, (ALL,)
    if not pa.types.is_timestamp(kind):
        yield "in another unit", lambda value: value * 1000, (ROW,)


def _epoch_of(value: Any) -> Any:
    return 0 if isinstance(value, int) else datetime(1970, 1, 1, tzinfo=value.tzinfo)


def _moved(us: int, unit_us: int) -> Cell:
    def moved(value: Any) -> Any:
        return value + (us // unit_us if isinstance(value, int) else timedelta(microseconds=us))

    return moved


def _cut(us: int, unit_us: int) -> Cell:
    def cut(value: Any) -> Any:
        if isinstance(value, int):
            return value - value % (us // unit_us)
        return value - (value - _epoch_of(value)) % timedelta(microseconds=us)

    return cut


def _thousandth(value: Any) -> Any:
    if isinstance(value, int):
        return value // 1000
    seconds = (value - _epoch_of(value)) // timedelta(seconds=1)
    return _epoch_of(value) + timedelta(seconds=seconds // 1000)


def _date_cells() -> Kinds:
    yield "a day late", lambda value: value + timedelta(days=1), _BOTH
    yield "a day early", lambda value: value - timedelta(days=1), (ALL,)
    yield "the first of its month", lambda value: value.replace(day=1), (ALL,)
    yield "day and month exchanged", _day_and_month_exchanged, (ALL,)
    yield "at the epoch", lambda value: date(1970, 1, 1), _BOTH


def _day_and_month_exchanged(value: date) -> date:
    return value if value.day > 12 else value.replace(month=value.day, day=value.month)


def _text_cells() -> Kinds:
    yield "in another case", str.swapcase, _BOTH
    yield "with a blank at its end", lambda value: value + " ", _BOTH
    yield "with a blank before it", lambda value: " " + value, (ROW,)
    yield "in quotes", lambda value: f'"{value}"', (ALL,)
    yield "without its last letter", lambda value: value[:-1], _BOTH
    yield "only its first letter", lambda value: value[:1], (ALL,)
    yield "empty", lambda value: "", _BOTH
    yield "the word null", lambda value: "null", (ROW,)
    yield "another word", lambda value: "unknown", _BOTH
    yield "the contrary word", lambda value: _CONTRARY.get(value, value), _BOTH
    yield "decoded wrongly", lambda value: value.encode().decode("latin-1"), (ALL,)
    yield "an entry of its JSON dropped", _of_json(lambda items: items[:-1]), _BOTH
    yield "a word in its JSON replaced", _of_json(_word_replaced), _BOTH
    yield "two values of its JSON exchanged", _of_json(_values_turned), (ALL,)
    yield "another name in its JSON", _of_json(_name_changed), (ROW,)
    yield "every entry of its JSON dropped", _of_json(lambda items: []), (ALL,)


Items = list[tuple[str, Any]]


def _of_json(change: Callable[[Items], Items]) -> Cell:
    """Returns a change of the entries of a text that is a JSON object; others stay as they are."""

    def changed(value: str) -> str:
        try:
            found = json.loads(value)
        except ValueError:
            return value
        if not isinstance(found, dict) or not found:
            return value
        return json.dumps(dict(change(list(found.items()))), separators=(",", ":"))

    return changed


def _word_replaced(items: Items) -> Items:
    (name, value), *others = items
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [(name, value + 1), *others]
    return [(name, "constant" if value != "constant" else "forward"), *others]


def _values_turned(items: Items) -> Items:
    values = [value for _, value in items]
    turned = [*values[1:], values[0]]
    return [(name, value) for (name, _), value in zip(items, turned, strict=True)]


def _name_changed(items: Items) -> Items:
    (name, value), *others = items
    return [(name + "_2", value), *others]


def _sequence_cells(entry: str, empty: Any) -> Kinds:
    yield f"{entry} dropped from its end", lambda value: value[:-1], _BOTH
    yield f"{entry} dropped from its start", lambda value: value[1:], (ROW,)
    yield f"{entry} doubled", lambda value: value + value[-1:], (ROW,)
    yield "in reverse order", lambda value: value[::-1], (ALL,)
    yield "empty", lambda value: empty, _BOTH


def _struct_cells(kind: pa.DataType) -> Kinds:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    for field in fields:
        for name, cell, scopes in _cells(field):
            # A value inside is damaged one way in one row: the column itself has the others.
            if ROW in scopes:
                yield f"{field.name} {name}", _of_field(field, cell), (ROW,)
    for one, two in pairwise(fields):
        if one.type == two.type:
            yield f"{one.name} and {two.name} exchanged", _turned(one.name, two.name), (ALL,)


def _of_field(field: pa.Field, cell: Cell) -> Cell:
    def changed(value: Row) -> Row:
        inner = cell(value[field.name])
        return {**value, field.name: inner} if fits(inner, field) else value

    return changed


def _turned(one: str, two: str) -> Cell:
    return lambda value: {**value, one: value[two], two: value[one]}


# Where the values of a column are


def _placement_damages(output: _Output, field: pa.Field) -> Iterator[Damage]:
    name, inside = field.name, output.inside
    yield inside("that of another row", _copied(name), name)
    yield inside("exchanged between two rows", _exchanged(name), name)
    yield inside("the same in every row", _constant(name), name)
    yield inside("carried forward from the row before", _late(name, 1), name)
    yield inside("that of the row after", _late(name, -1), name)
    if pa.types.is_nested(field.type):
        return
    if field.name not in output.times:
        yield inside("two values exchanged in every row", _two_exchanged(name), name)
    if not pa.types.is_boolean(field.type):
        yield inside("two values made one in every row", _made_one(name), name)
    if _is_number(field.type) or name in output.times:
        yield inside("in reverse order over the rows", _reversed(name), name)
    if pa.types.is_integer(field.type) and _is_plain_number(output, field):
        yield inside("one counted for another row", _moved_between(name), name)
    if _is_plain_number(output, field):
        yield inside("summed up over the rows", _accumulated(name), name)
        yield inside("the largest of the window in every row", _extreme(name), name)


def _column(part: Part, name: str, values: Sequence[Any]) -> Part:
    return [{**row, name: value} for row, value in zip(part, values, strict=True)]


def _copied(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            if plain(part[place][name]) != plain(part[other][name]):
                return _with_row(part, place, {**part[place], name: part[other][name]})
        return part

    return change


def _exchanged(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            one = {**part[place], name: part[other][name]}
            two = {**part[other], name: part[place][name]}
            changed = _with_row(_with_row(part, place, one), other, two)
            if contents({0: part}) != contents({0: changed}):
                return changed
        return part

    return change


def _constant(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        present = [row[name] for row in part if row[name] is not None]
        return _column(part, name, [random.choice(present)] * len(part)) if present else part

    return change


def _late(name: str, rows: int) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        values = [row[name] for row in part]
        moved = [values[0], *values[:-1]] if rows > 0 else [*values[1:], values[-1]]
        return _column(part, name, moved)

    return change


def _distinct(part: Part, name: str, random: Random) -> list[Any]:
    """Returns the different values of a window, null aside, in the order of the seed."""
    distinct = {plain(row[name]): row[name] for row in part if row[name] is not None}
    return random.sample(list(distinct.values()), len(distinct))


def _replaced(part: Part, name: str, by: dict[str, Any]) -> Part:
    return _column(part, name, [by.get(plain(row[name]), row[name]) for row in part])


def _two_exchanged(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        one, two, *_ = [*_distinct(part, name, random), None, None]
        return part if two is None else _replaced(part, name, {plain(one): two, plain(two): one})

    return change


def _made_one(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        one, two, *_ = [*_distinct(part, name, random), None, None]
        return part if two is None else _replaced(part, name, {plain(one): two})

    return change


def _reversed(name: str) -> PartChange:
    return lambda part, random: _column(part, name, [row[name] for row in part][::-1])


def _moved_between(name: str) -> PartChange:
    """Leaves the sum over the window as it is."""

    def change(part: Part, random: Random) -> Part:
        for place, other in _pairs_of(part, random):
            values = part[place][name], part[other][name]
            if None in values or values[1] < 1:
                continue
            less = {**part[other], name: values[1] - 1}
            changed = _with_row(part, other, less)
            changed = _with_row(changed, place, {**part[place], name: values[0] + 1})
            if contents({0: part}) != contents({0: changed}):
                return changed
        return part

    return change


def _accumulated(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        sums, total = [], None
        for row in part:
            value = row[name]
            if value is not None:
                total = value if total is None else total + value
            sums.append(value if value is None else total)
        return _column(part, name, sums)

    return change


def _extreme(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        largest = max((row[name] for row in part if row[name] is not None), default=None)
        return _column(part, name, [None if row[name] is None else largest for row in part])

    return change


# Keys


def _key_damages(output: _Output, field: pa.Field) -> Iterator[Damage]:
    name, inside = field.name, output.inside
    yield inside("the rows of a key dropped", _key_dropped(name), name)
    yield inside("the rows of all keys but one dropped", _key_kept(name), name)
    yield inside("a row moved to an unknown key", _key_renamed(name, True), name)
    yield inside("a key renamed", _key_renamed(name, False), name)
    yield inside("a row added with an unknown key", _key_added(name), name)
    yield output.damage("a key's rows moved to the next window", _key_moved(name), name, reach=1)


def _key_dropped(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        key = plain(random.choice(part)[name])
        return [row for row in part if plain(row[name]) != key]

    return change


def _key_kept(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        key = plain(random.choice(part)[name])
        return [row for row in part if plain(row[name]) == key]

    return change


def _unknown(value: Any) -> Any:
    if isinstance(value, str):
        return value + "_2"
    if isinstance(value, bytes):
        return value + b"2"
    if isinstance(value, date):
        return value + timedelta(days=400)
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return value + 97 if is_number else value


def _key_renamed(name: str, one: bool) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        row = random.choice(part)
        new = _unknown(row[name])
        if one:
            return [{**row, name: new} if other is row else other for other in part]
        return _replaced(part, name, {plain(row[name]): new})

    return change


def _key_added(name: str) -> PartChange:
    def change(part: Part, random: Random) -> Part:
        row = random.choice(part)
        return [*part, {**row, name: _unknown(row[name])}]

    return change


def _key_moved(name: str) -> Change:
    def change(rows: Rows, window: int, random: Random) -> None:
        if not rows[window] or window + 1 not in rows:
            return
        key = plain(random.choice(rows[window])[name])
        moved = [row for row in rows[window] if plain(row[name]) == key]
        rows[window] = [row for row in rows[window] if plain(row[name]) != key]
        rows[window + 1] += [_into(row, window + 1) for row in moved]

    return change


# Two columns


def _pair_damages(output: _Output) -> Iterator[Damage]:
    by_type: dict[str, list[pa.Field]] = {}
    for field in output.columns:
        by_type.setdefault(str(field.type), []).append(field)
    for fields in by_type.values():
        for one, two in pairwise(fields):
            yield from _two_columns(output, one, two)


def _two_columns(output: _Output, one: pa.Field, two: pa.Field) -> Iterator[Damage]:
    name, other = one.name, two.name
    exchange = _turned(name, other)
    rows_exchanged = f"exchanged with {other} {ROW}"
    yield output.inside(rows_exchanged, _one_differing(exchange), name)
    yield output.inside(
        f"exchanged with {other} {ALL}", lambda part, random: list(map(exchange, part)), name
    )
    yield output.inside(
        f"that of {other} {ALL}",
        lambda part, random: [{**row, name: row[other]} for row in part],
        name,
    )
    are_counted = _is_plain_number(output, one) and _is_plain_number(output, two)
    if are_counted and pa.types.is_integer(one.type):
        yield output.inside(f"one counted as {other} {ROW}", _counted_as(name, other), name)


def _one_differing(change: Callable[[Row], Row]) -> PartChange:
    def change_one(part: Part, random: Random) -> Part:
        for place in random.sample(range(len(part)), len(part)):
            row = change(part[place])
            if plain(row) != plain(part[place]):
                return _with_row(part, place, row)
        return part

    return change_one


def _counted_as(name: str, other: str) -> PartChange:
    """Leaves the sum of the two columns as it is."""

    def counted(row: Row) -> Row:
        if row[name] is None or row[other] is None or row[name] < 1:
            return row
        return {**row, name: row[name] - 1, other: row[other] + 1}

    return _one_differing(counted)
