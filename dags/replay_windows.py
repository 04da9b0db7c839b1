"""Replays a range of an application by hand: after an incident or a bug fix, or as a drill.

| task | does |
|---|---|
| plan_replay | checks the form and plans: windows, inputs' versions, start state. What can be refused is refused here |
| replay_windows | one Spark job; killed or failed, the next try goes on after the last committed window |
| check_windows | window report and quality gate; a range that does not pass stays staged |
| approve_publication | waits for a person, if the form says so |
| publish_windows | replaces the range in the published tables |

Fill in the application, the reason and the range: either as times (half-open, with a time zone) or as windows (closed).
A retry or a clear of any task resumes the same replay; once that is published, undone or abandoned, a clear of the
whole run plans a new one.
"""

from __future__ import annotations

from airflow.sdk import DAG

from rewindow_airflow.chains import form_fields, incident_tasks
from rewindow_airflow.policy import DEFAULT_ARGS, SINCE

with DAG(
    dag_id="replay_windows",
    doc_md=__doc__,
    schedule=None,
    start_date=SINCE,
    catchup=False,
    max_active_runs=16,
    is_paused_upon_creation=False,
    default_args=DEFAULT_ARGS,
    params=form_fields(),
    render_template_as_native_obj=True,
    tags=["rewindow", "replay"],
):
    incident_tasks()
