"""What is promised of an output end to end, from recovery mode and readers (docs/rules/recovery.md
section 7).
"""

from __future__ import annotations

from rewindow.application import Mode


def guarantee(mode: Mode, *, stateful: bool, lost: int, unseen: int) -> str:
    """Returns the end-to-end guarantee of an output in words (R48 to R50).

    Args:
        mode: recovery mode of the container.
        stateful: whether state stands upstream; after a loss its later windows are affected (R14).
        lost: windows of an output that a crash costs at worst: those of the longest commit group
            (X1, R13).
        unseen: windows that the state lacks after a crash at worst: those between two checkpoints
            (X2).
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
