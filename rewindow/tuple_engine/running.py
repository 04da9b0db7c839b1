"""The copy of an operator that the engine calls.

Its state fields are plain attributes, so that reading and assigning them is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.sequences import names_of
from rewindow.tuple_engine.tagged_rows import TagShape


class StateReader(Protocol):
    """The key range that a running copy belongs to."""

    def unkeyed(self) -> InputError:
        """Returns the error for an access to state while no key is selected."""


class _NoKey:
    """The descriptor of a state field.

    It is only called while no key is selected. Otherwise the value is in the operator's `__dict__`.
    """

    def __get__(
        self,
        operator: TupleOperator | None,
        owner: type | None = None,
    ) -> Any:
        if operator is None:
            return self
        raise operator.__dict__["_range"].unkeyed()


def running_copy(
    operator: TupleOperator,
    shape: TagShape,
    key_range: StateReader,
    context: OperatorContext,
    emit: Callable[..., None],
) -> TupleOperator:
    """Returns a copy of an operator that reads and emits through a key range."""
    copied = operator.model_copy()
    copied.__dict__.update(_range=key_range, context=context, emit=emit)
    names = tuple(names_of(shape.attributes))
    object.__setattr__(copied, "__class__", _running_class(type(operator), names))
    return copied


@cache
def _running_class(kind: type, names: tuple[str, ...]) -> type:
    """Returns the class of running copies.

    It is a subclass of the operator's class without pydantic's checks of assignments.
    """
    own = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__slots__": (),
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    running: type = type.__new__(
        type(kind),
        kind.__name__,
        (kind,),
        {**own, **dict.fromkeys(names, _NoKey())},
    )
    return running


def check_assigned(operator: TupleOperator, given: Mapping[str, Any]) -> None:
    """Checks that callbacks have assigned only state and transient attributes.

    Other attributes would be lost after the group.

    Args:
        operator: the running copy.
        given: its attributes before its first callback.

    Raises:
        InputError: names the attribute.

    Rules: X49
    """
    now = operator.__dict__
    for name in now:
        if (
            name not in given
            and name not in operator.places
            and name not in operator.transient
            and name != "window_id"
        ):
            raise _neither(operator, name)
    for name, value in given.items():
        if now.get(name) is not value and name not in operator.transient:
            raise _neither(operator, name)


def _neither(operator: TupleOperator, name: str) -> InputError:
    return InputError(
        f'{type(operator).__name__} assigns "{name}", which is neither state nor transient',
        hint=f'Declare it: {name} = StateField(TYPE), or put "{name}" into `transient` if it may '
        "be lost.",
    )
