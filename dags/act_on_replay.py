"""Publishes, undoes, abandons, resumes or certifies one replay, by hand.

| action | does | asks for an approval |
| --- | --- | --- |
| publish | replaces the range in the published tables; objections need a reason in `accept` | no |
| undo | restores what was published before the replay | yes |
| abandon | ends the replay permanently; published windows stay | no |
| resume | starts the next attempt, from the newest checkpoint | no |
| certify | compares the replay with what is published now, and writes a certificate | no |

| task | does |
| --- | --- |
| preview_act | shows in its log what the action would change; fails if it is not possible |
| approve_act | asks for an approval, with the preview in the question, if the action needs one |
| run_act | runs the action, except `resume` |
| run_job | runs `resume`, which needs a slot of the pool `spark` |

A publication or an undo emits the assets of its streams, so deliver_windows runs next. Users who
may start this DAG may act on the replays of all DAGs.
"""

from rewindow_airflow import act_dag, approve_act, preview_act, run_act

with act_dag("act_on_replay", on="replay", doc_md=__doc__, tags=["act"]):
    preview = preview_act()
    (
        preview
        >> approve_act(preview)
        >> [
            run_act(acts=["publish", "undo", "abandon", "certify"], pool="default_pool"),
            run_act(acts=["resume"], task_id="run_job"),
        ]
    )
