"""Error tuples of real attempts: stored, counted, published, listed, and never twice
(docs/rules/decisions.md X14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rewindow.certificate.certificate import EQUAL, certify
from rewindow.crash import Step
from rewindow.errors import InputError, TableError
from rewindow.facts.group_facts import check_error_counts
from rewindow.facts.window_facts import COUNTS_SCHEMA, WindowFacts
from rewindow.inspection.error_tuples import read_errors
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.loading.suites import suite_for
from rewindow.names import PUBLISHED
from rewindow.planning import create_replay
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.quality.window_table import Sources, build_report
from rewindow.recovery import Plan
from rewindow.retention.purge import purge
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS
from tests.engine.conftest import Crash
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rewindow.engine.attempt import Attempt

Attempts = Callable[..., "Attempt"]
PORT = "split.odd"


def emitted(config: Config) -> Counter[tuple]:
    """Returns what the application puts on its error port, from the stream itself."""
    sql = 'select window_id, key, x, "offset" from e where x % 2 <> 0'
    rows = query(sql, e=Table.open(config.stream_table("events"))).to_pylist()
    return Counter(
        (
            row["window_id"],
            row["key"],
            row["x"],
            "emitted" if row["key"] == "a" else "bad_type",
            f"{row['x']} is odd",
            str(row["offset"]),
        )
        for row in rows
    )


def listed(config: Config, plan: Plan, window: int | None = None) -> Counter[tuple]:
    rows = read_errors(config, plan, PORT, window, 10_000).rows.to_pylist()
    assert all(
        (row["_rw_replay"], row["_rw_window"]) == (plan.replay_id, row["window_id"]) for row in rows
    )
    names = ("window_id", "key", "x", "_rw_reason", "_rw_detail", "_rw_position")
    return Counter(tuple(row[name] for name in names) for row in rows)


def lost_windows(config: Config, plan: Plan) -> set[int]:
    sql = f"select window_id from f where direction = 'error' and port = '{PORT}' and lost"
    return set(query(sql, f=config.replay_root(plan.replay_id) / FACTS)["window_id"].to_pylist())


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once", "at_most_once"])
def test_error_tuples_have_the_guarantee_of_their_mode(mode: str, attempt: Attempts) -> None:
    # Rules: O19, O65 to O67, O69, O70
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options = {"mode": mode, "group_windows": 8}
    with pytest.raises(Crash):
        attempt("rejects", "one", (Step.AFTER_FIRST_OUTPUT, 2), **replay_options).run()
    last = attempt("rejects", "one", **replay_options)
    last.run()
    lost = lost_windows(config, last.plan)
    assert lost == (set(range(FIRST + 8, FIRST + 16)) if mode == "at_most_once" else set())
    wanted = Counter({row: count for row, count in emitted(config).items() if row[0] not in lost})
    assert listed(config, last.plan) == wanted
    sql = (
        f"select window_id, tuples from f where direction = 'error' and port = '{PORT}' and not "
        "lost"
    )
    facts = query(sql, f=config.replay_root("one") / FACTS)
    assert dict(zip(*facts.to_pydict().values(), strict=True)) == {
        w: sum(count for row, count in wanted.items() if row[0] == w)
        for w in range(FIRST, FIRST + WINDOWS)
        if w not in lost
    }


def test_error_tuples_are_published_undone_and_listed_after_a_purge(
    attempt: Attempts,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    caplog.clear()
    run = attempt("rejects", "one", group_windows=WINDOWS)
    run.run()
    ledger = Ledger.open(config.ledger_url)
    wanted = emitted(config)
    ledger.attempts.end("one", run.epoch, AttemptEnd.DONE)
    assert [t.tuples for t in ledger.counts.totals("one") if t.direction == "error"] == [
        wanted.total()
    ]
    assert any(f"error port {PORT}: {wanted.total()} tuples" in line for line in caplog.messages)
    sources = Sources.open(config.replay_root("one"), "even", config.quarantine_table)
    report = build_report(
        run.plan,
        run.plan.outputs[0],
        sources,
        suite_for(config.expectations, None).measures,
    )
    assert sum(report["error_tuples"].to_pylist()) == wanted.total()

    publish(config, "one", accept="a test")
    stream = config.stream_table(f"rejects.{PORT}")
    assert Table.open(stream).schema.names[:5] == ["window_id", "offset", "arrived_at", "key", "x"]
    purge(config, timedelta(0), delete=True)
    assert not Table.exists(config.replay_root("one") / PORT)
    assert listed(config, run.plan) == wanted
    undo(config, "one")
    assert query("select count(*) as n from s", s=stream)["n"][0].as_py() == 0
    with pytest.raises(TableError, match=f"{wanted.total()} error tuples of port .* are gone"):
        read_errors(config, run.plan, PORT, None, 10)


def test_invalid_reason_of_a_frame_operator_is_rejected_and_nothing_is_committed(
    attempt: Attempts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O68
    monkeypatch.setenv("SPLIT_REASON", "no idea")
    with pytest.raises(InputError, match="reason 'no idea' of an error tuple on port"):
        attempt("rejects", "one", group_windows=WINDOWS).run()
    config: Config = attempt.config  # type: ignore[attr-defined]
    assert (
        query("select count(*) as n from o", o=config.replay_root("one") / "even")["n"][0].as_py()
        == 0
    )


def test_custom_error_reason_of_an_operator_is_stored_and_counted(
    attempt: Attempts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O68, X14
    monkeypatch.setenv("SPLIT_REASON", "not_even")
    run = attempt("rejects", "one", group_windows=WINDOWS)
    run.run()
    config: Config = attempt.config  # type: ignore[attr-defined]
    found = read_errors(config, run.plan, PORT, None, 10)
    expected = Counter(row[3] for row in emitted(config).elements())
    counts = Counter[str]()
    for count in found.counts:
        counts[count.reason] += count.tuples
    assert counts == {"emitted": expected["emitted"], "not_even": expected["bad_type"]}


@pytest.mark.parametrize("allowed", [0, 1, None])
def test_window_with_more_error_tuples_than_allowed_ends_the_replay(
    allowed: int | None,
    attempt: Attempts,
) -> None:
    # Rules: O71
    config: Config = attempt.config  # type: ignore[attr-defined]
    counts = Counter(row[0] for row in emitted(config).elements())
    limited = config.model_copy(
        update={"replay": config.replay.model_copy(update={"errors_max": allowed})}
    )
    plan = create_replay(limited, request(application="rejects", replay_id="planned"))
    assert plan.errors_max == allowed
    digests = {
        PORT: WindowFacts.of(pa.table([list(counts), list(counts.values())], schema=COUNTS_SCHEMA))
    }
    if allowed is None or max(counts.values()) <= allowed:
        check_error_counts(plan, digests)
        check_error_counts(plan.model_copy(update={"errors_max": max(counts.values())}), digests)
        own = [one.model_copy(update={"errors_max": 0}) for one in plan.errors]
        with pytest.raises(InputError, match=r"at most 0 are allowed \(errors_max of the port\)"):
            check_error_counts(plan.model_copy(update={"errors": own}), digests)
        return
    first = min(window for window, count in counts.items() if count > allowed)
    run = attempt("rejects", "one", group_windows=24)
    run.plan = run.plan.model_copy(update={"errors_max": allowed})
    with pytest.raises(
        InputError,
        match=f'window {first} has {counts[first]} error tuples on port "{PORT}"',
    ):
        run.run()
    facts = query(
        "select count(*) as n from f where direction <> 'in'",
        f=config.replay_root("one") / FACTS,
    )
    assert facts["n"][0].as_py() == 0


def test_columns_with_dots_and_backticks_are_written_and_published(
    attempt: Attempts,
    spark: SparkSession,
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("odd_names", "one", group_windows=24).run()
    Ledger.open(config.ledger_url).attempts.end("one", 1, AttemptEnd.DONE)
    publish(config, "one", accept="a test")
    even, odd = (
        query(
            'select "a.`key`" as key, "x`" as x from t',
            t=config.stream_table(f"odd_names.{name}"),
        )
        for name in ("even", "rename.odd")
    )
    wanted = query("select key, x from e", e=config.stream_table("events")).to_pylist()
    rows = [*even.to_pylist(), *odd.to_pylist()]
    assert Counter(map(repr, rows)) == Counter(map(repr, wanted))
    assert all(row["x"] % 2 == 0 for row in even.to_pylist())


@pytest.mark.long
def test_certificate_compares_error_tables_like_outputs(
    attempt: Attempts,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    for name, reason in (("one", "bad_type"), ("two", "bad_type"), ("three", "late")):
        monkeypatch.setenv("SPLIT_REASON", reason)
        attempt("rejects", name, group_windows=24).run()
        Ledger.open(config.ledger_url).attempts.end(name, 1, AttemptEnd.DONE)
    publish(config, "one", accept="a test")
    for reference in ("one", PUBLISHED):
        equal, other = (certify(config, reference, name) for name in ("two", "three"))
        assert (equal.verdict, equal.data_read, equal.notes) == (EQUAL, False, [])
        verdicts = {output.name: bool(output.ranges) for output in other.outputs}
        assert verdicts == {"even": False, PORT: True}
        first = other.first_difference
        assert first is not None
        assert (first["output"], {row["_rw_reason"] for row in first["rows_b"]}) == (PORT, {"late"})
        full = certify(config, reference, "two", full=True)
        assert (full.verdict, full.contents) == (EQUAL, "read")
