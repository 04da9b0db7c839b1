"""Plans a replay: turns a request into inputs, a start state, a forecast and staged tables.

Starts no JVM.
"""

from rewindow.planning.planner import create_replay, draft_plan
from rewindow.planning.request import PlanPreview, ReplayRequest

__all__ = ["PlanPreview", "ReplayRequest", "create_replay", "draft_plan"]
