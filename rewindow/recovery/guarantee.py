"""What is promised of an output end to end, from the recovery mode and what reads it (rules/recovery.md section 7)."""

from __future__ import annotations

from rewindow.application import Mode

_PROMISES = {
    Mode.EXACTLY_ONCE: "exactly once: every window once, staged and published",
    Mode.AT_LEAST_ONCE: "at least once: nothing lost; repeats stay staged, readers and publish take one attempt",
    Mode.AT_MOST_ONCE: "at most once: nothing repeated; each attempt that dies loses at most one commit group, listed",
}


def guarantee(mode: Mode, *, stateful: bool) -> str:
    """Returns the end-to-end guarantee of an output in words (R48 to R50).

    Args:
        mode: recovery mode of the container.
        stateful: whether state stands upstream; after a loss its later windows are affected (R14).
    """
    promise = _PROMISES[mode]
    return promise + "; later windows are affected by a loss" if stateful and mode is Mode.AT_MOST_ONCE else promise
