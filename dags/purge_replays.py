"""Deletes staged tables and checkpoints that are no longer needed, by hand, after an approval.

The task preview_act lists in its log what would be deleted, and approve_act shows the list in its
question. Published windows, and files that an undo needs, are kept.
"""

from rewindow_airflow import act_dag, approve_act, preview_act, run_act

with act_dag("purge_replays", on="purge", doc_md=__doc__, tags=["act"]):
    preview = preview_act()
    preview >> approve_act(preview) >> run_act(pool="default_pool")
