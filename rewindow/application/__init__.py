"""The API for users: an application is a graph of operators with typed ports. Building a graph does
not run anything.

Names are imported on first use. So Airflow can read the recovery modes for every DAG that it parses
without importing Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewindow.application.configuring import apply_overrides
    from rewindow.application.description import (
        GraphDescription,
        OperatorDescription,
        describe_graph,
    )
    from rewindow.application.graph import TOLERANCE, Application, Output
    from rewindow.application.modes import MODES, Mode
    from rewindow.application.module import Part, PartInstance
    from rewindow.application.node import Node, PortHandle
    from rewindow.application.operator import (
        WRITTEN,
        FrameOperator,
        InputPort,
        OperatorContext,
        OutputPort,
        PartSink,
    )
    from rewindow.application.overrides import PropertyOverride
    from rewindow.application.properties import WrongProperty, matches
    from rewindow.application.validation import find_violations, validate
    from rewindow.application.violations import Violation

_MODULES = {
    "configuring": ("apply_overrides",),
    "overrides": ("PropertyOverride",),
    "description": ("GraphDescription", "OperatorDescription", "describe_graph"),
    "graph": ("TOLERANCE", "Application", "Output"),
    "module": ("Part", "PartInstance"),
    "modes": ("MODES", "Mode"),
    "node": ("Node", "PortHandle"),
    "operator": (
        "WRITTEN",
        "FrameOperator",
        "InputPort",
        "OperatorContext",
        "OutputPort",
        "PartSink",
    ),
    "properties": ("WrongProperty", "matches"),
    "validation": ("find_violations", "validate"),
    "violations": ("Violation",),
}
_MODULE_OF: dict[str, str] = {}
for _module, _names in _MODULES.items():
    _MODULE_OF |= dict.fromkeys(_names, _module)
__all__ = [
    "MODES",
    "TOLERANCE",
    "WRITTEN",
    "Application",
    "FrameOperator",
    "GraphDescription",
    "InputPort",
    "Mode",
    "Node",
    "OperatorContext",
    "OperatorDescription",
    "Output",
    "OutputPort",
    "Part",
    "PartInstance",
    "PartSink",
    "PortHandle",
    "PropertyOverride",
    "Violation",
    "WrongProperty",
    "apply_overrides",
    "describe_graph",
    "find_violations",
    "matches",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Imports an exported name on first use."""
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f'module "{__name__}" has no "{name}"')
