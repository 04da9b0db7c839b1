"""Reopens or replaces windows of a recorded stream, or repairs published windows, by hand.

| action | does | asks for an approval |
| --- | --- | --- |
| reopen | moves late tuples from the quarantine to their windows; outputs become stale | no |
| replace | reads the whole source again, and replaces windows that differ from it | yes |
| repair | like reopen for all streams; then replays, checks and publishes stale windows | no |

The task preview_act shows in its log what the action would change, approve_act asks for an approval
with this preview, and run_act runs the action. Users who may start this DAG may act on all streams
and on all published windows.
"""

from rewindow_airflow import act_dag, approve_act, preview_act, run_act

with act_dag("act_on_stream", on="stream", doc_md=__doc__, tags=["act"]):
    preview = preview_act()
    preview >> approve_act(preview) >> run_act()
