"""How far an attempt has come, as the task's log says it and as the task state store keeps it."""

from __future__ import annotations

from typing import Any

from rewindow.job_lines import ReplayProgress


def progress_words(progress: ReplayProgress) -> str:
    """Returns the line of the log."""
    return (
        f"Window {progress.last} is committed: {progress.mark:,} of {progress.of:,} windows ({_percent(progress)} %), "
        f"{progress.seconds:.1f} s, attempt {progress.epoch}"
    )


def progress_facts(progress: ReplayProgress) -> dict[str, Any]:
    """Returns what is kept in the task state store."""
    return {
        "replay": progress.replay, "epoch": progress.epoch, "window": progress.last, "mark": progress.mark,
        "of": progress.of, "seconds": progress.seconds, "percent": _percent(progress),
    }  # fmt: skip


def _percent(progress: ReplayProgress) -> int:
    return 100 * progress.mark // max(progress.of, 1)
