"""What a user writes: an application graph of operators with typed ports. Building one runs nothing."""

from rewindow.application.graph import TOLERANCE, Application, Node, Output, PortHandle
from rewindow.application.modes import MODES, Mode
from rewindow.application.operator import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.application.properties import WrongProperty, matches
from rewindow.application.validation import validate
from rewindow.application.violations import Violation

__all__ = [
    "MODES",
    "TOLERANCE",
    "Application",
    "FrameOperator",
    "InputPort",
    "Mode",
    "Node",
    "OperatorContext",
    "Output",
    "OutputPort",
    "PortHandle",
    "Violation",
    "WrongProperty",
    "matches",
    "validate",
]
