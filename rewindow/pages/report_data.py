"""Reads the contents of a replay's page from the ledger, its tables, the gate's results and
certificates. Starts no JVM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import starmap
from typing import Any, get_args

from rewindow.inspection.counts import ReplayCount, count_replay
from rewindow.inspection.next_steps import has_stopped_unnoticed
from rewindow.inspection.partitions import partitions_of
from rewindow.inspection.visibility import state_words, visibility
from rewindow.json_files import reading_json
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.location import Location
from rewindow.pages import replay_report as report
from rewindow.quality.outcome import CheckStatus
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage.results import replay_folder
from rewindow.windows import WindowRange

_GROUPS_MAX = 5_000


def read_report(
    config: Config,
    replay_id: str,
    *,
    title: str = "",
    kills: Sequence[report.KillEvent] = (),
    comparison: report.CertificateSummary | None = None,
) -> report.ReplayReport:
    """Returns the report of a replay.

    Args:
        title: title on the page; by default its mode.
        kills: observed kills; by default those that the launcher detected.
        comparison: the certificate to show; by default the newest one that names the replay.

    Raises:
        InputError: no replay has this id.
        TableError: its staged tables were deleted, for example by a purge.
    """
    ledger = Ledger.open(config.ledger_url)
    row = ledger.replays.get(replay_id)
    plan = row.read_plan()
    counted = count_replay(plan, config.replay_root(replay_id))
    attempts = _attempts(ledger, plan, counted)
    return report.ReplayReport(
        replay_id=replay_id,
        title=title or plan.mode_words,
        application=plan.application,
        mode=", ".join(mode.name for mode in plan.modes),
        state=state_words(row, visibility(ledger, row), has_stopped_unnoticed(ledger, row)),
        grid=plan.grid,
        windows=plan.range,
        reason=plan.reason,
        guarantees={output.name: output.promise for output in plan.outputs},
        attempts=attempts,
        outputs={name: counted.stretches(name) for name in counted.outputs},
        checkpoints=tuple(window for window, _ in counted.checkpoints if window >= plan.first),
        counts=counted.summary(),
        kills=tuple(kills) or _noticed_kills(attempts),
        gate=_gate(config, ledger, replay_id),
        partitions=tuple(partitions_of(ledger, row)),
        comparison=comparison or newest_comparison(config, replay_id),
    )


def read_acts(
    config: Config,
    application: str,
    windows: WindowRange,
) -> tuple[report.PublicationEvent, ...]:
    """Returns the publications and undos of an application for the given windows, oldest first."""
    found = Ledger.open(config.ledger_url).publications.newest(application=application, limit=40)
    return tuple(
        report.PublicationEvent(
            act.number,
            act.kind,
            act.replay_id,
            windows=act.range,
            tables=tuple(names_of(act.tables)),
            undoes=act.undoes,
            opened_at=act.opened_at,
            closed_at=act.closed_at,
            accepted=act.details.accepted,
            overrides=act.details.overrides,
        )
        for act in reversed(found)
        if act.range.overlap(windows) and act.withdrawn is None
    )


def comparison_of(content: dict[str, Any], page: str = "") -> report.CertificateSummary:
    """Returns the summary of a certificate from its JSON."""
    outputs = []
    for output in content["outputs"]:
        ranges = {
            difference: tuple(starmap(WindowRange, pairs))
            for difference, pairs in output["ranges"].items()
        }
        outputs.append(report.ComparedOutput(output["name"], output["classes"], ranges))
    return report.CertificateSummary(
        content["a"]["name"],
        content["b"]["name"],
        content["verdict"],
        digest=content["digest"],
        outputs=tuple(outputs),
        data_read=content["data_read"],
        seconds=content["seconds"],
        page=page,
    )


def newest_comparison(config: Config, replay_id: str) -> report.CertificateSummary | None:
    """Returns the newest certificate in which a replay is side b; None if there is none.

    Raises:
        RewindowError: a certificate's file is damaged.
    """
    folder = config.results / "certificates"
    found = sorted(folder.entries(f"*--{replay_id}-*.json"), key=lambda path: path.modified())
    for path in reversed(found):
        with reading_json(
            path,
            "certificate",
            "Delete it, and compare again: rewindow certify A B",
        ):
            content = json.loads(path.read_text())
            if content["b"]["name"] == replay_id:
                return comparison_of(content, relative(path.with_name(f"{path.stem}.html"), config))
    return None


def pages_folder(config: Config) -> Location:
    """Returns the folder of pages."""
    return config.results / "pages"


def relative(path: Location, config: Config) -> str:
    """Returns the address of a file relative to the folder of pages; empty if the file does not
    exist.
    """
    return os.path.relpath(path.uri, pages_folder(config).uri) if path.is_file() else ""


def _attempts(ledger: Ledger, plan: Plan, counted: ReplayCount) -> tuple[report.DrawnAttempt, ...]:
    saved = dict(counted.checkpoints)
    timings = sorted(
        ledger.attempts.timings(plan.replay_id, limit=_GROUPS_MAX),
        key=lambda timing: (timing.epoch, timing.mark),
    )
    # Timings identify a group by its mark, facts by its windows: the last window connects them. A
    # timing without facts gets number 0.
    number = {
        windows.last: (index, windows) for index, windows in enumerate(counted.groups, start=1)
    }
    groups: dict[int, list[report.Group]] = {}
    for timing in timings:
        index, windows = number.get(plan.window_of(timing.mark), (0, plan.range))
        group = report.Group(
            index,
            windows,
            timing.reported_at,
            compute_seconds=timing.timings.get("compute", 0.0),
            commit_seconds=timing.timings.get("commit", 0.0),
            checkpoint=windows.last in saved,
        )
        groups.setdefault(timing.epoch, []).append(group)
    return tuple(
        report.DrawnAttempt(
            attempt.epoch,
            attempt.began_at,
            attempt.ended_at,
            outcome=attempt.outcome.value if attempt.outcome else "",
            message=attempt.message,
            groups=tuple(groups.get(attempt.epoch, ())),
        )
        for attempt in ledger.attempts.of(plan.replay_id)
    )


def _noticed_kills(attempts: Sequence[report.DrawnAttempt]) -> tuple[report.KillEvent, ...]:
    """Returns kills from the ledger.

    They have the time when the launcher detected the end of the process, but not the step.
    """
    return tuple(
        report.KillEvent(attempt.epoch, attempt.ended_at, "", group=0)
        for attempt in attempts
        if attempt.outcome == AttemptEnd.KILLED and attempt.ended_at is not None
    )


def _gate(config: Config, ledger: Ledger, replay_id: str) -> report.Gate | None:
    newest = ledger.checks.newest(replay_id, limit=1)
    if not newest:
        return None
    folder = replay_folder(config, replay_id)
    path = folder / "result.json"
    with reading_json(
        path,
        "gate result",
        f"To write it again, check again: rewindow check {replay_id}",
    ):
        outputs = json.loads(path.read_text())["outputs"] if path.is_file() else []
        findings = []
        for output in outputs:
            findings += [_finding(output["output"], check) for check in output["checks"]]
    pages = folder.entries("*.html")
    docs = relative(pages[0], config) if pages else ""
    return report.Gate(newest[0].verdict, newest[0].checked_at, tuple(findings), docs=docs)


def _finding(output: str, check: dict[str, Any]) -> report.CheckResult:
    status = check["status"]
    if status not in get_args(CheckStatus):
        raise ValueError(f'unknown status "{status}" of check {check["check"]}')
    if status == "failed" and not check["blocks"]:
        status = "warning"
    return report.CheckResult(
        output,
        check["check"],
        check["description"],
        status=status,
        windows=check["failing_windows"],
        ranges=tuple(starmap(WindowRange, check["failing"][:5])),
        observed=check["observed"],
    )
