"""The gate's verdict: each check fails on the fault that it is for, names its windows, and blocks
or warns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rewindow.errors import GateError, InputError, TableError
from rewindow.ledger import Ledger, ReplayState
from rewindow.progress.listener import Lines
from rewindow.quality import GateResult, check, failures, judge
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay, ended, expectation, ledger_row, read_json

Fault = Callable[[StagedReplay], None]


def outcome(result: GateResult, slug: str) -> tuple[str, str, list[int]]:
    """Returns status, severity and failing windows of a check."""
    found = next(entry for entry in result.outputs[0].checks if entry.check == slug)
    return found.status, found.severity, [window for part in found.failing for window in part]


def lose(staged: StagedReplay, *windows: int, declared: bool) -> None:
    """Takes rows and seals of windows away; a declared loss leaves its facts."""
    staged.rows = [row for row in staged.rows if row["window_id"] not in windows]
    kept = []
    for fact in staged.facts:
        if fact["window_id"] not in windows:
            kept.append(fact)
        elif declared:
            kept.append({**fact, "lost": True, "tuples": 6 if fact["direction"] == "in" else 0})
    staged.facts = kept


def repeat(staged: StagedReplay, *windows: int) -> None:
    staged.rows += [{**row, "attempt": 2} for row in staged.rows if row["window_id"] in windows]
    staged.facts += [
        {**fact, "attempt": 2}
        for fact in staged.facts
        if fact["window_id"] in windows and fact["direction"] == "out"
    ]


def break_seal(staged: StagedReplay) -> None:
    """Takes a row away that the seal counts."""
    staged.rows.remove(next(row for row in staged.rows if row["window_id"] == 104))


def double_key(staged: StagedReplay) -> None:
    """Gives two rows of a window the same key; as many rows as before."""
    row = next(row for row in staged.rows if row["window_id"] == 105 and row["origin"] == "JFK")
    row["origin"] = "EWR"


def null_key(staged: StagedReplay) -> None:
    next(row for row in staged.rows if row["window_id"] == 106)["origin"] = None


def forget_tuples(staged: StagedReplay) -> None:
    next(fact for fact in staged.facts if fact["window_id"] == 107 and fact["direction"] == "in")[
        "tuples"
    ] = 5


def quarantine(reason: str) -> Fault:
    return lambda staged: staged.quarantine.append(
        {"window_id": 109, "source": "flights", "reason": reason}
    )


def reject(staged: StagedReplay) -> None:
    """Puts tuples on an error port, in a window of which a later attempt's count is what readers
    see.
    """
    counts = ((1, 9), (2, 2))
    staged.facts += [
        staged.fact(110, "error", "made.rejected", tuples, attempt) for attempt, tuples in counts
    ]


def begin_affected(staged: StagedReplay) -> None:
    """Lets the replay begin with a state that lacks windows."""
    staged.stateful = True
    staged.start = {"source": "published", "window": 99, "lacking": [(95, 96)]}


def empty(staged: StagedReplay) -> None:
    """Takes all rows of all windows away; each window is sealed as empty."""
    staged.rows = []
    staged.facts = [
        {**fact, "tuples": 0} if fact["direction"] == "out" else fact for fact in staged.facts
    ]


def unsealed_input(staged: StagedReplay) -> None:
    staged.seals.pop(9)


FAULTS: dict[str, tuple[Fault, str, list[int]]] = {
    "no-undeclared-loss": (
        lambda staged: lose(staged, 100, 101, declared=False),
        "critical",
        [100, 101],
    ),
    "no-declared-loss": (
        lambda staged: lose(staged, 102, 103, declared=True),
        "warning",
        [102, 103],
    ),
    "no-affected-windows": (begin_affected, "warning", list(range(100, 120))),
    "not-empty": (empty, "critical", []),
    "rows-as-sealed": (break_seal, "critical", [104]),
    "no-repeated-keys": (double_key, "critical", [105]),
    "no-null-keys": (null_key, "critical", [106]),
    "inputs-accounted-for": (forget_tuples, "critical", [107]),
    "no-undeclared-repeats": (lambda staged: repeat(staged, 108), "critical", [108]),
    "no-repeats": (lambda staged: repeat(staged, 108), "warning", [108]),
    "inputs-sealed": (unsealed_input, "warning", [109]),
    "nothing-late": (quarantine("late"), "info", [109]),
    "no-error-tuples": (reject, "warning", [110]),
    "nothing-quarantined": (quarantine("malformed"), "info", [109]),
}
NOT_BY_FAULT = {"every-window-reported"}
"""Shown by test_false_passes: a report without all windows is refused before it is evaluated."""


def test_correct_replay_passes_and_every_check_is_evaluated(staged: StagedReplay) -> None:
    lines: list[str] = []
    result = judge(staged.config, staged.write().plan, Lines(lines.append))
    verdict = result.outputs[0]
    assert (result.verdict, verdict.windows, verdict.failed, verdict.warnings) == (
        "passed",
        20,
        (),
        (),
    )
    assert {entry.status for entry in verdict.checks} == {"passed"}
    assert lines == [
        f"made: passed, {verdict.evaluated} checks on 20 windows, 0 failed, 0 warnings"
    ]


ALONE = ("no-affected-windows", "not-empty", "no-repeats")
"""Faults of the whole range, and one that is another's."""
SEEN_TOO = {"no-undeclared-loss": [102, 103], "inputs-accounted-for": [109]}
"""Windows of other faults that a check sees."""
TOGETHER = [slug for slug in FAULTS if slug not in ALONE]


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory: pytest.TempPathFactory) -> GateResult:
    staged = StagedReplay(tmp_path_factory.mktemp("faults"))
    for slug in TOGETHER:
        FAULTS[slug][0](staged)
    return judge(staged.config, staged.write().plan)


