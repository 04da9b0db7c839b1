"""Emits the assets of publications and undos that no task of Airflow has made, every five minutes.

`rewindow publish`, `undo` and `repair` in a shell change what readers see, but they cannot start a
DAG. So the ledger has an outbox with every publication and undo. This DAG and each publishing task
emit the publications in it. A DAG that follows the asset of an output runs at least once after each
of them: `extra` has its number as `publication`, and `publish`, `undo` or `withdraw` as `act`.

If a task ends before Airflow has its events, the next task emits them again. So a reader may see a
publication twice.

The task close_unstarted abandons planned replays whose DAG run ended or was deleted before they
started, so that they are no longer listed as planned. If you clear such a run, it plans a new
replay.

The task notify_conditions calls the notifiers in the section [airflow] of rewindow.toml about
conditions such as a failed gate or a silent stream, when they start, worsen and end.
"""

from rewindow_airflow import (
    close_unstarted,
    emit_publications,
    notify_conditions,
    scheduled_dag,
)

with scheduled_dag(
    "emit_publications",
    schedule="*/5 * * * *",
    is_paused_upon_creation=False,
    doc_md=__doc__,
    tags=["publication"],
):
    emit_publications()
    close_unstarted()
    notify_conditions()
