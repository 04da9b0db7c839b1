"""Turns exceptions in an operator's code into errors for the user, with the operator, the line of
code, the cause, and the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from rewindow.application import Node
from rewindow.errors import InputError, RewindowError
from rewindow.loading.catalog import application_modules
from rewindow.loading.user_lines import UserLine, class_lines, raised_at
from rewindow.names import whole_replay
from rewindow.recovery import Plan
from rewindow.sequences import excluding
from rewindow.spark.heap import computing
from rewindow.spark.job_log import where_all_is
from rewindow.spark.shared_folder import missing_on_executor
from rewindow.spark.transient_errors import describe, hint_on, is_passing, spark_text
from rewindow.tuple_engine.chain_range import raised_by
from rewindow.tuple_engine.failing import TuplesFailed
from rewindow.windows import WindowRange


class OperatorFailed(RewindowError):
    """The code of an operator has raised an exception that would also occur in a retry.

    Attributes:
        reason: description of the exception alone.
    """

    reason = ""


@contextmanager
def explained(nodes: Sequence[Node], windows: WindowRange, part: str, hint: str) -> Iterator[None]:
    """Turns an exception in an operator's code into an error with the operator's name, the windows,
    the line of the user's file, and a hint.

    Exceptions that a retry may avoid, such as a lost JVM, are passed on unchanged.

    Args:
        nodes: the operator whose code is run, then the upstream operators whose frames are computed
            in the same step.
        windows: the windows that are computed.
        part: description of the step.
        hint: the next step.

    Raises:
        OperatorFailed: the operator's code failed.
        RewindowError: the result of the operator does not match its declaration.
        TuplesFailed: the tuples for which it failed are known.
    """
    node = nodes[0]
    where = f"{part}, windows {windows}"
    try:
        with computing([member.name for member in nodes]):
            yield
    except RewindowError as error:
        error.detail = error.detail or f'Operator "{node.name}", {where}{_class(node)}.'
        error.hint = error.hint or hint
        raise
    except TuplesFailed:
        raise
    except Exception as error:
        if is_passing(error):
            raise
        if unshared := missing_on_executor(spark_text(error)):
            raise unshared from error
        line = raised_at(error, _user_files(nodes))
        owner = _owner(nodes, line, spark_text(error))
        others = ", ".join(f'"{member.name}"' for member in nodes if member is not owner)
        origin = f"Raised by {line}" if line else f"It has no line of your code{_class(owner)}"
        along = (
            f"Computed in the same step: {others}" if others and not _is_inside(owner, line) else ""
        )
        failed = OperatorFailed(
            f'operator "{owner.name}" failed: {describe(error)}',
            detail=". ".join(filter(None, [origin, f"In {where}", along, where_all_is()])) + ".",
            hint=" ".join(filter(None, [hint_on(error), hint])),
        )
        failed.reason = describe(error)
        raise failed from error


def next_steps(plan: Plan) -> str:
    """Returns the hint for the user after an operator has failed.

    Corrected code has another code version, so the range must be planned again.
    """
    whole = whole_replay(plan.replay_id)
    return (
        f"Correct it, then plan the range again: rewindow abandon {whole} && {plan.command}; "
        f"or, if the cause was not in the code: rewindow replay --resume {whole}"
    )


def frames_of(node: Node, returned: Mapping[str, DataFrame] | DataFrame) -> Mapping[str, DataFrame]:
    """Returns the frames of an operator's output ports by name, from the result of `transform`.

    Duplicate rows of a control port are merged.

    Raises:
        InputError: the result is not a frame, or has other ports than the operator declares.

    Rules: O133
    """
    frames = {node.default_port().port: returned} if isinstance(returned, DataFrame) else returned
    ports = node.output_ports()
    wrong = _wrong_frames(frames, ports)
    if wrong:
        raise InputError(
            f'transform of operator "{node.name}" returned {wrong}; its output ports are: '
            f"{', '.join(ports) or 'none'}"
        )
    return {
        name: frame.distinct() if ports[name].control else frame for name, frame in frames.items()
    }


def _wrong_frames(frames: object, ports: Collection[str]) -> str:
    """Returns a description of what is wrong with the result of `transform`; empty if it is
    valid.
    """
    if not isinstance(frames, Mapping):
        return f"{type(frames).__name__} instead of a DataFrame"
    unknown = excluding(frames, ports)
    if unknown:
        return f'the port "{unknown[0]}"'
    missing = excluding(ports, frames)
    if missing:
        return f'no frame for port "{missing[0]}"'
    for name, frame in frames.items():
        if not isinstance(frame, DataFrame):
            return f'{type(frame).__name__} instead of a DataFrame for port "{name}"'
    return ""


def _user_files(nodes: Sequence[Node]) -> set[str]:
    """Returns the files of all loaded applications and of the operators' classes."""
    files = {module.__file__ for module in application_modules() if module.__file__}
    for node in nodes:
        files.update(file for file, _ in class_lines(node.operator))
    return files


def _owner(nodes: Sequence[Node], line: UserLine | None, text: str) -> Node:
    """Returns the operator that an error names, or whose class contains a line of code; otherwise
    the first operator.
    """
    for node in nodes:
        if raised_by(node.name) in text:
            return node
    return next((node for node in nodes if _is_inside(node, line)), nodes[0])


def _is_inside(node: Node, line: UserLine | None) -> bool:
    if line is None:
        return False
    return any(
        file == line.file and line.line in lines for file, lines in class_lines(node.operator)
    )


def _class(node: Node) -> str:
    places = class_lines(node.operator)
    return (
        f', class {type(node.operator).__name__} at "{places[0][0]}", line {places[0][1].start}'
        if places
        else ""
    )
