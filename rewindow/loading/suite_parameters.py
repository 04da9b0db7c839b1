"""Parameters for the suites of generated applications. They are properties of a stream and of an
operator, as SQL.

Names of columns are quoted, because columns of a stream may have any name. Columns that the suites
add start with `_rw_q_`: `_rw_q_ts` and `_rw_q_at` are timestamp and arrival in microseconds. Like
the suites, these values are derived from the rules of the outputs, not from the code that computes
them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
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
from rewindow.version import PACKAGE
from rewindow.windows import Grid

Parameters = dict[str, str | int | float]
_TS = "_rw_q_ts"
_AT = "_rw_q_at"
_FAR_US = 4_000_000_000_000_000_000
"""Later than any instant: replaces a limit that is not set."""
OVERLAP_MAX = 64
"""Windows are compared with the stream unless a tuple can be in more windows than this."""


def heartbeat_parameters(stream: str, beat: Heartbeat, schema: pa.Schema) -> Parameters:
    """Returns the parameters of the suite `heartbeat`: the names of columns, and the columns that
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
    """Returns the parameters of the suite `late_tuples`: how the watermark follows the stream."""
    time = operator.event_time()
    (one,) = time.streams.values()
    far = is_far(_TS, _AT, one.max_ahead_us or 0)
    jumps = "false"
    if one.max_jump_us is not None:
        before = f"order by {_AT}, {_TS} rows between unbounded preceding and 1 preceding"
        jumps = f"{_TS} > max({_TS}) over ({before}) + {one.max_jump_us}"
    windows = operator.windows()
    begin = end = "cast(null as bigint)"
    if isinstance(windows, EventWindows):
        begin = f"{_floor(f'{_TS} - {windows.length_us}', windows.slide_us)} + {windows.slide_us}"
        end = f"{_floor(_TS, windows.slide_us)} + {windows.length_us}"
    elif isinstance(windows, SessionWindows):
        begin = _TS
        end = f"{_TS} + {windows.gap_us}"
    return {
        **_names(stream, operator.event_at, operator.keys),
        "tick_us": time.watermark_interval_us,
        "lag_us": time.lag_us,
        "is_usable": f"{_TS} is not null and not ({far}) and not ({is_shrunk(_TS, _AT)})",
        "is_tuple": f"not coalesce({IS_TIMER}, false)" if IS_TIMER in schema.names else "true",
        "jumps": jumps,
        "columns": _listed(excluding(_groupable(schema), ("attempt",))),
        "missed_begin": begin,
        "missed_end": end,
    }


def fired_parameters(stream: str, operator: AggregateWindows, schema: pa.Schema) -> Parameters:
    """Returns the parameters of the suite `windows`: the bounds and the content of windows.

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


# SQL for `windows`: whether the single row of an output and the expected one have equal values in a
# column, and the tuples on time with the windows that contain them.
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
    grid: Grid,
) -> Parameters:
    """Returns the parameters of the suite `filled`: the steps, and the methods of the columns.

    Args:
        grid: grid of the streaming windows.
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
    max_ahead_us = operator.max_ahead_us or _FAR_US
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
    known |= {"key_texts": "'\"'", "key_json": "''"}
    if all(pa.types.is_string(schema.field(key).type) for key in rules.keys):
        parts = [
            f"{_text(json.dumps(key))} || ':\"' || {quoted(key)} || '\",'" for key in rules.keys
        ]
        known["key_texts"] = " || ".join(map(quoted, rules.keys)) or "''"
        known["key_json"] = " || ".join(parts) or "''"
    keys = [f"select {known['keys']} from _rw_q_line where false"]
    keys += [f"select {', '.join(map(_text, values))}" for values in rules.expected_keys]
    known["expected_keys"] = " union ".join(keys)
    return known | _column_parameters(rules, schema, known)


