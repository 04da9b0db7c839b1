"""Replays an application day by day, in order: today's data, or a past month by a backfill.

    airflow backfill create --dag-id replay_daily --from-date 2013-01-01 --to-date 2013-01-31

With the Airflow of `rewindow up` the command begins with `python -m rewindow.embedded airflow`.

The application carries state from window to window, so a day begins only when the run before it, in
the order of logical dates, has succeeded. A day that fails holds back the days after it until it is
cleared or marked as success. The day after it waits in `plan_replay` (deferred), the others in the
queue. When an earlier day is cleared, or started by hand, and needs the slot of a day that waits,
the later one makes way: its run ends as failed, its log names the earlier run, and it is started
again by itself as soon as that one has its turn. So the order holds whatever is cleared, and
whatever way a backfill runs.

With `--reprocess-behavior completed` behind it, a day that was published before is computed and
published again. A day whose replay was given up (`rewindow abandon`) is planned anew when its run
is cleared.

| task | does |
| --- | --- |
| plan_replay | waits for its turn; plans the recorded windows of the run, skips a run without any |
| replay_windows | an instance per container; a try resumes after the last committed window |
| check_windows | window report and quality gate; a day that does not pass stays staged |
| publish_windows | replaces the day in the published tables |

Windows that are not sealed yet are waited for: plan_replay looks every five minutes (state
`up_for_reschedule`), which uses up no retry, and fails after a day of it.

Application and mode are parameters: `--dag-run-conf '{"mode": "at_least_once"}'`. Without one, the
application is that of `[airflow] application` in rewindow.toml, else the only one there is; with
two or more, a run that names none fails at its plan. A day before which no state was published is
warmed up: the application first computes all windows recorded before it. `{"initial_state": true}`
makes the first day of a backfill begin with the initial state instead; the days after it go on from
the state before them.
"""

from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

with interval_dag("replay_daily", schedule="@daily", doc_md=__doc__, tags=["replay"]):
    plan = plan_interval()
    plan >> replay(plan) >> check(plan) >> publish(plan)