@pytest.mark.parametrize("slug", FAULTS)
def test_check_fails_on_its_fault_and_lists_exactly_the_faulty_windows(
    request: pytest.FixtureRequest,
    slug: str,
) -> None:
    fault, severity, windows = FAULTS[slug]
    if slug in ALONE:
        staged = request.getfixturevalue("staged")
        fault(staged)
        result = judge(staged.config, staged.write().plan)
    else:
        result = request.getfixturevalue("with_faults")
        windows = sorted({*windows, *SEEN_TOO.get(slug, [])})
    assert outcome(result, slug) == ("failed", severity, windows)
    assert result.verdict == "failed" or severity != "critical"
    found = next(entry for entry in result.outputs[0].checks if entry.check == slug)
    assert found.blocks is (severity == "critical")


def test_every_check_of_every_output_has_a_fault_that_triggers_it() -> None:
    from rewindow.loading.suites import read_suite
    from tests.quality.staging import PROJECT

    slugs = {entry["meta"]["check"] for entry in read_suite(PROJECT, "every_output").expectations}
    assert slugs == set(FAULTS) | NOT_BY_FAULT


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [("at_most_once", "passed"), ("exactly_once", "failed")],
)
def test_recorded_loss_passes_only_under_at_most_once(
    staged: StagedReplay,
    mode: str,
    verdict: str,
) -> None:
    staged.mode = mode
    lose(staged, 110, 111, declared=True)
    result = judge(staged.config, staged.write().plan)
    assert result.verdict == verdict
    assert outcome(result, "no-declared-loss")[0] == "failed"


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [("at_least_once", "passed"), ("exactly_once", "failed"), ("at_most_once", "failed")],
)
def test_repeated_rows_pass_the_check_only_under_at_least_once(
    staged: StagedReplay,
    mode: str,
    verdict: str,
) -> None:
    staged.mode = mode
    repeat(staged, 110, 111)
    result = judge(staged.config, staged.write().plan)
    assert result.verdict == verdict
    assert outcome(result, "no-repeats") == ("failed", "warning", [110, 111])


def test_rows_of_an_attempt_killed_before_its_seal_are_counted_as_repeats(
    staged: StagedReplay,
) -> None:
    staged.mode = "at_least_once"
    staged.rows += [
        {**row, "attempt": 2, "flights": 9} for row in staged.rows if row["window_id"] == 112
    ]
    result = judge(staged.config, staged.write().plan)
    assert result.verdict == "passed"
    assert outcome(result, "no-repeats")[2] == [112]