def _column_parameters(rules: FillRules, schema: pa.Schema, known: Parameters) -> Parameters:
    """Returns SQL for the sources of values in filled rows, and for whether these values are
    wrong.
    """
    templates = tomllib.loads((PACKAGE / "loading" / "filled_columns.toml").read_text())
    sides = ""
    sources = "_rw_q_sided"
    made_wrong = ["false"]
    null_wrong = ["false"]
    others = {*POSITION_COLUMNS, "arrived_at", rules.event_at, *rules.keys, *rules.columns}
    made_wrong += [f"{quoted(name)} is not null" for name in excluding(schema.names, others)]
    for number, (name, fill) in enumerate(rules.columns.items(), 1):
        kind = schema.field(name).type
        if fill.method == "seasonal" or pa.types.is_nested(kind):
            continue
        is_own = name in rules.source_columns
        column = quoted(name)
        about = {
            **known,
            "c": column,
            "number": number,
            "side": f"_rw_q_b{number}" if is_own else "_rw_q_b0",
            "usable": _usable(column, fill),
            "of": quoted(fill.column or name),
            "method": fill.method,
            "label": _text(json.dumps(name, ensure_ascii=False) + ":"),
            "constant": fill.value
            if isinstance(fill.value, int | float)
            else _text(str(fill.value)),
            "rounded": 0.501
            if pa.types.is_integer(kind)
            else 0.51 / 10 ** getattr(kind, "scale", 9),
            "digits": 1e-7 if pa.types.is_float32(kind) else 1e-12,
            "look_back_us": rules.look_back_us or _FAR_US,
            "max_carry_us": _FAR_US if fill.max_carry_us is None else fill.max_carry_us,
            "max_gap_us": _FAR_US if fill.max_gap_us is None else fill.max_gap_us,
            "is_unfilled": f"({column} is not null or _rw_q_ts < {known['begin_us']})",
        }
        method = templates["methods"]["extrapolated" if fill.extrapolate else fill.method]
        pieces = {**templates["pieces"], **method, **templates["right"]}
        made = _filled_in(pieces, about)
        made_wrong.append(f"not {made['right']}")
        # One subquery per column: DataFusion fails if a query has the same window function twice.
        sources = f"(select *, {made['sources']} from {sources})"
        sides += str(made["own_side"]) if is_own else ""
        if name in rules.nulls:
            filled = quoted(f"_rw_filled_{name}")
            made_wrong.append(f"{filled} is not null")
            null_wrong.append(f"not {_filled_in(pieces, {**about, 'c': filled})['right_filled']}")
    return {
        "sides": sides,
        "sources": sources,
        "is_made_wrong": " or ".join(made_wrong),
        "is_null_wrong": " or ".join(null_wrong),
    }


def _filled_in(templates: Mapping[str, str], known: Parameters) -> Parameters:
    """Returns the values with additional templates, each filled in with the previous values."""
    found = dict(known)
    for name, template in templates.items():
        found[name] = template.strip().format(**found)
    return found


def _usable(column: str, fill: ColumnFill) -> str:
    """Returns SQL that is true if a value of a column can be a source."""
    parts = [f"{column} is not null"] if fill.treat_null_as_missing else ["true"]
    if fill.is_guarded:
        least = -_FAR_US if fill.min_value is None else fill.min_value
        most = _FAR_US if fill.max_value is None else fill.max_value
        beyond = f"isnan(cast({column} as double)) or {column} not between {least} and {most}"
        parts.append(f"not coalesce({beyond}, false)")
    return " and ".join(parts)


def _names(stream: str, event_at: str, keys: Iterable[str]) -> Parameters:
    return {
        "stream": quoted(stream.replace(".", "_")),
        "event_at": quoted(event_at),
        "keys": _listed(keys) or "1",
    }


def _groupable(schema: pa.Schema) -> list[str]:
    """Returns the event columns by which SQL can group.

    These are the columns that contain no map.
    """
    plain = [field.name for field in schema if "map<" not in str(field.type)]
    return excluding(plain, POSITION_COLUMNS)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _floor(value: str, step_us: int) -> str:
    """Returns SQL that rounds a value down to a multiple of a step, including negative values."""
    return f"(({value}) - ((({value}) % {step_us}) + {step_us}) % {step_us})"


def _truth(value: bool) -> str:
    return str(value).lower()


def _text(value: str) -> str:
    """Returns a text as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"
