"""Decides, after a crash, which checkpoint a new attempt restores, which window it computes first,
and which windows are lost (docs/rules/recovery.md sections 2 and 3).

Marks count windows of the replay: mark m is the end of its m-th window, mark 0 the start of the
range.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rewindow.application import Mode
from rewindow.errors import CheckpointError


@dataclass(frozen=True)
class Resume:
    """How an attempt starts.

    Attributes:
        restore: mark of the checkpoint to load.
        first: mark of the first window to compute; one past the end if none is left.
        lost: output table to the first and last mark that at most once gives up; tables without a
            loss are absent.
        skipped: first and last mark that the state never includes, None if there are none.
        cuts: marks at which groups must end, so that no table contains only a part of a group.
    """

    restore: int
    first: int
    lost: dict[str, tuple[int, int]]
    skipped: tuple[int, int] | None
    cuts: tuple[int, ...]


def resume(
    mode: Mode,
    checkpoints: Collection[int],
    done: Mapping[str, int],
    started: int = 0,
) -> Resume:
    """Returns how a new attempt starts: from a saved state, and with a whole window.

    The modes exactly once and at least once restore the newest checkpoint that every table has
    reached, and compute from there. A table can have a lower mark than a checkpoint only if its
    last commits were lost; then an older checkpoint is used, and the missing windows are computed
    again. The mode at most once restores the newest checkpoint, but continues after the last window
    that any attempt has started. The windows between them are lost.

    Where tables are ahead of the checkpoint, groups are cut at the marks of these tables. So a
    group is either committed in a table as a whole or not at all, and the attempt writes it only to
    the tables that lack it.

    Args:
        mode: recovery mode.
        checkpoints: marks of the checkpoints that can be loaded.
        done: mark of each output table and of the facts.
        started: highest mark whose computation an attempt has started, for a mode that may lose.

    Raises:
        CheckpointError: no checkpoint can be loaded.

    Rules: R1, R2, R10, R21
    """
    lowest = min(done.values(), default=0)
    usable = [mark for mark in checkpoints if mode.may_lose or mark <= lowest]
    if not usable:
        raise CheckpointError(
            f"no usable checkpoint at or before mark {lowest}",
            detail=f"Checkpoints that can be loaded: {sorted(checkpoints) or 'none'}.",
            hint="Abandon the replay and plan it again; published windows are not affected.",
        )
    restore = max(usable)
    if mode.may_lose:
        return _resume_after_started(restore, done, started)
    cuts = (
        sorted({mark for mark in done.values() if mark > restore})
        if mode.writes_only_missing
        else []
    )
    return Resume(restore, restore + 1, {}, skipped=None, cuts=tuple(cuts))


def _resume_after_started(restore: int, done: Mapping[str, int], started: int) -> Resume:
    """Returns how an attempt starts in the mode at most once: after the last started window, with
    its losses.

    A window in a table was started, even if the log of started windows has lost its last commit.

    Rules: R12 to R15
    """
    started = max([started, *done.values()])
    lost = {table: (mark + 1, started) for table, mark in done.items() if mark < started}
    skipped = (restore + 1, started) if started > restore else None
    return Resume(restore, max(restore, started) + 1, lost, skipped=skipped, cuts=())


def affected_from(mode: Mode, skipped: list[tuple[int, int]]) -> int | None:
    """Returns the first mark that is computed from a state that lacks skipped windows; None if
    there is none.

    Rules: R14
    """
    return min(to for _, to in skipped) + 1 if mode.may_lose and skipped else None
