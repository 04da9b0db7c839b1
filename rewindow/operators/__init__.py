"""The library of operators.

Each operator has a package or module with a function on DataFrames and an operator class that calls
the function. Users import operators from here. A module is loaded only when one of its names is
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewindow.operators.event_time.lateness import Lateness, late_by_idleness, lateness
    from rewindow.operators.event_time.operator import SplitLate
    from rewindow.operators.event_time.settings import EventTime, StreamTime
    from rewindow.operators.event_time_windows.current import current_windows
    from rewindow.operators.event_time_windows.operator import AggregateWindows
    from rewindow.operators.event_time_windows.settings import (
        ApexWindows,
        CountWindows,
        EventWindows,
        GlobalWindow,
        SessionWindows,
    )
    from rewindow.operators.event_time_windows.windows import Windows, event_windows
    from rewindow.operators.filling.current import current_filled
    from rewindow.operators.filling.function import fill_gaps
    from rewindow.operators.filling.operator import FillGaps
    from rewindow.operators.filling.settings import ColumnFill, FillSettings
    from rewindow.operators.gaps.function import FrameGaps, gap_report, learn_cadence
    from rewindow.operators.gaps.settings import GapSettings
    from rewindow.operators.generators.auctions import Auctions
    from rewindow.operators.generators.generator import Generator
    from rewindow.operators.generators.sensors import Sensors
    from rewindow.operators.heartbeat.operator import Heartbeat
    from rewindow.operators.library.aggregate import Aggregate
    from rewindow.operators.library.deduplicate import Deduplicate
    from rewindow.operators.library.join import Enrich, Join
    from rewindow.operators.library.select import Select
    from rewindow.operators.library.split import Sample, Split, Union
    from rewindow.operators.library.top import TopN
    from rewindow.operators.merge.operator import Merge
    from rewindow.operators.metronome import Metronome
    from rewindow.operators.storm.windows import StormResult, StormWindows, storm_windows
    from rewindow.operators.tuples.delay import DelayOperator
    from rewindow.operators.tuples.input_operator import InputOperator
    from rewindow.operators.tuples.operator import TupleOperator
    from rewindow.operators.tuples.output_operator import CollectOperator, OutputOperator
    from rewindow.operators.tuples.sliding import SlidingField
    from rewindow.operators.tuples.state import StateField

_MODULE_OF = {
    "Aggregate": "library.aggregate",
    "AggregateWindows": "event_time_windows.operator",
    "ApexWindows": "event_time_windows.settings",
    "Auctions": "generators.auctions",
    "CollectOperator": "tuples.output_operator",
    "ColumnFill": "filling.settings",
    "CountWindows": "event_time_windows.settings",
    "Deduplicate": "library.deduplicate",
    "DelayOperator": "tuples.delay",
    "Enrich": "library.join",
    "EventTime": "event_time.settings",
    "EventWindows": "event_time_windows.settings",
    "FillGaps": "filling.operator",
    "FillSettings": "filling.settings",
    "FrameGaps": "gaps.function",
    "GapSettings": "gaps.settings",
    "Generator": "generators.generator",
    "GlobalWindow": "event_time_windows.settings",
    "Heartbeat": "heartbeat.operator",
    "InputOperator": "tuples.input_operator",
    "Join": "library.join",
    "Lateness": "event_time.lateness",
    "Merge": "merge.operator",
    "Metronome": "metronome",
    "OutputOperator": "tuples.output_operator",
    "Sample": "library.split",
    "Select": "library.select",
    "Sensors": "generators.sensors",
    "SessionWindows": "event_time_windows.settings",
    "SlidingField": "tuples.sliding",
    "Split": "library.split",
    "SplitLate": "event_time.operator",
    "StateField": "tuples.state",
    "StormResult": "storm.windows",
    "StormWindows": "storm.windows",
    "StreamTime": "event_time.settings",
    "TopN": "library.top",
    "TupleOperator": "tuples.operator",
    "Union": "library.split",
    "Windows": "event_time_windows.windows",
    "current_filled": "filling.current",
    "current_windows": "event_time_windows.current",
    "event_windows": "event_time_windows.windows",
    "fill_gaps": "filling.function",
    "gap_report": "gaps.function",
    "late_by_idleness": "event_time.lateness",
    "lateness": "event_time.lateness",
    "learn_cadence": "gaps.function",
    "storm_windows": "storm.windows",
}
__all__ = [
    "Aggregate",
    "AggregateWindows",
    "ApexWindows",
    "Auctions",
    "CollectOperator",
    "ColumnFill",
    "CountWindows",
    "Deduplicate",
    "DelayOperator",
    "Enrich",
    "EventTime",
    "EventWindows",
    "FillGaps",
    "FillSettings",
    "FrameGaps",
    "GapSettings",
    "Generator",
    "GlobalWindow",
    "Heartbeat",
    "InputOperator",
    "Join",
    "Lateness",
    "Merge",
    "Metronome",
    "OutputOperator",
    "Sample",
    "Select",
    "Sensors",
    "SessionWindows",
    "SlidingField",
    "Split",
    "SplitLate",
    "StateField",
    "StormResult",
    "StormWindows",
    "StreamTime",
    "TopN",
    "TupleOperator",
    "Union",
    "Windows",
    "current_filled",
    "current_windows",
    "event_windows",
    "fill_gaps",
    "gap_report",
    "late_by_idleness",
    "lateness",
    "learn_cadence",
    "storm_windows",
]


def __getattr__(name: str) -> Any:
    """Imports the module of an operator or function on its first use and returns the operator or
    function.
    """
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f'module "{__name__}" has no "{name}"')