def err_in_second_attempt(staged: StagedReplay) -> None:
    """At most once, stateful: from window 110 on by attempt 2; window 115 fails a check that a loss
    excuses.
    """
    staged.mode = "at_most_once"
    staged.stateful = True
    for row in (*staged.rows, *staged.facts):
        if row["window_id"] >= 110:
            row["attempt"] = 2
    staged.add_suite(
        "mine",
        expectation(
            "two-each",
            "expect_column_values_to_be_in_set",
            column="f",
            value_set=[6],
            meta={"after_loss": "warning"},
        ),
        measures={"f": "sum(flights)"},
    )
    next(row for row in staged.rows if row["window_id"] == 115)["flights"] = 7


def test_failure_in_windows_affected_by_a_loss_is_a_warning(staged: StagedReplay) -> None:
    lose(staged, 110, declared=True)
    err_in_second_attempt(staged)
    result = judge(staged.config, staged.write().plan)
    assert (result.verdict, outcome(result, "two-each")) == ("passed", ("failed", "warning", [115]))

    before = StagedReplay(
        staged.folder,
        replay_id="before",
        mode="at_most_once",
        stateful=True,
        suite="mine",
    )
    next(row for row in before.rows if row["window_id"] == 105)["flights"] = 7
    result = judge(before.config, before.write().plan)
    assert (result.verdict, outcome(result, "two-each")) == (
        "failed",
        ("failed", "critical", [105]),
    )


def test_failure_after_a_restart_without_loss_is_not_a_warning(staged: StagedReplay) -> None:
    staged.checkpoints = [(0, 0), (10, 1)]
    err_in_second_attempt(staged)
    result = judge(staged.config, staged.write().plan)
    assert (result.verdict, outcome(result, "two-each")) == (
        "failed",
        ("failed", "critical", [115]),
    )


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (
            {
                "sql": "select window_id, min(date '2024-01-01') as value from output group by "
                "window_id"
            },
            "date32",
        ),
        (
            {"sql": "select distinct window_id, 1 as value from output", "empty": "none"},
            'needs a number as "empty"',
        ),
    ],
)
def test_measure_with_a_wrong_type_is_reported_by_name(
    staged: StagedReplay,
    measure: dict,
    words: str,
) -> None:
    staged.add_suite(
        "mine",
        expectation("any", "expect_column_values_to_be_in_set", column="d", value_set=[1]),
        row_measures={"d": measure},
    )
    with pytest.raises(GateError, match=words):
        judge(staged.config, staged.write().plan)


def test_warning_check_that_cannot_be_evaluated_blocks_publication(staged: StagedReplay) -> None:
    staged.add_suite(
        "mine",
        expectation(
            "of-nothing",
            "expect_column_values_to_be_in_set",
            "warning",
            column="no",
            value_set=[0],
        ),
    )
    result = judge(staged.config, staged.write().plan)
    assert (result.verdict, outcome(result, "of-nothing")[0]) == ("failed", "not_run")
    assert "no" in result.outputs[0].failed[0].note


def test_check_of_a_column_with_only_nulls_reports_nothing_to_check(staged: StagedReplay) -> None:
    # Nulls satisfy nearly every expectation.
    staged.add_suite(
        "mine",
        expectation("never", "expect_column_values_to_be_in_set", column="m", value_set=[0]),
        measures={"m": "max(flights) filter (where origin = 'nowhere')"},
    )
    result = judge(staged.config, staged.write().plan)
    assert (result.verdict, outcome(result, "never")[0]) == ("passed", "nothing_to_check")


def test_unknown_expectation_and_bad_arguments_are_rejected(staged: StagedReplay) -> None:
    staged.add_suite("mine", expectation("odd", "expect_column_values_to_be_od"))
    with pytest.raises(GateError, match='check "odd" of suite "mine" is of the unknown type'):
        judge(staged.config, staged.write().plan)
    staged.add_suite(
        "mine",
        expectation("odd", "expect_column_values_to_be_in_set", colum="lost", value_set=[0]),
    )
    with pytest.raises(GateError, match='suite "mine" has a malformed expectation'):
        judge(staged.config, staged.plan)


