"""Finds the silent stretches of every stream that has an interval, or a section `fill`, and fills
them; then repairs.

For each stream, in a group of its own:

| task | does |
| --- | --- |
| report_gaps | reports what is missing on both clocks, as a page and as CSV; logs who is silent |
| plan_filling | plans `filled_<stream>`, or `heartbeat_<stream>`, over what is not filled yet |
| fill_gaps | one Spark job: data, and timers, or rows with values, where the stream is silent |
| check_filling | the gate |
| publish_filling | publishes the output `filled`, or `ticks`: a stream to be read again |

Behind all of them `repair_windows` looks for late tuples, and for what else has changed in the
inputs of anything that is published, as `rewindow plan --late` does. With `[airflow] repairs =
true` it takes late tuples into their windows, and replays, checks and publishes the windows that
depend on them, downstream too. Without it, its log says which windows these are, why, and the
commands; nothing is changed.
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
    repairs = repair(trigger_rule="none_failed")  # What has nothing new to fill is skipped.
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
