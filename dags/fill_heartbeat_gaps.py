"""Finds the gaps of every stream that has an interval or a section `fill`, fills them, and then
repairs published windows.

There is a task group for each stream:

| task | does |
| --- | --- |
| report_gaps | reports missing rows, as a page and as CSV; logs the silent keys |
| plan_filling | plans `filled_<stream>` or `heartbeat_<stream>` for windows not filled yet |
| fill_gaps | computes the filled rows or the timers, in one Spark job |
| check_filling | runs the gate |
| publish_filling | publishes the output `filled` or `ticks`, which others can read |

After all groups, `repair_windows` searches published windows whose inputs have changed since, for
example because of late tuples, like `rewindow plan --late`. With `[airflow] repairs = true` it adds
late tuples to their windows, and replays, checks and publishes all windows that depend on them,
also those of other applications. With `repairs = "approve"` it asks a person first. Otherwise it
changes nothing: its log lists the windows, their times, the reasons, and how to repair them.
"""

from airflow.sdk import TaskGroup, chain

from rewindow.settings.config import Config
from rewindow_airflow import (
    check,
    plan_filling,
    publish,
    repair,
    replay,
    report_gaps,
    scheduled_dag,
)

with scheduled_dag("fill_heartbeat_gaps", doc_md=__doc__, tags=["heartbeat"]):
    repairs = repair(trigger_rule="none_failed")  # Streams without new windows are skipped.
    for stream, settings in Config.load().streams.items():
        if settings.interval_us or settings.fill is not None:
            with TaskGroup(stream):
                plan = plan_filling(stream)
                chain(
                    report_gaps(stream),
                    plan,
                    replay(plan, task_id="fill_gaps"),
                    check(plan, task_id="check_filling"),
                    publish(plan, task_id="publish_filling"),
                    repairs,
                )
