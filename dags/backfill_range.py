"""Replays a long range of an application in steps, such as a replay per week over a year.

| task | does |
| --- | --- |
| plan_steps | checks the form, and divides the range into steps |
| replay_steps | one instance per step: plans, replays, checks and publishes the step |

The steps run from the oldest to the newest. If the application has state, a step runs only after
the one before it has succeeded. Otherwise, the field "Newest step first" reverses the order, and
several steps run at once: `[replay] containers_at_once`, limited by the slots of the pool `spark`.

A retry or a clear of an instance resumes its step. To cancel the backfill, mark the run as failed.
To resume it, clear the run: steps that have ended are not computed again. If the code has changed,
the other steps are planned again, and their replays are abandoned. The ids of all replays start
with `backfill_range-` and a digest of the run, and the tab Rewindow of the run lists them.
"""

from rewindow_airflow import form_dag, plan_steps, replay_steps

with form_dag("backfill_range", steps=True, doc_md=__doc__, tags=["replay"]):
    replay_steps(plan_steps())
