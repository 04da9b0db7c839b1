"""`rewindow plan --verify`: a sample range in two groupings must give the same digests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from rewindow.certificate import Certificate, certify
from rewindow.config import Config
from rewindow.errors import NotDeterministicError
from rewindow.launcher.loop import run_attempts
from rewindow.ledger import Ledger
from rewindow.ledger.replays import SAMPLE
from rewindow.listener import Listener, Silent
from rewindow.planning.planner import create_replay
from rewindow.planning.request import Draft, ReplayRequest

SAMPLE_ROWS = 3


def verify_sample(
    config: Config, request: ReplayRequest, draft: Draft, windows: int, listener: Listener | None = None
) -> None:
    """Replays the first windows of a range twice, in one group and in many, and compares every window's digest.

    An operator whose output depends on where groups end is found here (R86). The two replays are deleted afterwards.
    They run exactly once unless operators declare another mode: then no other is allowed (R3).

    Raises:
        NotDeterministicError: names the first output and window that differ.
    """
    told = listener or Silent()
    plan = draft.plan
    last = min(plan.last, plan.first + max(windows, 2) - 1)
    count = last - plan.first + 1
    ids = [f"verify-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    is_declared = any(node.mode for node in draft.loaded.app.nodes.values())
    sample = replace(
        request, first=plan.first, last=last, from_time=None, to_time=None, checkpoint_windows=count,
        mode=request.mode if is_declared else "exactly_once", reason=SAMPLE,
    )  # fmt: skip
    try:
        for replay_id, size in zip(ids, (count, max(1, count // 3 - 1)), strict=True):
            told.note(f"verify: {count} windows in groups of {size}")
            create_replay(config, replace(sample, replay_id=replay_id, group_windows=size))
            run_attempts(config, replay_id, told)
        verdict = compare_groupings(config, ids).verdict
    finally:
        _delete(config, ids)
    told.note(f"verified: {count} windows are {verdict} in one group and in groups of {max(1, count // 3 - 1)}")


def compare_groupings(config: Config, ids: Sequence[str]) -> Certificate:
    """Returns what a certificate says of the two replays, which is that they are equal.

    Digests are compared, floats included; where only these differ, the rows are, within each output's tolerance.

    Raises:
        NotDeterministicError: names the first output and window that differ, with some rows of each.
    """
    certificate = certify(config, *ids)
    if certificate.equal:
        return certificate
    found = certificate.first_difference or {}
    rows = "; ".join(
        f"{words}: {', '.join(map(str, found[side][:SAMPLE_ROWS])) or 'none'}"
        for words, side in (("Only in one group", "rows_a"), ("Only in small ones", "rows_b"))
    )
    raise NotDeterministicError(
        f'output "{found["output"]}" of window {found["window"]} depends on where commit groups end',
        detail=f"Its rows differ. {rows}.",
        hint="Look for an aggregate, a distinct or an ordering over the whole frame: group by window_id, and "
        "carry what spans windows in the state. If only floats differ, declare a tolerance of the output.",
    )


def _delete(config: Config, ids: list[str]) -> None:
    ledger = Ledger.open(config.ledger_url)
    for replay_id in ids:
        if ledger.replays.find(replay_id):
            ledger.replays.abandon(replay_id, SAMPLE)
        config.replay_root(replay_id).delete_tree()
