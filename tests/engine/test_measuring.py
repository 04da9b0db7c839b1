"""A replay stores its measures with its seals: as the gate would take them, whatever happened to
its attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake

from rewindow.crash import Step
from rewindow.loading.suites import canonical
from rewindow.quality.gate import suite_of
from rewindow.quality.window_table import Sources, WindowReport, make_report
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS, FACTS_SCHEMA
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, GROUP

if TYPE_CHECKING:
    from rewindow.engine.attempt import Attempt

Attempts = Callable[..., "Attempt"]
LAST = FIRST + 3 * GROUP - 1
STORED = {
    "total": {"sql": "sum(total)", "empty": 0},
    "share": "sum(share)",
    "mean": "avg(share) filter (where not isnan(share))",
    "few": "max(few)",
    "exact": "sum(cast(few as decimal(9,2)))",
    "begins": "min(window_id * {width_us} + {origin_us})",
}
LEFT = {"middle": "median(total)", "keys": "count(distinct key)", "least": "min(key)"}

pytestmark = pytest.mark.jvm


@pytest.fixture
def project(attempt: Attempts) -> Config:
    config: Config = attempt.config  # type: ignore[attr-defined]
    set_suite(config, STORED | LEFT)
    return config


def set_suite(config: Config, measures: dict[str, Any]) -> None:
    folder = config.expectations / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    check = {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "total"},
        "severity": "critical",
        "meta": {"check": "total-known"},
        "description": "Every window has a total.",
    }
    suite = {"name": "shares", "expectations": [check], "meta": {"measures": measures}}
    (folder / "shares.json").write_text(canonical(suite))


def report(config: Config, attempt: Attempt, *, stored: bool, output: int = 0) -> WindowReport:
    """Returns the window report of an output, from the facts as they are or without what they
    store.
    """
    root = config.replay_root(attempt.plan.replay_id)
    found = attempt.plan.outputs[output]
    sources = Sources.open(root, found.name, config.quarantine_table)
    if not stored:
        names = ", ".join(name for name in FACTS_SCHEMA.names if name != "measures")
        bare = root.parent / f"{root.name}-bare-{found.name}"
        write_deltalake(str(bare), query(f"select {names} from f", f=sources.facts))
        sources = replace(sources, facts=Table.open(bare))
    measures = tuple(one for one in suite_of(config, found).measures if one.name != "share")
    return make_report(attempt.plan, found, sources, measures)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("exactly_once", Step.AFTER_FIRST_OUTPUT), ("exactly_once", Step.AFTER_OUTPUTS),
        ("at_least_once", Step.AFTER_OUTPUTS), ("at_least_once", Step.AFTER_FACTS),
        ("at_most_once", Step.AFTER_OUTPUTS),
    ],
)  # fmt: skip
def test_stored_measures_equal_the_gate_measures_even_after_a_crash(
    attempt: Attempts,
    project: Config,
    mode: str,
    step: Step,
) -> None:
    # Rules: R52
    with pytest.raises(Crash):
        attempt("measured", "one", (step, 2), mode=mode, last=LAST).run()
    run = attempt("measured", "one", mode=mode, last=LAST)
    run.run()
    for output in (0, 1):
        taken, measured = (
            report(project, run, stored=stored, output=output) for stored in (True, False)
        )
        assert taken.table.equals(measured.table), "what is stored differs from what is there"
        assert measured.stored == ()
        assert (taken.remark, measured.remark) == ("", "")
        if output == 0:
            assert set(taken.stored) == STORED.keys() - {"share"}
            assert set(taken.measured) == set(LEFT), (
                "what Spark may understand otherwise, or for the price of a pass"
            )
    facts = query(
        "select port, direction, lost, tuples, measures from f",
        f=project.replay_root("one") / FACTS,
    )
    for row in facts.to_pylist():
        has_some = row["direction"] == "out" and not row["lost"] and row["tuples"] > 0
        assert (row["measures"] is not None) == has_some, row


def test_nan_and_null_measures_are_stored_unchanged(attempt: Attempts, project: Config) -> None:
    run = attempt("measured", "one", last=LAST)
    run.run()
    rows = query("select * from o", o=project.replay_root("one") / "shares").to_pandas()
    root = project.replay_root("one")
    output = run.plan.outputs[0]
    digests = {one.name: one.digest(output.columns) for one in suite_of(project, output).measures}
    sql = (
        "select window_id, measures from f where port = 'shares' and direction = 'out' and "
        "tuples > 0"
    )
    for row in query(sql, f=root / FACTS).to_pylist():
        cells = {cell["measure"]: cell for cell in row["measures"]}
        window = rows[rows["window_id"] == row["window_id"]]
        few = window["few"].max()
        assert cells[digests["few"]]["whole"] == (None if few != few else int(few))
        share = cells[digests["share"]]["real"]
        assert (share != share) == window["share"].isna().any()


@pytest.mark.long
def test_failed_measure_in_spark_is_reported_and_does_not_end_the_replay(
    attempt: Attempts,
    project: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    set_suite(project, STORED | {"huge": "sum(total * 9000000000000000000)"})
    caplog.clear()
    run = attempt("measured", "one", last=LAST)
    run.run()
    assert [
        line for line in caplog.messages if "from now on the gate computes the measures" in line
    ]
    stored = query("select count(measures) as n from f", f=project.replay_root("one") / FACTS)["n"][
        0
    ].as_py()
    assert stored == 0
    set_suite(project, STORED)
    assert set(report(project, run, stored=True).measured) == STORED.keys() - {"share"}
