"""Retention: purge of staged tables, undo horizon, old results."""

from rewindow.retention.horizon import UndoHorizon, undo_horizon
from rewindow.retention.results import prune_results

__all__ = ["UndoHorizon", "prune_results", "undo_horizon"]
