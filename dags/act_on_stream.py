"""Acts on a recorded stream, and on what was published from it, by hand.

| act | does | asks |
| --- | --- | --- |
| reopen | moves late tuples from the quarantine to their windows; outputs become stale | no |
| replace | reads the whole source again, and replaces windows that differ from it | yes |
| repair | replays, checks and publishes all published windows whose inputs have changed | no |

The task preview_act shows in its log what the act would change, approve_act asks for an approval
with this preview, and run_act runs the act. The right to start this DAG is the right to act on
streams.
"""

from rewindow_airflow import act_dag, approve_act, preview_act, run_act

with act_dag("act_on_stream", on="stream", doc_md=__doc__, tags=["act"]):
    preview = preview_act()
    preview >> approve_act(preview) >> run_act()
