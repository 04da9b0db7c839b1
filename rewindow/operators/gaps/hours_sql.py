"""The clock of opening hours as SQL for DataFusion: the equivalent of `HoursGrid.clock` in
Spark, without a JVM.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewindow.operators.schedule.hours_grid import DAY_US, MONDAY_US, WEEK_US, HoursGrid


def clock_sql(grid: HoursGrid, rows: str, names: Sequence[str]) -> str:
    """Returns the query for rows whose column `t` is the elapsed opening time, null outside the
    hours.

    Nested conditions find the piece that contains an instant by binary search. The numbers of the
    piece are joined to the row.

    Args:
        grid: the hours.
        rows: a query with `t`, in microseconds since 1970-01-01 UTC, and the other columns.
        names: the other columns.
    """
    step = grid.step_us
    of_day = grid.points_of_day
    opens = grid.opens
    pieces = []
    starts = []
    for number, piece in enumerate(grid.pieces):
        base = "null" if piece.base is None else piece.base
        pieces.append(f"({number}, {piece.offset}, {base}, {piece.first}, {piece.rest})")
        starts.append(piece.start)
    # Division rounds towards zero. So a dividend that may be negative is increased by a multiple of
    # the step, and the quotient is reduced again.
    up = -(-WEEK_US // step)
    steps = []
    open_at = []
    for at in opens:
        passed = f"(r - {at} + {up * step}) / {step} - {up - 1}"
        steps.append(f"least(greatest({passed}, 0), {of_day})")
        open_at.append(f"(r >= {at} and r < {at - grid.open_us + grid.close_us})")
    is_open = " or ".join(open_at)
    count = " + ".join(steps)
    listed = "".join(map("{}, ".format, names))
    index = _halves(starts, 0)
    return f"""
    select {listed}case when t < rest or (({is_open}) and number > first) then (number - 1) * {step}
        + case when t < rest then {step - 1} else (r % {DAY_US} - {grid.open_us}) % {step} end end
            as t
    from (select *, coalesce(base + (l - r) / {WEEK_US} * {of_day * len(opens)} + {count}, first)
        as number
          from (select *, (l % {WEEK_US} + {WEEK_US}) % {WEEK_US} as r
                from (select s.*, p.base, p.first, p.rest, t + p.zone_offset - {MONDAY_US} as l
                      from (select *, {index} as piece from ({rows}) as s) as s
                      join (values {", ".join(pieces)}) as p(piece, zone_offset, base, first, rest)
                          on s.piece = p.piece)
                as s) as s) as s"""


def _halves(starts: Sequence[int], first: int) -> str:
    """Returns SQL for the number of the last start that is not after `t`.

    If all starts are after `t`, it is the first number.
    """
    if len(starts) == 1:
        return str(first)
    half = len(starts) // 2
    below = _halves(starts[:half], first)
    above = _halves(starts[half:], first + half)
    return f"case when t < {starts[half]} then {below} else {above} end"
