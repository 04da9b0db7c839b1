"""The actions that a page offers for a replay or a stream. Each one starts a run of a DAG through
Airflow's API, with the rights of the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.inspection.next_steps import has_stopped_unnoticed
from rewindow.inspection.visibility import visibility
from rewindow.ledger.replays import ReplayState
from rewindow.names import whole_replay
from rewindow.pages.replay_report import Action

if TYPE_CHECKING:
    from rewindow.ledger import Ledger, Replay
    from rewindow.recording.inventory import StreamEntry

ON_REPLAY = "act_on_replay"
ON_STREAM = "act_on_stream"
"""The DAGs of the actions."""
PUBLISH = "publish"
_WORDS = {
    PUBLISH: "shows the staged windows to readers",
    "undo": "restores the windows that were published before",
    "resume": "starts the next attempt, which continues after the last checkpoint",
    "certify": "compares the replay with the published windows and stores the certificate",
    "abandon": "ends the replay permanently; its staged windows are never published",
}
_STAGED = (PUBLISH, "certify", "abandon")
_POSSIBLE = {
    ReplayState.PLANNED: ("resume", "abandon"),
    ReplayState.RUNNING: ("abandon",),
    ReplayState.FAILED: ("resume", "abandon"),
    ReplayState.ENDED: _STAGED,
    ReplayState.CHECKED: _STAGED,
    ReplayState.PUBLISHED: ("undo", "certify"),
    ReplayState.UNDONE: _STAGED,
    ReplayState.ABANDONED: (),
}


def actions_on_replay(ledger: Ledger, row: Replay) -> tuple[Action, ...]:
    """Returns the actions that are possible in the current state of a replay."""
    if whole_replay(row.replay_id) != row.replay_id:
        return ()
    acts = list(_POSSIBLE[row.state])
    if has_stopped_unnoticed(ledger, row):
        acts.insert(0, "resume")
    impossible = set()
    if row.plan.get("candidate"):
        impossible.add(PUBLISH)
    if visibility(ledger, row).covered_by:
        # The later publications have to be undone first.
        impossible.add("undo")
    if any(act.closed_at is None for act in ledger.publications.newest(row.replay_id)):
        # An unfinished publication can only be completed.
        acts = [PUBLISH]
    values = {"replay": row.replay_id}
    return tuple(Action(act, _WORDS[act], values) for act in acts if act not in impossible)


def actions_on_stream(entry: StreamEntry) -> tuple[Action, ...]:
    """Returns the actions that are possible for a stream."""
    repair = Action(
        "repair",
        "finds and replays all published windows whose inputs have changed, in all streams",
        {"stream": None},
    )
    if entry.is_published or not entry.late:
        return (repair,)
    words = f"adds its {entry.late:,} late tuples to their windows"
    return Action("reopen", words, {"stream": entry.name}), repair
