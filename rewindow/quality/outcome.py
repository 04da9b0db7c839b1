"""Outcomes of a check, of an output, and of a whole replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from rewindow.ledger.checks import CheckSummary, OutputSummary
from rewindow.location import Location
from rewindow.recovery import Plan
from rewindow.storage.layout import Contents
from rewindow.windows import WindowRange

CheckStatus = Literal["passed", "failed", "not_run", "nothing_to_check"]
Verdict = Literal["passed", "failed"]
LISTED_MAX = 1_000
"""Maximum number of ranges of failing windows that are stored per check; the count is exact."""
_SHOWN = 5


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one check.

    Attributes:
        check: its name in the suite.
        severity: critical, warning or info, after exceptions such as that for affected windows.
        status: nothing_to_check means that every window was null in its column.
        failing: failing windows as ranges, at most LISTED_MAX of them.
        failing_windows: number of failing windows; 0 for a check of the whole range.
        observed: the observed values, as text.
        note: why the severity differs from the suite's, or the exception.
        allowed: the values that the check allows, as text for pages; not part of the JSON.
    """

    check: str
    type: str
    column: str
    severity: str
    description: str
    status: CheckStatus
    failing: tuple[WindowRange, ...] = ()
    failing_windows: int = 0
    observed: str = ""
    note: str = ""
    allowed: str = ""

    @property
    def blocks(self) -> bool:
        """Whether the check prevents the publication.

        A critical check that failed does, and so does any check that could not run.
        """
        return self.status == "not_run" or (self.status == "failed" and self.severity == "critical")

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes and `blocks` as values for JSON. A failing range is a pair of its
        first and last window.
        """
        plain = {**vars(self)}
        del plain["failing"], plain["allowed"]
        return {
            **plain,
            "failing": [[part.first, part.last] for part in self.failing],
            "blocks": self.blocks,
        }


@dataclass(frozen=True)
class OutputVerdict:
    """The outcome of all checks of an output.

    Attributes:
        windows: number of windows checked, those of the whole range.
        docs: path of its page, which is readable offline.
        results: path of all checks with their windows, as JSON.
        report: path of the window report as CSV.
        table: the window report itself, for drawing pages.
        sections: the library's report of its checks, as HTML.
        stored: measures of the suite whose values the replay had stored with its facts.
        measured: measures that were computed from the rows now.
        remark: why stored values were not used, empty if they were.
        reads_outside: operators that read external systems, so that another run cannot verify the
            windows.

    Rules: R88
    """

    output: str
    suite: str
    windows: int
    checks: tuple[CheckOutcome, ...]
    docs: Location
    results: Location
    report: Location
    table: pa.Table = field(repr=False, compare=False)
    sections: tuple[str, ...] = field(default=(), repr=False, compare=False)
    stored: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    remark: str = ""
    reads_outside: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Returns "failed" if any check blocks the publication, otherwise "passed"."""
        return "failed" if any(check.blocks for check in self.checks) else "passed"

    @property
    def about_measures(self) -> str:
        """The origin of the values of the suite's measures, as text."""
        parts = [f"{len(self.stored)} stored by the replay"] if self.stored else []
        parts += [f"{len(self.measured)} computed now"] if self.measured else []
        why = f" ({self.remark})" if self.remark else ""
        return f"measures: {', '.join(parts) or 'none'}{why}"

    @property
    def not_verifiable(self) -> str:
        """The reason why another run cannot verify the output's windows; empty if it can."""
        names = ", ".join(self.reads_outside)
        return f"windows are not verifiable: {names} reads external systems" if names else ""

    @property
    def evaluated(self) -> int:
        """The number of checks that were evaluated."""
        return sum(check.status != "not_run" for check in self.checks)

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """Checks that prevent the publication."""
        return tuple(check for check in self.checks if check.blocks)

    @property
    def warnings(self) -> tuple[CheckOutcome, ...]:
        """Failed checks of severity "warning", which do not prevent the publication."""
        return tuple(
            check
            for check in self.checks
            if check.status == "failed" and check.severity == "warning"
        )

    @property
    def noted(self) -> tuple[CheckOutcome, ...]:
        """Failed checks of severity "info"."""
        return tuple(
            check for check in self.checks if check.status == "failed" and check.severity == "info"
        )

    def summary(self) -> OutputSummary:
        """Returns the values that the ledger stores."""
        return {
            "output": self.output,
            "suite": self.suite,
            "verdict": self.verdict,
            "windows": self.windows,
            "evaluated": self.evaluated,
            "failed": [check.check for check in self.failed],
            "warnings": [check.check for check in self.warnings],
            "noted": [check.check for check in self.noted],
            "docs": self.docs.name,
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the verdict as values for JSON.

        Files are listed by name, because their folder may be moved.
        """
        return {
            **self.summary(),
            "stored_measures": list(self.stored),
            "measured_now": list(self.measured),
            "not_verifiable": self.not_verifiable,
            "checks": list(map(CheckOutcome.to_dict, self.checks)),
            "results": self.results.name,
            "report": self.report.name,
        }


@dataclass(frozen=True)
class GateResult:
    """The gate's verdict on a replay.

    `tables` are the contents that were checked. Only these may be published.
    """

    plan: Plan
    checked_at: datetime
    outputs: tuple[OutputVerdict, ...]
    folder: Location
    tables: Contents

    @property
    def verdict(self) -> Verdict:
        """Returns "passed" if every output passed. A replay without outputs fails."""
        passed = bool(self.outputs) and all(output.verdict == "passed" for output in self.outputs)
        return "passed" if passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as values for JSON."""
        return {
            "replay_id": self.plan.replay_id,
            "application": self.plan.application,
            "verdict": self.verdict,
            "checked_at": self.checked_at.isoformat(),
            "outputs": list(map(OutputVerdict.to_dict, self.outputs)),
        }

    def summary(self) -> CheckSummary:
        """Returns the values that the ledger stores: the failed checks and warnings of each output,
        without the windows.
        """
        return {"outputs": list(map(OutputVerdict.summary, self.outputs))}


def name_windows(outcome: CheckOutcome) -> str:
    """Returns the failing windows as text, with their count and the first ranges."""
    parts = [
        str(part.first) if len(part) == 1 else f"{part.first}–{part.last}"
        for part in outcome.failing[:_SHOWN]
    ]
    more = " ..." if len(outcome.failing) > _SHOWN else ""
    count = outcome.failing_windows
    return f"{count} window{'s' if count != 1 else ''} ({', '.join(parts)}{more})"
