"""What a check, an output and a whole replay came to."""

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
_SHOWN = 5
"""Ranges of failing windows that are kept of a check; their number is kept in full."""


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one check.

    Attributes:
        check: its slug.
        severity: critical, warning or info, as it counts here.
        status: nothing_to_check means that every window was null in its column.
        failing: failing windows as ranges, at most LISTED_MAX of them.
        failing_windows: how many windows fail; 0 for a check of the whole range.
        observed: what was seen, in words.
        note: why the severity is another one than the suite's, or what raised.
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

    @property
    def blocks(self) -> bool:
        """Whether it stops the publication: a critical check that failed, or any that could not
        run.
        """
        return self.status == "not_run" or (self.status == "failed" and self.severity == "critical")

    def to_dict(self) -> dict[str, Any]:
        """Returns it for JSON."""
        plain = {**vars(self)}
        del plain["failing"]
        return {
            **plain,
            "failing": [[part.first, part.last] for part in self.failing],
            "blocks": self.blocks,
        }


@dataclass(frozen=True)
class OutputVerdict:
    """What became of an output.

    Attributes:
        windows: number of windows judged, those of the whole range.
        docs: where its page belongs, readable offline.
        results: every check with its windows, as JSON.
        report: the window report as CSV.
        table: the window report itself, for whoever draws it.
        sections: what the library says of its checks, as HTML.
        stored: measures of the suite whose values the replay had stored with its facts.
        measured: those that were taken from the rows now.
        remark: why stored values were passed over, empty if they were not.
        reads_outside: operators that read outside systems, so that no other run can verify the
            windows (R88).
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
        """Failed as soon as one check blocks."""
        return "failed" if any(check.blocks for check in self.checks) else "passed"

    @property
    def about_measures(self) -> str:
        """Where the values of the suite's measures are from, in words."""
        parts = [f"{len(self.stored)} as the replay stored them"] if self.stored else []
        parts += [f"{len(self.measured)} measured now"] if self.measured else []
        why = f" ({self.remark})" if self.remark else ""
        return f"measures: {', '.join(parts) or 'none'}{why}"

    @property
    def not_verifiable(self) -> str:
        """Why no other run can verify its windows; empty if one can."""
        names = ", ".join(self.reads_outside)
        return f"windows are not verifiable: {names} reads outside systems" if names else ""

    @property
    def evaluated(self) -> int:
        """Number of checks that were evaluated."""
        return sum(check.status != "not_run" for check in self.checks)

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """Checks that stop the publication."""
        return tuple(check for check in self.checks if check.blocks)

    @property
    def warnings(self) -> tuple[CheckOutcome, ...]:
        """Checks that failed and do not stop it."""
        return tuple(
            check
            for check in self.checks
            if check.status == "failed" and check.severity == "warning"
        )

    @property
    def noted(self) -> tuple[CheckOutcome, ...]:
        """Checks that failed and only inform."""
        return tuple(
            check for check in self.checks if check.status == "failed" and check.severity == "info"
        )

    def summary(self) -> OutputSummary:
        """Returns what the ledger keeps of it."""
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
        """Returns it for JSON; files by name, since their folder may be moved."""
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
    """The gate's verdict on a replay; `tables` is what was judged, and all that may be published by
    right of it.
    """

    plan: Plan
    checked_at: datetime
    outputs: tuple[OutputVerdict, ...]
    folder: Location
    tables: Contents

    @property
    def verdict(self) -> Verdict:
        """Passed if every output passed; a replay without outputs has nothing that could pass."""
        passed = bool(self.outputs) and all(output.verdict == "passed" for output in self.outputs)
        return "passed" if passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return {
            "replay_id": self.plan.replay_id,
            "application": self.plan.application,
            "verdict": self.verdict,
            "checked_at": self.checked_at.isoformat(),
            "outputs": list(map(OutputVerdict.to_dict, self.outputs)),
        }

    def summary(self) -> CheckSummary:
        """Returns what the ledger keeps: per output what was evaluated, failed and warned of,
        without the windows.
        """
        return {"outputs": list(map(OutputVerdict.summary, self.outputs))}


def name_windows(outcome: CheckOutcome) -> str:
    """Returns the failing windows as a person would write them: ranges, and how many in all."""
    parts = [
        str(part.first) if len(part) == 1 else f"{part.first}–{part.last}"
        for part in outcome.failing[:_SHOWN]
    ]
    more = " ..." if len(outcome.failing) > _SHOWN else ""
    count = outcome.failing_windows
    return f"{count} window{'s' if count != 1 else ''} ({', '.join(parts)}{more})"
