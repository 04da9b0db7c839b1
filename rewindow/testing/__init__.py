"""Runs a tuple operator or a whole application in a test.

The run takes milliseconds, in this process and without a replay.

Example:
    from rewindow.testing import CRASH, run_operator

    clicks = {7: [{"user": "ann"}, {"user": "ann"}], 9: [{"user": "ann"}]}
    result = run_operator(Totals(limit=2), {"clicks": clicks})
    assert result["out"] == [(7, "ann", 2), (9, "ann", 3)]

Operators are called by the same loop over Arrow batches as in a replay, and the state is stored and
restored after every window, or after every `group_windows` windows. `check_grouping` compares runs
with different commit groups and key ranges. `run_input` calls an input operator window by window,
and `run_generator` a generator. `run_application` and `check_application` do the same with all
operators of an application. Frame operators need a session of Spark, which is started if none is
active.
"""

from rewindow.testing.applications import (
    ApplicationRun,
    check_application,
    run_application,
)
from rewindow.testing.computation import local_spark
from rewindow.testing.inputs import run_generator, run_input
from rewindow.testing.operators import Tuples, check_grouping, run_operator
from rewindow.testing.passes import CRASH, OperatorRun

__all__ = [
    "CRASH",
    "ApplicationRun",
    "OperatorRun",
    "Tuples",
    "check_application",
    "check_grouping",
    "local_spark",
    "run_application",
    "run_generator",
    "run_input",
    "run_operator",
]