def test_check_records_the_verdict_in_the_ledger(staged: StagedReplay) -> None:
    ledger = ended(staged)
    assert check(staged.config, staged.replay_id).verdict == "passed"
    assert ledger.replays.get(staged.replay_id).state is ReplayState.CHECKED
    assert ledger.checks.newest(staged.replay_id)[0].summary["outputs"][0]["windows"] == 20

    (staged.expectations / "suites" / "every_output.json").write_text("{")
    with pytest.raises(GateError, match='suite "every_output" is not JSON'):
        check(staged.config, staged.replay_id)
    assert ledger.replays.get(staged.replay_id).state is ReplayState.ENDED
    assert ledger.checks.newest(staged.replay_id)[0].verdict == "failed"


def test_any_error_during_a_check_revokes_an_older_verdict(staged: StagedReplay) -> None:
    ledger = ended(staged)
    assert check(staged.config, staged.replay_id).verdict == "passed"
    shutil.rmtree(staged.config.replay_root(staged.replay_id) / staged.output)
    with pytest.raises(TableError):
        check(staged.config, staged.replay_id)
    assert ledger.checks.newest(staged.replay_id)[0].verdict == "failed"
    assert ledger.replays.get(staged.replay_id).state is ReplayState.ENDED


def test_replay_that_has_not_ended_is_not_checked(staged: StagedReplay) -> None:
    Ledger.open(staged.config.ledger_url).replays.create(**ledger_row(staged))
    with pytest.raises(
        InputError,
        match="is planned: it has not finished, only a replay that has ended",
    ):
        check(staged.config, staged.replay_id)


def test_failures_are_shown_for_the_newest_run_and_the_requested_window(
    staged: StagedReplay,
) -> None:
    assert failures(staged.config, staged.replay_id) == []
    lose(staged, 103, 104, declared=False)
    null_key(staged)
    judge(staged.config, staged.write().plan)
    found = failures(staged.config, staged.replay_id)
    assert [(entry.check, entry.windows) for entry in found] == [
        ("no-null-keys", (WindowRange(106, 106),)),
        ("no-undeclared-loss", (WindowRange(103, 104),)),
    ]
    assert [entry.check for entry in failures(staged.config, staged.replay_id, 104)] == [
        "no-undeclared-loss"
    ]
    assert failures(staged.config, staged.replay_id, 110) == []
    assert failures(staged.config, "another") == []


def test_results_are_stored_as_json_with_the_great_expectations_output(
    staged: StagedReplay,
) -> None:
    null_key(staged)
    verdict = judge(staged.config, staged.write().plan).outputs[0]
    kept = read_json(verdict.results)
    assert (kept["verdict"], kept["failed"]) == ("failed", ["no-null-keys"])
    assert kept["great_expectations"]["statistics"]["evaluated_expectations"] == len(kept["checks"])


def test_file_that_was_altered_after_its_commit_is_rejected(staged: StagedReplay) -> None:
    staged.add_suite(
        "summed",
        expectation("flown", "expect_column_values_to_be_between", column="flown", min_value=0),
        measures={"flown": {"sql": "sum(flights)", "empty": 0}},
    )
    ended(staged)
    root = staged.config.replay_root(staged.replay_id)
    [file] = (root / staged.output).local().glob("group-*/*.parquet")
    rows = pq.read_table(file)
    place = rows.schema.get_field_index("flights")
    flights = pc.add(rows["flights"], 1).cast(pa.int64())
    pq.write_table(rows.set_column(place, "flights", flights), file)
    with pytest.raises(TableError, match=f'file "{file.name}" of staged output "made" is damaged'):
        check(staged.config, staged.replay_id)


def test_gate_marks_windows_that_are_not_verifiable(staged: StagedReplay) -> None:
    # Rules: R88
    staged.reads_outside = ["rates"]
    staged.write()
    listed: list[str] = []
    [verdict] = judge(staged.config, staged.plan, Lines(listed.append)).outputs
    words = "windows are not verifiable: rates reads external systems"
    assert verdict.verdict == "passed"
    assert set(verdict.table["not_verifiable"].to_pylist()) == {1}
    assert verdict.to_dict()["not_verifiable"] == words
    assert any(words in line for line in listed)
