"""Replays an application day by day, in order: the current day, or earlier days by a backfill.

    airflow backfill create --dag-id replay_daily --from-date 2013-01-01 --to-date 2013-01-31

With the Airflow of `rewindow up`, put `python -m rewindow.embedded` before the command.

Because an application has state, a day starts only after the previous run, in the order of logical
dates, has succeeded. A failed day blocks the following days until it is cleared or marked as
success. The next day waits in `plan_replay` (deferred), all others in the queue. If an earlier day
is cleared or started by hand, and a waiting day occupies its slot, the run of the waiting day ends
as skipped, which Airflow counts as a success. Its log names the earlier run, and it is started
again automatically when its turn comes. To leave it out, mark its task plan_replay as success.
So the days stay in order, whichever of them are cleared and however a backfill runs.

With the option `--reprocess-behavior completed`, days that were already published are computed and
published again. If the replay of a day was abandoned (`rewindow abandon`), clear its run to plan a
new one. After a fix of the application, clear the failed run from plan_replay: it abandons the
replay of the old code and plans a new one.

| task | does |
| --- | --- |
| plan_replay | waits for its turn; plans the recorded windows of the run; skips a run without any |
| replay_windows | one instance per container; a retry resumes after the last committed window |
| check_windows | computes the window report and runs the gate; a day that fails stays staged |
| publish_windows | replaces the day in the published tables |

If windows are not sealed yet, plan_replay checks again every five minutes (state
`up_for_reschedule`), which uses no retry, and fails after a day.

Application and mode are parameters: `--dag-run-conf '{"mode": "at_least_once"}'`. The default
application is `[airflow] application` in rewindow.toml, or the only existing one. With two or more
and no setting, a run that names none fails when it is planned. A day without an earlier published
state is warmed up: the application first computes all windows that were recorded before the day.
With `{"initial_state": true}`, the first day of a backfill starts with the initial state instead,
and the following days continue from it.
"""

from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

with interval_dag("replay_daily", schedule="@daily", doc_md=__doc__, tags=["replay"]):
    plan = plan_interval()
    plan >> replay(plan) >> check(plan) >> publish(plan)
