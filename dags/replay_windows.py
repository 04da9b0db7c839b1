"""Replays a range of an application by hand: after an incident or a bug fix, or as a drill.

| task | does |
| --- | --- |
| plan_replay | checks the form and plans: windows, inputs' versions, start state |
| replay_windows | one instance per container; a retry resumes after the last committed window |
| check_windows | window report and quality gate; a range that does not pass stays staged |
| approve_publication | waits for the approval of a user, if the form requires it |
| publish_windows | replaces the range in the published tables |
| close_replay | records the decision: a replay that was rejected stays staged or is abandoned |

Fill in the application, the reason and the range: as times (half-open, with a time zone), as
windows (closed), or as all sealed windows that are not published (`--unpublished` of the command
line); a run without such windows is skipped. Windows before the start of the recording are left
out, and the log of plan_replay lists them. A retry or a clear of any task resumes the same replay;
once that is published, undone or abandoned, a clear of the whole run plans a new one. After a fix
of the application, a clear of plan_replay abandons an open replay of the old code, and plans a new
one.
"""

from rewindow_airflow import approve, check, close_replay, form_dag, plan_form, publish, replay

with form_dag("replay_windows", doc_md=__doc__, tags=["replay"]):
    plan = plan_form()
    plan >> replay(plan) >> check(plan) >> approve(plan) >> publish(plan) >> close_replay(plan)
