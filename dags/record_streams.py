"""Records what is new in every stream of rewindow.toml, seals its windows and emits the stream's
asset.

One task a stream. A source that holds nothing new changes nothing. What cannot be taken (malformed,
late) goes to the quarantine table with its reason, and the task's log counts it. A DAG of
`stream_dag` and `plan_unpublished` (docs/your_airflow.md) runs when a stream has grown, and
publishes what is new.

Windows are sealed up to the end of the run's data interval, less the stream's `seal_after`, also
where the stream was silent. A tuple that the source gets later than that is late: set `seal_after`
in rewindow.toml to how long your source may lag behind. A stream with `sealed_to` is sealed to that
time and no further.
"""

from rewindow.settings.config import Config
from rewindow_airflow import record, scheduled_dag

with scheduled_dag("record_streams", schedule="@hourly", doc_md=__doc__, tags=["recording"]):
    for stream in Config.load().streams:
        record(stream)
