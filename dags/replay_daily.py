r"""Replays an application day by day, in order: today's data, or a past month by a backfill.

    airflow backfill create --dag-id replay_daily --from-date 2013-01-01 --to-date 2013-01-31 \
        --reprocess-behavior completed

The application carries state from window to window, so a day begins only when the day before has been published, and
one run at a time. A day that fails holds back the days after it until it is cleared or marked as success. For the same
reason `--run-backwards` is refused: a day computed before the day before it would start from the wrong state. Airflow
asks for `--reprocess-behavior`: with `completed`, a day that was published before is computed and published again. A
day whose replay was given up (`rewindow abandon`) is planned anew when its run is cleared.

| task | does |
|---|---|
| plan_replay | plans the windows of the run's data interval; skips the run when none of them is recorded |
| replay_windows | one Spark job; killed or failed, the next try goes on after the last committed window |
| check_windows | window report and quality gate; a day that does not pass stays staged |
| publish_windows | replaces the day in the published tables |

Windows that are not sealed yet are waited for: plan_replay looks every five minutes (state `up_for_reschedule`), which
uses up no retry, and fails after a day of it.

Application and mode are parameters: `--dag-run-conf '{"mode": "at_least_once"}'`. A day before which no state was
published is warmed up: the application first computes all windows recorded before it. `{"initial_state": true}` makes
the first day of a backfill begin with the initial state instead; the days after it go on from the state before them.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronDataIntervalTimetable

from rewindow_airflow.chains import application_names, ordered_tasks
from rewindow_airflow.forms import daily_params
from rewindow_airflow.policy import DEFAULT_ARGS, SINCE

with DAG(
    dag_id="replay_daily",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=SINCE,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    params=daily_params(application_names()),
    tags=["rewindow", "replay"],
):
    ordered_tasks()
