"""What a new attempt restores, where it goes on, and what was lost (docs/rules/recovery.md section
2 and 3).

Marks count windows of the replay: mark m is the end of its m-th window, 0 its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rewindow.application import Mode
from rewindow.errors import CheckpointError


@dataclass(frozen=True)
class Resume:
    """How an attempt begins.

    Attributes:
        restore: mark of the checkpoint to load.
        first: mark of the first window to compute; one past the end when nothing is left.
        lost: per output table, the marks (from, to) that at most once gives up; closed, absent when
            none.
        skipped: marks (from, to) that the state will never see, None when none.
        cuts: marks at which groups must end, so that no group is half committed in any table.
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
    """Returns how a new attempt begins: from a saved state, and with a whole window (R1, R2).

    No table is behind a checkpoint, unless its last commits were lost: then a mode that loses
    nothing goes back to an older checkpoint and compute again what is not there (R10, R21).

    Args:
        mode: recovery mode.
        checkpoints: marks of the checkpoints that can be loaded.
        done: mark of each output table and of the facts.
        started: highest mark whose work was begun, for a mode that may lose.

    Raises:
        CheckpointError: no checkpoint can be loaded.
    """
    lowest = min(done.values(), default=0)
    usable = [mark for mark in checkpoints if mode.may_lose or mark <= lowest]
    if not usable:
        raise CheckpointError(
            f"no usable checkpoint at or before mark {lowest}",
            detail=f"Checkpoints that can be loaded: {sorted(checkpoints) or 'none'}.",
            hint="Abandon the replay and plan it again; what is published is untouched.",
        )
    restore = max(usable)
    if mode.may_lose:
        return _go_on_after_begun(restore, done, started)
    cuts = (
        sorted({mark for mark in done.values() if mark > restore})
        if mode.writes_only_missing
        else []
    )
    return Resume(restore, restore + 1, {}, skipped=None, cuts=tuple(cuts))


def _go_on_after_begun(restore: int, done: Mapping[str, int], started: int) -> Resume:
    """R12, R13: newest checkpoint, then the window after the last one begun; R14, R15: what that
    loses.

    What a table holds was begun, also when the log that says so has lost its last commit.
    """
    started = max([started, *done.values()])
    lost = {table: (mark + 1, started) for table, mark in done.items() if mark < started}
    skipped = (restore + 1, started) if started > restore else None
    return Resume(restore, max(restore, started) + 1, lost, skipped=skipped, cuts=())


def affected_from(mode: Mode, skipped: list[tuple[int, int]]) -> int | None:
    """Returns the first mark that is computed from a state that lacks skipped windows, None when
    none is (R14).
    """
    return min(to for _, to in skipped) + 1 if mode.may_lose and skipped else None
