"""Values that the suites of generated applications use: what they know of a stream and of an
operator, as SQL.

Names of columns are quoted, since a stream may call a column as it likes. Columns that the suites
add begin with `_rw_q_`: `_rw_q_ts` and `_rw_q_at` are timestamp and arrival in microseconds. Like
the suites, these values follow from the rules of the outputs, not from the code that makes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil

import pyarrow as pa

from rewindow.names import POSITION_COLUMNS
from rewindow.operators.event_time.timestamp_checks import is_far, is_shrunk
from rewindow.operators.event_time_windows.operator import AggregateWindows
from rewindow.operators.event_time_windows.settings import EventWindows, SessionWindows
from rewindow.operators.filling.operator import FillGaps
from rewindow.operators.filling.settings import ColumnFill, FillRules
from rewindow.operators.heartbeat.function import IS_TIMER
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.sequences import excluding
from rewindow.storage import quoted
from rewindow.windows import Grid

Parameters = dict[str, str | int | float]
_TS = "_rw_q_ts"
_AT = "_rw_q_at"
_FAR_US = 4_000_000_000_000_000_000
"""Beyond every instant, in the place of a bound that is not set."""
OVERLAP_MAX = 64
"""Windows are compared with the stream where a tuple lies in so many of them at most."""


def heartbeat_parameters(stream: str, beat: Heartbeat, schema: pa.Schema) -> Parameters:
    """Returns what the suite `heartbeat` has to know of a stream: its names, and which of them
    timers fill.
    """
    passed = _groupable(schema)
    payload = excluding(passed, (beat.arrived_at, beat.event_at, *beat.key_by))
    return {
        **_names(stream, beat.event_at, beat.key_by),
        "interval_us": beat.interval_us,
        "slack_us": beat.slack_us,
        "columns": _listed(passed),
        "has_payload": " or ".join(f"{quoted(name)} is not null" for name in payload) or "false",
        "keeps_order": _truth(beat.max_jump is None),
        "one_by_one": _truth(beat.on_too_many == "stop"),
    }


def late_parameters(stream: str, operator: AggregateWindows, schema: pa.Schema) -> Parameters:
    """Returns what the suite `late_tuples` has to know: how the watermark follows the stream."""
    time = operator.event_time()
    (one,) = time.streams.values()
    usable = f"{_TS} is not null"
    if one.max_ahead_us is not None:
        usable += f" and not ({is_far(_TS, _AT, one.max_ahead_us)})"
        usable += f" and not ({is_shrunk(_TS, _AT)})"
    jumps = "false"
    if one.max_jump_us is not None:
        before = f"order by {_AT}, {_TS} rows between unbounded preceding and 1 preceding"
        jumps = f"{_TS} > max({_TS}) over ({before}) + {one.max_jump_us}"
    windows = operator.windows()
    missed = ["cast(null as bigint)"] * 2
    if isinstance(windows, EventWindows):
        length, slide = windows.length_us, windows.slide_us
        missed = [f"{_floor(f'{_TS} - {length}', slide)} + {slide}"]
        missed.append(f"{_floor(_TS, slide)} + {length}")
    elif isinstance(windows, SessionWindows):
        missed = [_TS, f"{_TS} + {windows.gap_us}"]
    timer = quoted(IS_TIMER)
    return {
        **_names(stream, operator.event_at, operator.keys),
        "tick_us": time.interval_us,
        "lag_us": time.lag_us,
        "is_usable": usable,
        "is_tuple": f"not coalesce({timer}, false)" if IS_TIMER in schema.names else "true",
        "jumps": jumps,
        "columns": _listed(excluding(_groupable(schema), ("attempt",))),
        "missed_begin": missed[0],
        "missed_end": missed[1],
    }


def fired_parameters(stream: str, operator: AggregateWindows, schema: pa.Schema) -> Parameters:
    """Returns what the suite `windows` has to know: where windows lie, and what they hold.

    Windows that fire more than once, count tuples, never end or overlap much are not compared with
    the stream.
    """
    windows = operator.windows()
    known = late_parameters(stream, operator, schema)
    expected = []
    agree = []
    for name, (function, argument) in operator.calls().items():
        of = argument if argument == "*" else quoted(argument)
        expected.append(f"{function}({of}) as {quoted(name)}")
        is_sum = function == "sum" and pa.types.is_floating(schema.field(argument).type)
        agree.append((_CLOSE if is_sum or function == "avg" else _EXACT).format(quoted(name)))
    known |= {
        "expected": ", ".join(expected),
        "values": _listed(operator.aggregates),
        "agree": " and ".join(agree),
        "is_window": "true",
        "placed": _NOWHERE,
        "reach_us": 0,
        "is_compared": "false",
    }
    if isinstance(windows, SessionWindows):
        known["reach_us"] = windows.behind_us
        known["is_compared"] = _truth(not windows.allowed_us)
        known["is_window"] = f"window_end_us >= window_begin_us + {windows.gap_us}"
        known["placed"] = _SESSIONS.format(gap_us=windows.gap_us, **known)
    elif isinstance(windows, EventWindows):
        length, slide = windows.length_us, windows.slide_us
        overlap = ceil(length / slide)
        known["is_compared"] = _truth(windows.fires_once and overlap <= OVERLAP_MAX)
        known["is_window"] = _IS_WINDOW.format(length=length, slide=slide)
        known["placed"] = _WINDOWS.format(
            length=length, overlap=overlap, last=_floor(_TS, slide), slide=slide
        )
    return known


# SQL for `windows`: whether the one row of an output and the expected one have equal values in a
# column, and the tuples on time with the windows that hold them.
_FOUND = "max(case when _rw_q_one = 1 then {0} end)"
_EXPECTED = "max(case when _rw_q_one = 0 then {0} end)"
_EXACT = f"({_FOUND} is not distinct from {_EXPECTED})"
_CLOSE = f"""coalesce(
    abs(cast({_FOUND} as double) - {_EXPECTED}) <= 1e-9 * greatest(1, abs({_EXPECTED}))
    or isnan(cast({_FOUND} as double)) and isnan(cast({_EXPECTED} as double)),
    {_FOUND} is null and {_EXPECTED} is null)"""
_NOWHERE = "select *, 0 as _rw_q_begin, 0 as _rw_q_end, 0 as _rw_q_due from _rw_q_on_time"
_IS_WINDOW = "window_end_us = window_begin_us + {length} and window_begin_us % {slide} = 0"
_WINDOWS = """select *, _rw_q_begin + {length} as _rw_q_end, _rw_q_begin + {length} as _rw_q_due
    from (select *, {last} - _rw_q_n * {slide} as _rw_q_begin from _rw_q_on_time
        cross join (select unnest(range(0, {overlap})) as _rw_q_n))
    where _rw_q_begin > _rw_q_ts - {length}"""
_SESSIONS = """select *, min(_rw_q_ts) over (partition by {keys}, _rw_q_n) as _rw_q_begin,
    max(_rw_q_ts) over (partition by {keys}, _rw_q_n) + {gap_us} as _rw_q_end,
    max(_rw_q_ts) over (partition by {keys}, _rw_q_n) + {reach_us} as _rw_q_due
    from (select *, sum(_rw_q_opens) over (partition by {keys} order by _rw_q_ts
            rows between unbounded preceding and current row) as _rw_q_n
        from (select *, case when _rw_q_ts - lag(_rw_q_ts) over
                (partition by {keys} order by _rw_q_ts) < {reach_us} then 0 else 1 end
                as _rw_q_opens
            from _rw_q_on_time))"""


def filled_parameters(
    stream: str,
    operator: FillGaps,
    schema: pa.Schema,
    max_ahead_us: int,
    grid: Grid,
) -> Parameters:
    """Returns what the suite `filled` has to know: the steps, and the methods of the columns.

    Args:
        max_ahead_us: a timestamp that runs further ahead of its arrival is not believed.
        grid: of the streaming windows.
    """
    rules = operator.rules()
    names = _names(stream, operator.event_at, operator.keys)
    ts = f"epoch_us({names['event_at']})"
    at = f"epoch_us({quoted(operator.arrived_at)})"
    begin_us = max(-_FAR_US, rules.origin + rules.first_point * rules.step_us)
    since_us = begin_us
    if rules.look_back_us is not None and rules.from_time is not None:
        since_us = rules.from_time - rules.look_back_us
    to_us = _FAR_US if rules.to_time is None else rules.to_time
    closing = (to_us - 1 - grid.origin_us) // grid.width_us
    known: Parameters = {
        **names,
        "step_us": rules.step_us,
        "grid_origin_us": rules.origin,
        "has_steps": _truth(rules.zone is None),
        "has_begin": _truth(rules.from_time is not None),
        "begin_us": begin_us,
        "since_us": since_us,
        "end_us": min(_FAR_US, rules.origin + rules.end_point * rules.step_us),
        "closing_window": closing,
        "closed_at_us": max(grid.start_us(closing), to_us - 1),
        "max_rows": operator.max_rows,
        "columns": _listed(excluding(_groupable(schema), ("attempt",))),
        "fills_nulls": _truth(bool(rules.nulls)),
        "is_believed": f"{ts} - {at} <= {max_ahead_us} and not ({is_shrunk(ts, at)})",
        "has_keys": " and ".join(f"{quoted(key)} is not null" for key in rules.keys) or "true",
    }
    keys = [f"select {known['keys']} from _rw_q_line where false"]
    keys += [f"select {', '.join(map(_text, values))}" for values in rules.expected_keys]
    known["expected_keys"] = " union ".join(keys)
    return known | _column_parameters(rules, schema, known)


# SQL for a column of a made row: {b} and {a} are the timestamps of the rows before and after that
# its value may be from, {v} and {w} the values there. A column that passes over some values has its
# own row before; behind a gap only the row that closes it is known. Of several rows of one instant
# it is not known which one is the source, so nothing is compared with them.
_PIECES = {
    "is_source": "_rw_q_moves and {usable}",
    "at_before": "partition by {keys}, case when {is_source} then _rw_q_ts else {side} end",
    "at_after": "partition by {keys}, case when _rw_q_moves then _rw_q_ts else _rw_q_a0 end",
    "sources": """max(case when {is_source} then {of} end) over ({at_before}) as _rw_q_v{number},
        count(case when {is_source} then 1 end) over ({at_before}) as _rw_q_nv{number},
        max(case when {is_source} then {of} end) over ({at_after}) as _rw_q_w{number},
        count(case when {is_source} then 1 end) over ({at_after}) as _rw_q_nw{number}""",
    "is_near": "_rw_q_ts - {side} <= {look_back_us}",
    "b": "(case when {is_near} then {side} end)",
    "a": "(case when _rw_q_nw{number} > 0 then _rw_q_a0 end)",
    "v": "(case when {is_near} then _rw_q_v{number} end)",
    "w": "_rw_q_w{number}",
    "is_before": "({a} is null or coalesce(_rw_q_ts - {b} <= {a} - _rw_q_ts, false))",
    "early": "coalesce(_rw_q_ts - {b} <= {max_carry_us}, true)",
    "later": "coalesce({a} - _rw_q_ts <= {max_carry_us}, true)",
    "gap": "coalesce({after}, {end_us}) - coalesce({before} + {step_us}, _rw_q_gap)",
    "is_short": "coalesce({gap} <= {max_gap_us}, true)",
}
_NO_SOURCE = {"at": "cast(null as varchar)", "carried": "true"}
_FORWARD = {"at": "cast({b} as varchar)", "taken": "{v}", "carried": "{early}"}
_METHODS = {
    "null": {**_NO_SOURCE, "taken": "null"},
    "constant": {**_NO_SOURCE, "taken": "{constant}"},
    "forward": _FORWARD,
    "previous_of": _FORWARD,
    "backward": {"at": "cast({a} as varchar)", "taken": "{w}", "carried": "{later}"},
    "nearest": {
        "at": "cast(case when {is_before} then {b} else {a} end as varchar)",
        "taken": "case when {is_before} then {v} else {w} end",
        "carried": "case when {is_before} then {early} else {later} end",
    },
    "linear": {
        "at": "cast({b} as varchar) || ',' || cast({a} as varchar)",
        "taken": "null",
        "carried": "{early} and {later}",
    },
}
"""By method: the timestamps of the sources, the value where it is one of theirs, and whether they
are near enough."""
_LINE = """coalesce(abs({c} - {v} - (cast({w} as double) - {v}) * (_rw_q_ts - {b}) / ({a} - {b}))
    <= {rounded} + {digits} * greatest(abs({v}), abs({w})),
    {c} is null and ({v} is null or {w} is null))"""
_RIGHT = {
    "same": "({c} is not distinct from {taken})",
    "said": """case when not {is_short} then 'none' when not ({carried}) then 'expired'
        else '{method}' end""",
    "is_used": "{is_short} and ({carried})",
    "used": "case when {is_used} then {at} end",
    "value": """case when {is_used} and ('{method}' = 'constant' or ({at}) is not null) then {same}
        else {c} is null end""",
    "named": """case when ({used}) is null then strpos(_rw_sources, {label} || '[') = 0
        else strpos(_rw_sources, {label} || '[' || ({used}) || ']') > 0 end""",
    "right": """(_rw_q_nv{number} > 1 or _rw_q_closing > 1 or ({value}) and ({named})
        and strpos(_rw_methods, {label} || '"' || ({said}) || '"') > 0)""",
}
_SIDE = """, max(case when _rw_q_moves and {usable} then _rw_q_ts end) over (partition by {keys}
    order by window_id, _rw_q_ts rows between unbounded preceding and 1 preceding) as {side}"""
_USABLE = "not coalesce(isnan(cast({0} as double)) or {0} < {1} or {0} > {2}, {3})"


def _column_parameters(rules: FillRules, schema: pa.Schema, known: Parameters) -> Parameters:
    """Returns SQL for where the values of made rows come from, and for whether they are wrong."""
    sides = ""
    sources = "_rw_q_sided"
    made_wrong = _wrong_gap_id(rules, schema)
    null_wrong = ["false"]
    others = {*POSITION_COLUMNS, "arrived_at", rules.event_at, *rules.keys, *rules.columns}
    for name in excluding(schema.names, others):
        made_wrong.append(f"{quoted(name)} is not null")
    for number, (name, fill) in enumerate(rules.columns.items(), 1):
        kind = schema.field(name).type
        if fill.method == "seasonal" or fill.extrapolate or pa.types.is_nested(kind):
            continue
        column = quoted(name)
        side = f"_rw_q_b{number}" if name in rules.source_columns else "_rw_q_b0"
        about = {
            **known,
            "number": number,
            "side": side,
            "before": _point(side, rules),
            "after": _point("_rw_q_a0", rules),
            "usable": _usable(column, fill),
            "of": quoted(fill.column or name),
            "method": fill.method,
            "label": _text(json.dumps(name, ensure_ascii=False) + ":"),
            "constant": _literal(fill.value),
            "rounded": 0.5 if pa.types.is_integer(kind) else 0.51 / 10 ** getattr(kind, "scale", 9),
            "digits": 1e-7 if pa.types.is_float32(kind) else 1e-12,
            "look_back_us": rules.look_back_us or _FAR_US,
            "max_carry_us": _us(fill.max_carry),
            "max_gap_us": _us(fill.max_gap),
        }
        pieces = {**_PIECES, **_METHODS[fill.method], **_RIGHT}
        if fill.method == "linear":
            pieces["same"] = _LINE
        made = _filled_in(pieces, {**about, "c": column})
        made_wrong.append(f"not {made['right']}")
        # Each by itself: DataFusion fails where one query has an aggregate over rows twice.
        sources = f"(select *, {made['sources']} from {sources})"
        if name in rules.source_columns:
            sides += _SIDE.format(**about)
        if name in rules.nulls:
            value = quoted(f"_rw_filled_{name}")
            right = _filled_in(pieces, {**about, "c": value})["right"]
            empty = f"({column} is not null or _rw_q_ts < {known['begin_us']})"
            made_wrong.append(f"{value} is not null")
            null_wrong.append(f"not case when {empty} then {value} is null else {right} end")
    return {
        "sides": sides,
        "sources": sources,
        "is_made_wrong": " or ".join(made_wrong),
        "is_null_wrong": " or ".join(null_wrong),
    }


def _filled_in(pieces: Mapping[str, str], known: Parameters) -> Parameters:
    """Returns values with some templates among them, each filled in with those before it."""
    for name, template in pieces.items():
        known[name] = template.format(**known)
    return known


def _usable(column: str, fill: ColumnFill) -> str:
    """Returns SQL for whether a value of a column may be a source."""
    if fill.is_guarded:
        least = -_FAR_US if fill.min_value is None else fill.min_value
        most = _FAR_US if fill.max_value is None else fill.max_value
        return _USABLE.format(column, least, most, _truth(fill.treat_null_as_missing))
    return f"{column} is not null" if fill.treat_null_as_missing else "true"


def _wrong_gap_id(rules: FillRules, schema: pa.Schema) -> list[str]:
    """Returns SQL for whether the id is not that of the gap; of keys that are texts, since others
    have forms of their own in JSON.
    """
    parts = ["'{'"]
    plain = ["true"]
    for key in rules.keys:
        if not pa.types.is_string(schema.field(key).type):
            return ["false"]
        value = quoted(key)
        parts += [_text(json.dumps(key) + ':"'), value, "'\",'"]
        plain.append(f"strpos({value}, '\"') + strpos({value}, '\\') = 0")
    number = f"(_rw_q_gap - ({rules.origin})) / {rules.step_us}"
    parts.append(f"'\"_rw_from\":' || cast({number} as varchar) || '}}'")
    gap_id = f"substr(encode(sha256({' || '.join(parts)}), 'hex'), 1, 16)"
    return [f"({' and '.join(plain)} and (_rw_gap_id is distinct from {gap_id}))"]


def _us(seconds: Decimal | None) -> int:
    return _FAR_US if seconds is None else int(seconds * 1_000_000)


def _point(ts: str, rules: FillRules) -> str:
    """Returns SQL for the begin of the step that an instant lies in."""
    return f"({_floor(f'{ts} - ({rules.origin})', rules.step_us)} + ({rules.origin}))"


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, int | float) else _text(str(value))


def _names(stream: str, event_at: str, keys: Iterable[str]) -> Parameters:
    return {
        "stream": quoted(stream.replace(".", "_")),
        "event_at": quoted(event_at),
        "keys": _listed(keys) or "1",
    }


def _groupable(schema: pa.Schema) -> list[str]:
    """Returns the event columns that SQL can group by: those without a map in them."""
    plain = [field.name for field in schema if "map<" not in str(field.type)]
    return excluding(plain, POSITION_COLUMNS)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _floor(value: str, step_us: int) -> str:
    """Returns SQL for the multiple of a step at or below a value, below zero too."""
    return f"(({value}) - ((({value}) % {step_us}) + {step_us}) % {step_us})"


def _truth(value: bool) -> str:
    return str(value).lower()


def _text(value: str) -> str:
    """Returns a text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"
