"""The gate: checks every output of a replay and records the verdict, which decides whether the
replay can be published.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow.csv as pa_csv

from rewindow.errors import InputError, TableError
from rewindow.ledger import Ledger, ReplayState
from rewindow.ledger.replays import next_steps
from rewindow.loading.measures import values_of
from rewindow.loading.suites import Suite, suite_for
from rewindow.location import location
from rewindow.names import check_whole
from rewindow.progress.listener import Listener, Silent
from rewindow.progress.steps import counted, step, watched
from rewindow.quality.assessment import assess
from rewindow.quality.evaluation import evaluate, preload
from rewindow.quality.findings import record_findings
from rewindow.quality.outcome import GateResult, OutputVerdict, name_windows
from rewindow.quality.window_table import Sources, make_report
from rewindow.recovery import OutputPlan, Plan, path_in
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.checksums import differing, with_noted
from rewindow.storage.layout import Contents, check_replay_format, staged_contents, versions_of
from rewindow.storage.results import replay_folder
from rewindow.windows import Grid

CHECKABLE = (ReplayState.ENDED, ReplayState.CHECKED, ReplayState.PUBLISHED, ReplayState.UNDONE)


def check(config: Config, replay_id: str, listener: Listener | None = None) -> GateResult:
    """Checks a replay, records the verdict in the ledger and the findings table, and returns it.
    Starts no JVM.

    Its pages are drawn from the result, see rewindow.pages.gate_pages. A replay that cannot be
    checked is recorded as failed, so that an older verdict does not remain valid.

    Args:
        config: current settings.
        replay_id: a replay that has ended.
        listener: receives the verdict on each output, and the failed checks; none by default.

    Raises:
        InputError: the id is unknown, or the replay has not ended.
        TableError: its tables have the format of another version.
        GateError: it could not be checked: a suite is missing or checks nothing, an expectation is
            unknown, or not everything was evaluated. A failed verdict is returned, not raised.
    """
    ledger = Ledger.open(config.ledger_url)
    plan = checkable(config, ledger, replay_id)
    folder = path_in(config.state, replay_folder(config, replay_id))
    try:
        result = judge(config, plan, listener)
    except Exception as error:  # any exception counts as a failed gate
        ledger.checks.record(replay_id, "failed", folder, {"outputs": [], "error": str(error)})
        raise
    ledger.checks.record(replay_id, result.verdict, folder, result.summary(), tables=result.tables)
    return result


def checkable(config: Config, ledger: Ledger, replay_id: str) -> Plan:
    """Returns the plan of a replay, after checking that the replay's output can be checked.

    Raises:
        InputError: the id is unknown, or the replay has not ended.
        TableError: its tables have the format of another version.
    """
    replay = ledger.replays.get(check_whole(replay_id))
    if replay.state not in CHECKABLE:
        unfinished = "" if replay.state is ReplayState.ABANDONED else ": it has not finished"
        raise InputError(
            f'replay "{replay_id}" is {replay.state}{unfinished}, only a replay that has ended can '
            "be checked",
            hint=next_steps(replay),
        )
    check_replay_format(config.replay_root(replay_id))
    return replay.read_plan()


def judge(config: Config, plan: Plan, listener: Listener | None = None) -> GateResult:
    """Checks the staged output of a replay.

    It writes results and findings, but nothing to the ledger.

    Raises:
        GateError: see check.
    """
    preload()
    suites = {output.name: suite_of(config, output) for output in plan.outputs}
    checked_at = datetime.now(UTC)
    folder = replay_folder(config, plan.replay_id)
    folder.make_folder()
    tables = staged_contents(config.replay_root(plan.replay_id))
    verdicts = []
    receiver = listener or Silent()
    with receiver.job(), watched(receiver.line):
        for output in counted("judging outputs", plan.outputs, len(plan.outputs), "outputs"):
            verdict = _judge_output(config, plan, output, suite=suites[output.name], tables=tables)
            verdicts.append(verdict)
            _say(receiver, plan.grid, verdict)
    result = GateResult(plan, checked_at, tuple(verdicts), folder=folder, tables=tables)
    (folder / "result.json").write(json.dumps(result.to_dict(), indent=2) + "\n")
    record_findings(config, plan, result)
    return result


def _plan(ledger: Ledger, replay_id: str) -> Plan:
    return ledger.replays.get(replay_id).read_plan()


def suite_of(config: Config, output: OutputPlan) -> Suite:
    """Returns the suite of an output.

    The suite of a table of error tuples accepts an empty table.
    """
    return suite_for(config.expectations, output.suite, may_be_empty=output.errors)


def _check_unaltered(output: OutputPlan, staged: Table) -> None:
    """Raises an error if the bytes of a file with rows differ from the committed ones."""
    altered = differing(with_noted(staged, staged.files()))
    if altered:
        name = location(altered[0].path).name
        raise TableError(
            f'file "{name}" of staged output "{output.name}" is damaged: its bytes do not match '
            f'the checksum in table "{staged.path.name}"',
            detail=f"Files that differ: {len(altered)}. No check was run on this output.",
            hint="Restore the file from a backup, or plan the range again.",
        )


def _judge_output(
    config: Config,
    plan: Plan,
    output: OutputPlan,
    suite: Suite,
    tables: Contents,
) -> OutputVerdict:
    versions = versions_of(tables)
    sources = Sources.open(
        config.replay_root(plan.replay_id),
        output.name,
        config.quarantine_table,
        versions,
    )
    made = make_report(plan, output, sources, measures=suite.measures)
    if made.measured:
        _check_unaltered(output, sources.staged)
    report = made.table
    folder = replay_folder(config, plan.replay_id)
    table = folder / f"{output.name}.windows.csv"
    # Writing a million windows takes seconds without the interpreter's lock, so a thread does it.
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pa_csv.write_csv, report, table.uri)
        with step(f"{output.name}: its checks"):
            evaluation = evaluate(
                config.expectations, suite, report, parameters=values_of(plan, output)
            )
        written.result()
    checks = assess(evaluation, suite, report, windows=plan.range)
    verdict = OutputVerdict(
        output.name,
        suite.name,
        report.num_rows,
        checks=checks,
        docs=folder / f"{output.name}.html",
        results=folder / f"{output.name}.json",
        report=table,
        table=report,
        sections=tuple(evaluation.sections),
        stored=made.stored,
        measured=made.measured,
        remark=made.remark,
        reads_outside=tuple(output.reads_outside),
    )
    verdict.results.write(
        json.dumps(
            {**verdict.to_dict(), "great_expectations": evaluation.result}, indent=2, default=str
        )
    )
    return verdict


def _say(listener: Listener, grid: Grid, verdict: OutputVerdict) -> None:
    counts = f"{verdict.evaluated} checks on {verdict.windows} windows"
    listener.line(
        f"{verdict.output}: {verdict.verdict}, {counts}, {len(verdict.failed)} failed, "
        f"{len(verdict.warnings)} warnings"
    )
    if verdict.not_verifiable:
        listener.line(f"  {verdict.not_verifiable}")
    if verdict.stored or verdict.measured:
        listener.line(f"  {verdict.about_measures}")
    for entry in (*verdict.failed, *verdict.warnings, *verdict.noted):
        word = "failed" if entry.blocks else entry.severity
        if entry.status == "not_run":
            word = "not run"
        windows = (
            f": {name_windows(entry)} from {grid.times(entry.failing[0].first)}"
            if entry.failing_windows
            else f": {entry.note or entry.observed}"
        )
        listener.line(f"  {word}: {entry.check}{windows}")
