"""The conditions about which notifiers are called."""

from __future__ import annotations

from typing import Literal, get_args

ConditionKind = Literal[
    "gate_failed",
    "replay_failed",
    "windows_stale",
    "late_tuples",
    "stream_silent",
    "nothing_sealed",
    "approval_waiting",
]
GATE_FAILED: ConditionKind = "gate_failed"
REPLAY_FAILED: ConditionKind = "replay_failed"
WINDOWS_STALE: ConditionKind = "windows_stale"
LATE_TUPLES: ConditionKind = "late_tuples"
STREAM_SILENT: ConditionKind = "stream_silent"
NOTHING_SEALED: ConditionKind = "nothing_sealed"
APPROVAL_WAITING: ConditionKind = "approval_waiting"
CONDITIONS: tuple[ConditionKind, ...] = get_args(ConditionKind)
"""All conditions, which is the default of `notify_on`."""
