"""The contents of a page as plain values, for reading and rendering.

Times are aware UTC datetimes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from rewindow.application import GraphDescription
from rewindow.inspection.partitions import OperatorPartitions
from rewindow.inspection.replay_progress import ProgressEstimate
from rewindow.inspection.window_runs import ReplayCounts, WindowRun
from rewindow.ledger import AttemptRecord
from rewindow.windows import Grid, WindowRange


@dataclass(frozen=True)
class Group:
    """A commit group that an attempt has finished.

    Attributes:
        number: number of the group in the replay, from 1; a group that is computed again keeps its
            number.
        ended_at: time when its last table was committed and reported to the ledger.
        compute_seconds, commit_seconds: parts of its duration.
    """

    number: int
    windows: WindowRange
    ended_at: datetime
    compute_seconds: float
    commit_seconds: float
    checkpoint: bool

    @property
    def seconds(self) -> float:
        """The duration of the group in seconds."""
        return self.compute_seconds + self.commit_seconds


@dataclass(frozen=True)
class DrawnAttempt:
    """One run of a replay's job.

    Attributes:
        began_at: time when its epoch was assigned.
        ended_at: time when its end was recorded; for a killed attempt, when the next one took over.
        outcome: done, failed, killed, interrupted, lost; empty while it is running.
    """

    epoch: int
    began_at: datetime
    ended_at: datetime | None
    outcome: str
    message: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class KillEvent:
    """The end of an attempt whose process was killed.

    Attributes:
        at: time when the end of the process was detected.
        step: step of the commit protocol; empty if unknown.
        group: number of the commit group in progress; 0 if unknown.
    """

    epoch: int
    at: datetime
    step: str
    group: int


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of the gate: passed, warning, failed, not_run or nothing_to_check."""

    output: str
    check: str
    description: str
    status: str
    windows: int
    ranges: tuple[WindowRange, ...] = ()
    observed: str = ""


@dataclass(frozen=True)
class Gate:
    """The newest verdict on a replay."""

    verdict: str
    checked_at: datetime
    findings: tuple[CheckResult, ...]
    docs: str = ""


@dataclass(frozen=True)
class ComparedOutput:
    """The number of windows per class of one output, and the ranges of the windows that differ."""

    name: str
    classes: Mapping[str, int]
    ranges: Mapping[str, tuple[WindowRange, ...]]


@dataclass(frozen=True)
class CertificateSummary:
    """The summary of a certificate, which compares a replay (b) with another one or with the
    published tables (a).
    """

    a: str
    b: str
    verdict: str
    digest: str
    outputs: tuple[ComparedOutput, ...]
    data_read: bool
    seconds: float
    page: str = ""


@dataclass(frozen=True)
class PublicationEvent:
    """A publication or an undo.

    `overrides` are the problems that were accepted for the reason `accepted`.
    """

    number: int
    kind: str
    replay_id: str
    windows: WindowRange
    tables: tuple[str, ...]
    undoes: int | None
    opened_at: datetime
    closed_at: datetime | None
    accepted: str | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayReport:
    """All information about one replay.

    Attributes:
        title: its title on the page.
        guarantees: output name to its guarantee.
        outputs: output name to the runs of its windows, in order.
        checkpoints: last windows of checkpoints.
        partitions: partitions of its tuple operators.
    """

    replay_id: str
    title: str
    application: str
    mode: str
    state: str
    grid: Grid
    windows: WindowRange
    reason: str
    guarantees: Mapping[str, str]
    attempts: tuple[DrawnAttempt, ...]
    outputs: Mapping[str, tuple[WindowRun, ...]]
    checkpoints: tuple[int, ...]
    counts: ReplayCounts
    kills: tuple[KillEvent, ...] = ()
    gate: Gate | None = None
    comparison: CertificateSummary | None = None
    partitions: tuple[OperatorPartitions, ...] = ()

    @property
    def recovery_seconds(self) -> float | None:
        """The time from the first kill to the next commit of a whole group; None if no kill was
        observed, or no commit followed.
        """
        if not self.kills:
            return None
        kill = self.kills[0]
        later = []
        for attempt in self.attempts:
            later += [group.ended_at for group in attempt.groups if group.ended_at > kill.at]
        return (min(later) - kill.at).total_seconds() if later else None


@dataclass(frozen=True)
class Layer:
    """One quantity in the calendar, with a value for each window of the range.

    Windows without a value have None or NaN.

    Attributes:
        total: whether the values of windows in the same cell are added up; otherwise they are
            averaged.
        hue: name of a colour in the style sheet.
    """

    name: str
    label: str
    unit: str
    values: npt.NDArray[np.float64] | tuple[float | None, ...]
    total: bool = True
    hue: str = "blue"
    note: str = ""


@dataclass(frozen=True)
class ReportSection:
    """A named period on the clock of the page, such as "record" or "up"."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Action:
    """A button of a page that starts a run of a DAG.

    Attributes:
        act: the name of the action.
        words: its effect.
        values: parameters of the run, in addition to the action and the reason.
    """

    act: str
    words: str
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class LiveParts:
    """The parts of a page that exist only if Airflow serves it.

    Attributes:
        airflow: path of Airflow on its host, without a slash at the end.
        notice: an answer to the reader's request, above everything else.
        progress: address of the replay's progress as JSON.
        dag: the DAG that the actions start.
        links: further pages: name to address.
    """

    airflow: str = ""
    notice: str = ""
    progress: str = ""
    dag: str = ""
    actions: tuple[Action, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """All contents of a page.

    Rendering reads nothing else.

    Attributes:
        lead: a sentence or two below the title.
        facts: key figures: value to label.
        next_steps: commands with descriptions.
        graph: the application's graph; None if unknown.
        failure: for a failed replay, the attempt with the first cause, and this cause.
        attempts: the attempts of a single replay and of its containers.
        progress: the progress of a replay that is planned or running.
    """

    title: str
    lead: str
    grid: Grid
    windows: WindowRange
    stories: tuple[ReplayReport, ...]
    layers: tuple[Layer, ...]
    made_at: datetime
    facts: tuple[tuple[str, str], ...] = ()
    acts: tuple[PublicationEvent, ...] = ()
    chapters: tuple[ReportSection, ...] = ()
    next_steps: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = field(default=())
    graph: GraphDescription | None = None
    failure: tuple[AttemptRecord, str] | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    progress: ProgressEstimate | None = None
    live: LiveParts | None = None
