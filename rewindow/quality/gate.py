"""The gate: judges every output of a replay and records the verdict, on which its publication
depends.
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

CHECKABLE = (ReplayState.ENDED, ReplayState.CHECKED, ReplayState.PUBLISHED, ReplayState.UNDONE)


def check(config: Config, replay_id: str, listener: Listener | None = None) -> GateResult:
    """Judges a replay, records the verdict in the ledger and among the findings, and returns it.
    Starts no JVM.

    Its pages are drawn from the result, see rewindow.pages.gate_pages.

    Args:
        config: settings in force.
        replay_id: a replay that has ended.
        listener: is told the verdict on each output, and what is wrong with it; nobody by default.

    A replay that cannot be judged is recorded as failed, so that an older verdict does not stand
    for it.

    Raises:
        InputError: no replay has this id, or it has not ended.
        TableError: its tables have the format of another version.
        GateError: it could not be judged: a suite is missing or checks nothing, an expectation is
            unknown, or not everything was evaluated. A failed verdict is returned, not raised.
    """
    ledger = Ledger.open(config.ledger_url)
    plan = checkable(config, ledger, replay_id)
    folder = path_in(config.state, replay_folder(config, replay_id))
    try:
        result = judge(config, plan, listener)
    except Exception as error:  # whatever it was: nothing has passed
        ledger.checks.record(replay_id, "failed", folder, {"outputs": [], "error": str(error)})
        raise
    ledger.checks.record(replay_id, result.verdict, folder, result.summary(), tables=result.tables)
    return result


def checkable(config: Config, ledger: Ledger, replay_id: str) -> Plan:
    """Returns the plan of a replay whose output can be judged.

    Raises:
        InputError: no replay has this id, or it has not ended.
        TableError: its tables have the format of another version.
    """
    found = ledger.replays.get(check_whole(replay_id))
    if found.state not in CHECKABLE:
        unfinished = "" if found.state is ReplayState.ABANDONED else ": it has not finished"
        raise InputError(
            f'replay "{replay_id}" is {found.state}{unfinished}, only a replay that has ended can '
            "be checked",
            hint=next_steps(found),
        )
    check_replay_format(config.replay_root(replay_id))
    return found.read_plan()


def judge(config: Config, plan: Plan, listener: Listener | None = None) -> GateResult:
    """Judges a planned replay by what it staged; writes results and findings, and nothing to the
    ledger.

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
    told = listener or Silent()
    with told.job(), watched(told.line):
        for output in counted("judging outputs", plan.outputs, len(plan.outputs), "outputs"):
            verdict = _judge_output(config, plan, output, suite=suites[output.name], tables=tables)
            verdicts.append(verdict)
            _say(told, verdict)
    result = GateResult(plan, checked_at, tuple(verdicts), folder=folder, tables=tables)
    (folder / "result.json").write(json.dumps(result.to_dict(), indent=2) + "\n")
    record_findings(config, plan, result)
    return result


def _plan(ledger: Ledger, replay_id: str) -> Plan:
    return ledger.replays.get(replay_id).read_plan()


def suite_of(config: Config, output: OutputPlan) -> Suite:
    """Returns the suite of an output; that of error tuples is expected to stay empty."""
    return suite_for(config.expectations, output.suite, may_be_empty=output.errors)


def _check_unaltered(output: OutputPlan, staged: Table) -> None:
    """Refuses rows that were read from files with other bytes than were committed."""
    altered = differing(with_noted(staged, staged.files()))
    if altered:
        name = location(altered[0].path).name
        raise TableError(
            f'file "{name}" of staged output "{output.name}" is damaged: its bytes are not '
            f'as noted in table "{staged.path.name}"',
            detail=f"Files that differ: {len(altered)}. No check was run on this output.",
            hint="Put the file back from a copy, or plan the range again.",
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
    # A million windows take seconds to write, in which Python has nothing to do.
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pa_csv.write_csv, report, table.uri)
        with step(f"{output.name}: its checks"):
            found = evaluate(config.expectations, suite, report, parameters=values_of(plan, output))
        written.result()
    checks = assess(found, suite, report, windows=plan.range)
    verdict = OutputVerdict(
        output.name,
        suite.name,
        report.num_rows,
        checks=checks,
        docs=folder / f"{output.name}.html",
        results=folder / f"{output.name}.json",
        report=table,
        table=report,
        sections=tuple(found.sections),
        stored=made.stored,
        measured=made.measured,
        remark=made.remark,
        reads_outside=tuple(output.reads_outside),
    )
    verdict.results.write(
        json.dumps({**verdict.to_dict(), "great_expectations": found.result}, indent=2, default=str)
    )
    return verdict


def _say(listener: Listener, verdict: OutputVerdict) -> None:
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
            f": {name_windows(entry)}"
            if entry.failing_windows
            else f": {entry.note or entry.observed}"
        )
        listener.line(f"  {word}: {entry.check}{windows}")
