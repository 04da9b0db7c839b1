"""Judges what a replay staged: one report line per window, a suite of expectations, and a gate that
counts both.
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
