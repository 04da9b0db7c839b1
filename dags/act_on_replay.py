"""Acts on one replay, by hand: publish, undo, abandon, resume or certify it.

| act | does | asks |
| --- | --- | --- |
| publish | replaces the range in the published tables; `accept` overrides objections | no |
| undo | restores what was published before the replay | yes |
| abandon | ends the replay permanently; published windows stay | no |
| resume | starts the next attempt, from the newest checkpoint | no |
| certify | compares the replay with what is published now, and writes a certificate | no |

| task | does |
| --- | --- |
| preview_act | shows in its log what the act would change; fails if the act is not possible |
| approve_act | asks for an approval, with the preview, if the act asks |
| run_act | runs the act; `resume` runs in run_job instead, which needs a slot of the pool `spark` |

A publication or an undo emits the assets of its streams, so deliver_windows runs next. The right to
start this DAG is the right to act on replays.
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
