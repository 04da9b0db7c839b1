"""Records new tuples of every stream of rewindow.toml, seals its windows, and emits the stream's
asset.

There is a task for each stream. If a source has nothing new, nothing changes, and the task is
skipped. Malformed and late tuples go to the quarantine table with a reason. The task then succeeds
with a warning, and the asset's event has their numbers, also if no window was sealed. A DAG of
`stream_dag` and `plan_unpublished` (docs/your_airflow.md) runs when a stream has grown, and
publishes the new windows.

Windows are sealed up to the end of the run's data interval, minus the stream's `seal_after`, even
if the stream was silent. A tuple that arrives at the source later is late: set `seal_after` in
rewindow.toml to the time by which your source may lag. A stream with `sealed_to` is sealed up to
that time only.
"""

from rewindow.settings.config import Config
from rewindow_airflow import record, scheduled_dag

with scheduled_dag("record_streams", schedule="@hourly", doc_md=__doc__, tags=["recording"]):
    for stream in Config.load().streams:
        record(stream)
