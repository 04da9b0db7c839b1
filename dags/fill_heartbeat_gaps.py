"""Finds the silent stretches of every stream that has an interval, and fills them with heartbeats.

For each stream, in a group of its own:

| task | does |
|---|---|
| report_gaps | windows empty and missing, and per key the stretches without a tuple longer than the interval |
| plan_filling | plans the application `heartbeat_<stream>` over what is recorded and not yet filled, if anything |
| fill_gaps | one Spark job: data, and timers where the stream is silent |
| check_filling | the gate |
| publish_filling | publishes the stream `heartbeat_<stream>.filled`, which can be an input again |
"""

from __future__ import annotations

from airflow.sdk import DAG, TaskGroup

from rewindow.config import Config
from rewindow_airflow.chains import gap_tasks
from rewindow_airflow.policy import DEFAULT_ARGS, SINCE

with DAG(
    dag_id="fill_heartbeat_gaps",
    doc_md=__doc__,
    schedule="@daily",
    start_date=SINCE,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["rewindow", "heartbeat"],
):
    for stream, settings in Config.load().streams.items():
        if settings.interval:
            with TaskGroup(stream):
                gap_tasks(stream)
