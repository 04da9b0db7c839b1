"""The end-to-end guarantee of an output in words, from the recovery mode and the group sizes
(docs/rules/recovery.md section 7).
"""

from __future__ import annotations

from rewindow.application import Mode


def guarantee(mode: Mode, *, stateful: bool, lost: int, unseen: int) -> str:
    """Returns the end-to-end guarantee of an output in words.

    Args:
        mode: recovery mode of the container.
        stateful: whether an upstream operator has state; after a loss its later windows are
            affected.
        lost: most windows of an output that a crash can cost: those of the longest commit group.
        unseen: most windows that the state can lack after a crash: those between two checkpoints.

    Rules: R13, R14, R48 to R50, X1, X2
    """
    promise = mode.promise.format(lost=_windows(lost))
    if not mode.may_lose or not stateful:
        return promise
    return (
        f"{promise}; its state then lacks at most {_windows(unseen)}, and later windows are "
        "affected"
    )


def _windows(count: int) -> str:
    return f"{count:,} window{'s' * (count != 1)}"
