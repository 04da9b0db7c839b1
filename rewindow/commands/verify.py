"""`rewindow plan --verify`: a sample range in two groupings must give the same digests."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace

from rewindow.commands.replay import run_attempts
from rewindow.commands.screen import err
from rewindow.config import Config
from rewindow.errors import NotDeterministicError
from rewindow.launcher import Draft, ReplayRequest, create_replay
from rewindow.ledger import Ledger
from rewindow.tables import query
from rewindow.tables.staging import FACTS


def verify_sample(config: Config, request: ReplayRequest, draft: Draft, windows: int) -> None:
    """Replays the first windows of a range twice, in one group and in many, and compares every window's digest.

    An operator whose output depends on where groups end is found here (R86). The two replays are deleted afterwards.
    They run exactly once unless operators declare another mode: then no other is allowed (R3). What it says goes to the
    errors: the output may be the JSON of a plan.

    Raises:
        NotDeterministicError: names the first output and window that differ.
    """
    plan = draft.plan
    last = min(plan.last, plan.first + max(windows, 2) - 1)
    count = last - plan.first + 1
    ids = [f"verify-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    is_declared = any(node.mode for node in draft.loaded.app.nodes.values())
    sample = replace(
        request, first=plan.first, last=last, from_time=None, to_time=None, checkpoint_windows=count,
        mode=request.mode if is_declared else "exactly_once", reason="plan --verify",
    )  # fmt: skip
    try:
        for replay_id, size in zip(ids, (count, max(1, count // 3 - 1)), strict=True):
            err.print(f"verify: {count} windows in groups of {size}")
            create_replay(config, replace(sample, replay_id=replay_id, group_windows=size))
            run_attempts(config, replay_id)
        _compare(config, ids)
    finally:
        _delete(config, ids)
    err.print(f"verified: {count} windows give the same digests in one group and in groups of {max(1, count // 3 - 1)}")


def _compare(config: Config, ids: list[str]) -> None:
    sql = """
    select a.port, a.window_id, a.tuples as one, b.tuples as many from a join b
    on a.port = b.port and a.window_id = b.window_id and a.direction = b.direction
    where a.direction = 'out' and (a.digest <> b.digest or a.tuples <> b.tuples)
    order by a.window_id, a.port limit 1"""
    a, b = (config.replay_root(replay_id) / FACTS for replay_id in ids)
    for row in query(sql, a=a, b=b).to_pylist():
        raise NotDeterministicError(
            f'output "{row["port"]}" of window {row["window_id"]} depends on where commit groups end',
            detail=f"It has {row['one']} tuples computed in one group, {row['many']} in small ones; or other values.",
            hint="Look for an aggregate, a distinct or an ordering over the whole frame: group by window_id (R79), and "
            "carry what spans windows in the state.",
        )


def _delete(config: Config, ids: list[str]) -> None:
    ledger = Ledger.open(config.ledger_url)
    for replay_id in ids:
        if ledger.find(replay_id):
            ledger.abandon(replay_id, "plan --verify")
        shutil.rmtree(config.replay_root(replay_id), ignore_errors=True)
