"""What each mode promises, checked on the tables of a replay against an undisturbed one: by digests
and by rows.
"""

from __future__ import annotations

from collections import Counter

from rewindow.application import Mode
from rewindow.facts.readers import read_output
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS

OUTPUTS = ("sums", "totals")
Rows = Counter[tuple]


def raw(config: Config, plan: Plan, output: str) -> Rows:
    """Returns all rows that a staged table holds, of every attempt."""
    return _rows(
        query("select window_id, key, total from o", o=config.replay_root(plan.replay_id) / output)
    )


def seen(config: Config, plan: Plan, output: str) -> Rows:
    rows = read_output(config.replay_root(plan.replay_id), output, plan.range)
    return _rows(rows.select(["window_id", "key", "total"]))


def seals(config: Config, plan: Plan, output: str) -> list[dict]:
    sql = (
        f"select * from f where direction = 'out' and port = '{output}' order by window_id, attempt"
    )
    return query(sql, f=config.replay_root(plan.replay_id) / FACTS).to_pylist()


def check_promise(config: Config, plan: Plan, baseline: Plan) -> None:
    """Asserts the promise of the plan's mode, and what holds in every mode."""
    {
        Mode.EXACTLY_ONCE: _check_exactly_once,
        Mode.AT_LEAST_ONCE: _check_at_least_once,
        Mode.AT_MOST_ONCE: _check_at_most_once,
    }[plan.mode](config, plan, baseline)
    check_balance(config, plan)


def _check_exactly_once(config: Config, plan: Plan, baseline: Plan) -> None:
    """Every window once: rows, seals and digests are those of the undisturbed run; so is the last
    state.
    """
    for output in OUTPUTS:
        assert raw(config, plan, output) == seen(config, baseline, output), f"{output}: rows differ"
        found = seals(config, plan, output)
        want = seals(config, baseline, output)
        assert [row["window_id"] for row in found] == list(plan.range), (
            f"{output}: not one seal for every window"
        )
        assert [row["digest"] for row in found] == [row["digest"] for row in want], (
            f"{output}: digests differ"
        )
    assert last_state(config, plan) == last_state(config, baseline)


def _check_at_least_once(config: Config, plan: Plan, baseline: Plan) -> None:
    """Nothing lost; readers see every window once; repeats are whole windows after a due
    checkpoint.
    """
    for output in OUTPUTS:
        assert seen(config, plan, output) == seen(config, baseline, output), (
            f"{output}: readers see something else"
        )
        assert set(raw(config, plan, output)) == set(seen(config, baseline, output)), (
            f"{output}: foreign rows"
        )
        by_window = Counter(row["window_id"] for row in seals(config, plan, output))
        assert set(by_window) == set(plan.range), f"{output}: a window has no seal"
    assert last_state(config, plan) == last_state(config, baseline)


def _check_at_most_once(config: Config, plan: Plan, baseline: Plan) -> None:
    """Nothing twice; what is missing is listed, window by window, and what is listed is missing."""
    for output in OUTPUTS:
        rows = raw(config, plan, output)
        want = raw(config, baseline, output)
        keys = Counter((window, key) for window, key, _ in rows.elements())
        assert max(keys.values(), default=0) <= 1, f"{output}: a tuple is there twice"
        found = seals(config, plan, output)
        assert len({row["window_id"] for row in found}) == len(found) == len(plan.range), (
            f"{output}: facts per window"
        )
        lost = {row["window_id"] for row in found if row["lost"]}
        there = {row[0] for row in rows}
        all_windows = {row[0] for row in want}
        assert all_windows - there == lost & all_windows, (
            f"{output}: lost {lost}, absent {all_windows - there}"
        )
    kept = {
        row
        for row in raw(config, baseline, "sums")
        if row[0] not in lost_windows(config, plan, "sums")
    }
    assert set(raw(config, plan, "sums")) == kept, (
        "an output without state differs in a window that was not lost"
    )


def check_balance(config: Config, plan: Plan) -> None:
    """R53: tuples recorded = processed + lost, per window taken once; those of windows that an
    output has lost are lost.
    """
    sql = """select window_id, max(tuples) as n, bool_or(lost) as lost from f
        where direction = 'in' group by window_id"""
    rows = query(sql, f=config.replay_root(plan.replay_id) / FACTS)
    assert sorted(rows["window_id"].to_pylist()) == list(plan.range)
    assert sum(rows["n"].to_pylist()) == sum(entry.tuples for entry in plan.inputs)
    given_up = set(rows.filter(rows["lost"])["window_id"].to_pylist())
    lost = set().union(*(lost_windows(config, plan, output) for output in OUTPUTS))
    assert lost <= given_up and bool(lost) == bool(given_up), (
        f"outputs have lost {lost}, of the inputs {given_up} are counted as lost"
    )


def lost_windows(config: Config, plan: Plan, output: str) -> set[int]:
    return {row["window_id"] for row in seals(config, plan, output) if row["lost"]}


def repeated_windows(config: Config, plan: Plan, output: str) -> set[int]:
    """Returns the windows that are sealed more than once."""
    counts = Counter(row["window_id"] for row in seals(config, plan, output))
    return {window for window, count in counts.items() if count > 1}


def last_state(config: Config, plan: Plan) -> dict:
    """Returns the state after the range, as plain values."""
    table = Table.open(config.replay_root(plan.replay_id) / CHECKPOINTS)
    found = stored.load(table, len(plan.range))
    return {
        name: sorted(read_rows(state).to_pylist(), key=str) for name, state in found.states.items()
    }


def _rows(table: object) -> Rows:
    return Counter(tuple(row.values()) for row in table.to_pylist())  # type: ignore[attr-defined]
