"""Delivers published windows to the targets of rewindow.toml.

A run starts after each publication or undo of an output that a section `[targets.NAME]` has in its
`outputs`, and every hour. After a publication in a shell it starts when the DAG `emit_publications`
has run. One task per output and target replaces the windows whose rows differ at the target; a run
without changes writes nothing. An output that is not published yet is skipped.

A failed delivery changes neither the publication nor the replays of later days. The next run
delivers what is missing.
"""

from airflow.sdk import AssetAny, AssetOrTimeSchedule, CronTriggerTimetable

from rewindow.settings.config import Config
from rewindow_airflow import deliver, scheduled_dag, stream_asset

deliveries = Config.load().deliveries()
if deliveries:
    schedule = AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"),
        assets=AssetAny(*[stream_asset(delivery.output) for delivery in deliveries]),
    )
    with scheduled_dag("deliver_windows", schedule=schedule, doc_md=__doc__, tags=["delivery"]):
        for delivery in deliveries:
            deliver(
                delivery.output,
                delivery.target,
                task_id=f"deliver_{delivery.output.replace('.', '__')}_to_{delivery.target}",
            )
