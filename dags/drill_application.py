"""Kills jobs of an application on purpose, and shows what each crash costs.

Needs `[replay] drills = true` in rewindow.toml. The task runs `rewindow drill`: it replays recent
windows of the application as candidates, which cannot be published. It kills their jobs at random
steps of the commit protocol, and compares each result with a candidate that was not disturbed. The
log of the task has a table of the kills, with the allowed cost, the actual cost, and the seconds to
the next commit. The task fails if a kill cost more than its recovery mode allows.
"""

from rewindow_airflow import drill, drill_dag

with drill_dag("drill_application", doc_md=__doc__, tags=["drill"]):
    drill()
