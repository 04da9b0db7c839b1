"""Run a tuple operator in a test: in this process, without Spark, in milliseconds.

    from rewindow.testing import CRASH, run_operator

    result = run_operator(Totals(limit=2), {"clicks": {7: [{"user": "ann"}, {"user": "ann"}], 9: [{"user": "ann"}]}})
    assert result["out"] == [(7, "ann", 2), (9, "ann", 3)]

What is called is what a replay calls: the same loop over Arrow batches, with the state stored and restored at every
window unless `group_windows` says otherwise. `check_grouping` holds runs of several cuts and key ranges together.
"""

from rewindow.testing.operators import CRASH, OperatorRun, Tuples, check_grouping, run_operator

__all__ = ["CRASH", "OperatorRun", "Tuples", "check_grouping", "run_operator"]
