"""Records what is new in every stream of rewindow.toml, seals its windows and emits the stream's asset.

One task a stream. A source that holds nothing new changes nothing. What cannot be taken (malformed, late) goes to the
quarantine table with its reason, and the task's log counts it. Schedule a DAG by the asset `rewindow://streams/NAME` to
run it when the stream has grown.

Windows are sealed up to the end of the run's data interval, less the stream's `seal_after`, also where the stream was
silent. A tuple that the source gets later than that is late: set `seal_after` in rewindow.toml to how long your source
may lag behind. A stream with `sealed_to` is sealed to that time and no further.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from rewindow.config import Config
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.policy import DEFAULT_ARGS, SINCE

with DAG(
    dag_id="record_streams",
    doc_md=__doc__,
    schedule="@hourly",
    start_date=SINCE,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["rewindow", "recording"],
):
    for stream in Config.load().streams:
        RewindowSubmitOperator(
            task_id=f"record_{stream}",
            job="record",
            arguments={"stream": stream, "sealed_to": "{{ data_interval_end | default('', true) }}"},
            outlets=[Asset(name=stream, uri=f"rewindow://streams/{stream}")],
        )
