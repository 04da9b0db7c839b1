"""The gap report as SQL with the same result in Spark and in DataFusion: Spark for frames,
DataFusion without a JVM.

Rows are combined into *runs*. A run is the longest stretch without a hole, for a key and a *part*:
its rows, the values of a column, or its arrivals. However a recording is divided, the runs of its
pieces can be merged to the runs of the whole. So blocks of the stream are ordered separately, in
parallel, and only runs, which are few, are ordered as a whole. The report is computed from merged
runs only. All numbers are integers: grid points, or microseconds.

Rules: G16, G38
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewindow.operators.gaps.settings import GapSettings

ARRIVALS = -1
ROWS = 0
"""Parts; the parts of columns are numbered from 1."""
RUN = ("first_x", "last_x", "first_t", "last_t", "window_id", "place")
"""Columns of a run in addition to keys and part: first and last point (for arrivals, their
time), first and last time, and the tuple that starts it.
"""
MISSING_ROWS = "missing_rows"
RECORDED_NULLS = "recorded_nulls"
LULL = "lull"
LATE_REPAIRED = "late_repaired"
NEVER_STARTED = "never_started"
ENDED = "ended"
KINDS = (
    MISSING_ROWS,
    RECORDED_NULLS,
    LULL,
    LATE_REPAIRED,
    NEVER_STARTED,
    ENDED,
)
"""Kinds of gaps; each gap has exactly one.

