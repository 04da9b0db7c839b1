"""Kills jobs of an application on purpose, and shows what each crash costs.

Needs `[replay] drills = true` in rewindow.toml. The task runs `rewindow drill`: it replays recent
windows of the application as candidates, which cannot be published, kills their jobs at drawn steps
of the commit protocol, and compares each result with a candidate that was not disturbed. Its log
has a table of the kills: what was allowed, what was seen, and the seconds to the next commit. The
task fails if a promise was broken.
"""

from rewindow_airflow import drill, drill_dag

with drill_dag("drill_application", doc_md=__doc__, tags=["drill"]):
    drill()
