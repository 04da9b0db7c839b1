"""Checks the output of a replay.

It has a report with one row per window, a suite of expectations on this report, and a gate that
decides whether the replay can be published.
"""

from rewindow.quality.findings import Finding, GateRun, failures, runs
from rewindow.quality.gate import check, judge
from rewindow.quality.outcome import CheckOutcome, GateResult, OutputVerdict
from rewindow.quality.strength import Strength, strength

__all__ = [
    "CheckOutcome",
    "Finding",
    "GateResult",
    "GateRun",
    "OutputVerdict",
    "Strength",
    "check",
    "failures",
    "judge",
    "runs",
    "strength",
]