Rules: G10 to G15, G18
"""
_BLOCK = 1 << 16
"""Points of a key, or multiples of its lull, that are ordered together."""
_FAR = 1 << 62


@dataclass(frozen=True)
class GapSql:
    """The queries of a gap report.

    Attributes:
        settings: the expected rows.
        divides: the operator of integer division: `div` in Spark, `/` in DataFusion.
    """

    settings: GapSettings
    divides: str

    @property
    def keys(self) -> list[str]:
        """The names of the key columns in the queries.

        They are generated, because a stream's keys can have any name.
        """
        return list(map("key_{}".format, range(len(self.settings.keys))))

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are 1 if a column has a value, and 0 otherwise.

        With windows, one more column is 1 if a row arrived in time.
        """
        count = len(self.settings.columns) + (self.settings.window_us is not None)
        return list(map("has_{}".format, range(count)))

    def in_time(self, t: str, window: str) -> str:
        """Returns SQL that is 1 if a row arrived in time, and 0 otherwise.

        A row is in time if it arrived in or before the window in which its stretch ends.

        Args:
            t: event time of the row.
            window: number of the window of its arrival.

        Rules: G13
        """
        ours = self.settings
        assert ours.window_us is not None, "asked for with windows"
        width = ours.window_us
        end = f"({ours.origin} + ({self.point(t)} + 1) * {ours.cadence_us})"
        return (
            f"case when {self._floor(f'({end} - 1 - {ours.window_origin})', width)} < {window} "
            "then 0 else 1 end"
        )

    def window(self, a: str) -> str:
        """Returns SQL for the number of the window that contains an arrival."""
        ours = self.settings
        assert ours.window_us is not None, "asked for with windows"
        return self._floor(f"({a} - {ours.window_origin})", ours.window_us)

    def point(self, t: str) -> str:
        """Returns SQL for the number of the grid point that contains a time.

        The number is rounded down, also before the origin.
        """
        return self._floor(f"({t} - {self.settings.origin})", self.settings.cadence_us)

    def _floor(self, number: str, by: int) -> str:
        return f"({number} - (({number} % {by}) + {by}) % {by}) {self.divides} {by}"

    def runs(self, rows: str) -> str:
        """Returns a query for the runs of each block of a stream.

        Args:
            rows: a table with the keys, `t` and `a` (event time and arrival, microseconds),
                `window_id`, `place`, and the columns of `columns`.
        """
        # A row starts a run unless it follows the row before it at most one step later. The running
        # number of starts is the number of the run, by which its rows are grouped.
        block = [*self.keys, "part", "block"]
        ordered = f"over (partition by {_list(block)} order by x, t, window_id, place)"
        upto = ordered.replace(")", " rows between unbounded preceding and current row)")
        return f"""
        select {_list([*self.keys, "part"])}, min(x) as first_x, max(x) as last_x, min(t)
            as first_t, max(t) as last_t,
            max(case when begins = 1 then window_id end) as window_id, max(case when begins = 1
                then place end) as place
        from (select *, sum(begins) {upto} as run
              from (select *, case when x - lag(x) {ordered} <= {self._reach()} then 0 else 1 end
                  as begins
                    from ({self._parts(rows)}) as s) as s) as s
        group by {_list([*block, "run"])}"""

    def _parts(self, rows: str) -> str:
        """Returns a query that copies each row for every part that it belongs to.

        Rows beyond the range, such as those in the far future, do not belong to any part.
        """
        numbers = [ROWS, *range(1, len(self.columns) + 1)]
        inside = f"p < {self.settings.end_point}"
        when = [f"when {ROWS} then {inside}"]
        for number, name in enumerate(self.columns, 1):
            when.append(f"when {number} then {inside} and {name} = 1")
        lull_us = self.settings.lull_us
        x = "p"
        t = "t"
        block = f"p {self.divides} {_BLOCK}"
        if lull_us is not None:
            numbers.insert(0, ARRIVALS)
            when.append(f"when {ARRIVALS} then a < {self.settings.to_time}")
            x = f"case when part = {ARRIVALS} then a else p end"
            t = f"case when part = {ARRIVALS} then a else t end"
            span = min(lull_us * _BLOCK, _FAR)
            block = f"case when part = {ARRIVALS} then a {self.divides} {span} else {block} end"
        keys = _listed(self.keys)
        return f"""
        select {keys} cast(part as bigint) as part, {x} as x, {t} as t, window_id, place, {block}
            as block
        from (select *, {self.point("t")} as p from {rows}) as r
        cross join (values {_rows_of(numbers)}) as parts(part)
        where case part {" ".join(when)} end"""

    def _reach(self) -> str:
        """Returns the largest distance between neighbours of a run: no hole between two points, and
        no lull between two arrivals.

        Rules: G8, G12
        """
        lull_us = self.settings.lull_us
        return (
            "1" if lull_us is None else f"(case when part = {ARRIVALS} then {lull_us} else 1 end)"
        )

    def merged(self, runs: str) -> str:
        """Returns a query that merges the runs of pieces to the runs of the whole recording."""
        key = [*self.keys, "part"]
        order = f"partition by {_list(key)} order by first_x, first_t, window_id, place, last_x"
        before = f"max(last_x) over ({order} rows between unbounded preceding and 1 preceding)"
        upto = f"over ({order} rows between unbounded preceding and current row)"
        return f"""
        select {_list(key)}, min(first_x) as first_x, max(last_x) as last_x, min(first_t)
            as first_t,
            max(last_t) as last_t, max(case when begins = 1 then window_id end) as window_id,
            max(case when begins = 1 then place end) as place
        from (select *, sum(begins) {upto} as run
              from (select *, case when first_x - {before} <= {self._reach()} then 0 else 1 end
                  as begins
                    from {runs}) as s) as s
        group by {_list([*key, "run"])}"""

    def gaps(self, runs: str, expected: str) -> str:
        """Returns a query with one row per gap.

        Columns: keys, part, kind, from_us, to_us, missing, and whether the gap extends to each
        bound of the range.

        Args:
            runs: merged runs.
            expected: a query with the expected keys, empty if there are none.

        Rules: G9
        """
        ours = self.settings
        points = f"""
            {ours.origin} + f * {ours.cadence_us} as from_us,
            {ours.origin} + u * {ours.cadence_us} as to_us,
            u - f as missing,
            f = {ours.first_point} as open_left,
            u = {ours.end_point} as open_right,
            window_id, place, {ours.origin} + since * {ours.cadence_us} as since_us"""
        found = [
            f"select {_listed(self.keys)} cast({ROWS} as bigint) as part, kind, {points} "
            f"from ({self._holes(runs, expected)}) as h where is_gap = 1"
        ]
        if self.columns:
            kind = (
                f"case when part > {len(ours.columns)} then '{LATE_REPAIRED}' else "
                f"'{RECORDED_NULLS}' end as kind"
            )
            nulls = f"{kind}, {points} from ({self._nulls(runs)}) as h"
            found.append(f"select {_listed(self.keys)} part, {nulls}")
        if ours.lull_us is not None:
            found.append(self._lulls(runs))
        return " union all ".join(found)

    def completeness(self, runs: str, expected: str) -> str:
        """Returns a query with one row per key and part, with the numbers of present, null, missing
        and tolerated points.

        These numbers add up to the number of all points.

        Rules: G17, G18
        """
        ours = self.settings
        keys = _listed(self.keys)
        count = len(ours.columns)
        # Each statement counts the points of one outcome and has 0 for all others. Together they
        # count every point of the range exactly once, so their sums can be checked.
        parts = f"(values {_rows_of(range(count + 1))}) as parts(part)"
        inside = f"least(last_x + 1, {ours.end_point}) - greatest(first_x, {ours.first_point})"
        pieces = [
            f"select {keys} part, greatest({inside}, 0) as present, 0 as nulls, 0 as missing, 0 as "
            "tolerated, "
            f"0 as is_expected from {runs} where part between {ROWS} and {count}",
            f"select {keys} cast(parts.part as bigint) as part, 0, 0, (u - f) * is_gap, (u - f) * "
            "(1 - is_gap), 0 "
            f"from ({self._holes(runs, expected)}) as h cross join {parts}",
            f"select {keys} cast(parts.part as bigint) as part, 0, 0, 0, 0, is_expected "
            f"from ({self._known(runs, expected)}) as k cross join {parts}",
        ]
        if count:
            nulls = f"({self._nulls(runs)}) as n where part <= {count}"
            pieces.append(f"select {keys} part, 0, u - f, 0, 0, 0 from {nulls}")
        numbers = (
            "sum(present) as present, sum(nulls) as nulls, sum(missing) as missing, "
            "sum(tolerated) as tolerated, max(is_expected) as is_expected"
        )
        return (
            f"select {keys} part, {numbers} "
            f"from ({' union all '.join(pieces)}) as s group by {_list([*self.keys, 'part'])}"
        )

    def _known(self, runs: str, expected: str) -> str:
        """Returns a query with all keys: keys that have rows up to the end of the range, and
        expected keys.

        Rules: G7
        """
        keys = _listed(self.keys)
        grouped = f"group by {_list(self.keys)}" if self.keys else ""
        every = [f"select {keys} 0 as is_expected from {runs} where part = {ROWS}"]
        every += [f"select {keys} 1 as is_expected from ({expected}) as x"] if expected else []
        without = "" if self.keys else "coalesce("
        default = "" if self.keys else ", 0)"
        return (
            f"select {keys} {without}max(is_expected){default} as is_expected "
            f"from ({' union all '.join(every)}) as k {grouped}"
        )

    def _holes(self, runs: str, expected: str) -> str:
        """Returns a query with each key's runs of points without a row, cut at the range.

        A run is `[f, u)`. `is_gap` is 0 for tolerated runs.
        """
        # One more row for each key, at the end of the range, closes the last hole. So every hole,
        # also at the borders of the range, is the space between a run and the one before it.
        ours = self.settings
        keys = _listed(self.keys)
        by = _partition(self.keys)
        null = "cast(null as bigint)"
        first = ours.first_point
        end = ours.end_point
        edges = f"""
            select {keys} first_x, last_x, first_t, last_t, window_id, place, 0 as is_end
            from {runs} where part = {ROWS}
            union all select {keys} {end}, {null}, {ours.at_us(end)}, {null}, {null}, {null}, 1
            from ({self._known(runs, expected)}) as k"""
        before = f"lag(last_x) over ({by} order by first_x, is_end) as before_x"
        silent = f"case when before_x is null then '{NEVER_STARTED}' else '{ENDED}' end"
        kind = f"case when is_end = 0 then '{MISSING_ROWS}' else {silent} end"
        is_gap = f"first_t - coalesce(before_t, {ours.at_us(first) - 1}) > {ours.tolerance_us}"
        return f"""
        select {keys} {kind} as kind, greatest(coalesce(before_x + 1, {first}), {first}) as f,
            first_x as u,
            coalesce(before_x + 1, {first}) as since, window_id, place,
            case when (is_end = 1 and before_x is null) or {is_gap} then 1 else 0 end as is_gap
        from (select *, {before}, lag(last_t) over ({by} order by first_x, is_end) as before_t
            from ({edges}) as e) as e
        where first_x > greatest(coalesce(before_x + 1, {first}), {first})"""

    def _nulls(self, runs: str) -> str:
        """Returns a query with the runs of points that have rows but no value, per key and column,
        cut at the range.

        Starts and ends of runs are added up along the points. A point has a null if it is in a run
        of rows but in no run of values.

        Rules: G11
        """
        columns = _rows_of(range(1, len(self.columns) + 1))
        keys = _listed(self.keys)
        key = [*self.keys, "part"]
        null = "cast(null as bigint)"
        ordered = f"over (partition by {_list(key)} order by x)"
        rows = f"from {runs} as r cross join (values {columns}) as c(number) where r.part = {ROWS}"
        number = "cast(c.number as bigint) as part"
        events = f"""
            select {keys} {number}, first_x as x, 1 as r, 0 as v, {null} as window_id, {null}
                as place {rows}
            union all select {keys} {number}, last_x + 1, -1, 0, {null}, {null} {rows}
            union all select {keys} part, first_x, 0, 1, window_id, place from {runs}
                where part > {ROWS}
            union all select {keys} part, last_x + 1, 0, -1, {null}, {null} from {runs}
                where part > {ROWS}"""
        points = f"""
            select {_list(key)}, x, sum(r) as r, sum(v) as v, max(window_id) as window_id,
                max(place) as place
            from ({events}) as e group by {_list(key)}, x"""
        return f"""
        select {_list(key)}, greatest(x, {self.settings.first_point}) as f, u, x as since,
            window_id, place
        from (select {_list(key)}, x, sum(r) {ordered} as r, sum(v) {ordered} as v,
            lead(x) {ordered} as u,
                  lead(window_id) {ordered} as window_id, lead(place) {ordered} as place
                      from ({points}) as p) as p
        where r = 1 and v = 0 and u > {self.settings.first_point}"""

    def _lulls(self, runs: str) -> str:
        """Returns a query with each key's lulls.

        A lull is a stretch between two arrivals, or from the last arrival to the end of the range.

        Rules: G12
        """
        ours = self.settings
        keys = _listed(self.keys)
        null = "cast(null as bigint)"
        arrivals = f"from {runs} where part = {ARRIVALS}"
        edges = f"""
            select {keys} first_x, last_x, window_id, place, 0 as is_end {arrivals}
            union all select distinct {keys} {ours.to_time}, {null}, {null}, {null}, 1 {arrivals}"""
        before = f"lag(last_x) over ({_partition(self.keys)} order by first_x, is_end) as before_x"
        length = "(first_x - before_x)"
        return f"""
        select {keys} cast({ARRIVALS} as bigint) as part, '{LULL}' as kind, before_x as from_us,
            first_x as to_us,
            ({length} - 1) {self.divides} {ours.lull_us} as missing, before_x < {ours.from_time}
                as open_left,
            is_end = 1 as open_right, window_id, place, before_x as since_us
        from (select *, {before} from ({edges}) as e) as e
        where {length} > {ours.lull_us} and first_x > {ours.from_time}"""

    def cadences(self, rows: str) -> str:
        """Returns a query for the most frequent time between two consecutive rows of a key, its
        frequency, and the number of all such times.
        """
        before = f"lag(t) over ({_partition(self.keys)} order by t)"
        steps = f"select t - {before} as step from {rows} where t is not null"
        counted = f"select step, count(*) as found from ({steps}) as s where step > 0 group by step"
        return (
            f"select step, found, total from ({counted}) as c cross join "
            f"(select sum(found) as total from ({counted}) as c) as t order by found desc, step "
            "limit 1"
        )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def _listed(names: Sequence[str]) -> str:
    """Returns the given names, each followed by a comma, as the start of a longer list."""
    return "".join(map("{}, ".format, names))


def _rows_of(numbers: Iterable[int]) -> str:
    """Returns the given numbers as rows of one column, for a VALUES clause."""
    return ", ".join(map("({})".format, numbers))


def _partition(names: Sequence[str]) -> str:
    return f"partition by {_list(names)}" if names else ""
