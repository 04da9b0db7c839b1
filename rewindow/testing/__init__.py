"""Run a tuple operator or a whole application in a test: in this process, without a replay, in
milliseconds.

    from rewindow.testing import CRASH, run_operator

    result = run_operator(Totals(limit=2), {"clicks": {7: [{"user": "ann"}, {"user": "ann"}], 9:
    [{"user": "ann"}]}}) assert result["out"] == [(7, "ann", 2), (9, "ann", 3)]

What is called is what a replay calls: the same loop over Arrow batches, with the state stored and
restored at every window unless `group_windows` says otherwise. `check_grouping` holds runs of
several cuts and key ranges together. `run_input` calls an input operator window by window, and
`run_generator` a generator.
`run_application` and `check_application` do the same with all operators of an application; frame
operators among them need a session of Spark, which is started unless there is one.
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
