"""Applies values from outside of the code to an application: from a settings file, the command
line, or a form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from rewindow.application.graph import Application
from rewindow.application.modes import Mode
from rewindow.application.node import Node
from rewindow.application.operator import FrameOperator
from rewindow.application.overrides import PropertyChange, PropertyOverride, resolve_overrides
from rewindow.application.placing import PLACING_ATTRIBUTES
from rewindow.application.violations import Violation
from rewindow.errors import InputError
from rewindow.names import did_you_mean

PORT_ATTRIBUTES = ("errors_max",)
"""Attributes of an error port, set as operator.port.attribute."""
ATTRIBUTES = (
    "mode",
    "container",
    "checkpoint_windows",
    "application_windows",
    "slide_windows",
    "partitions",
    "partitioner",
    "spread",
    "locality",
)
"""Attributes of an operator; a property of the same name takes precedence."""
_TEXTS = ("container", "locality", "partitioner")


def _are_columns(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_distance(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


OUTPUT_ATTRIBUTES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], str]] = {
    "sorted_by": (_are_columns, tuple, 'a list of columns, such as ["user"]'),
    "tolerance": (_is_distance, float, "a number, at least 0"),
    "suite": (_is_text, str, 'the name of a suite, such as "delays"'),
}
"""Attributes of an output: name to a check of the value, its conversion, and a description of the
allowed values."""


def apply_overrides(app: Application, given: Iterable[PropertyOverride]) -> None:
    """Applies overrides to an application.

    Invalid overrides become violations, which launch validation reports together with all others.

    Rules: O53
    """
    of_ports = map(partial(_of_ports, app), given)
    # Values of a unifier come after those of the operator that it belongs to.
    app.given = sorted(
        resolve_overrides(chain.from_iterable(of_ports)),
        key=lambda override: override.operator.endswith(".unifier"),
    )
    for override in app.given:
        if override.output:
            _set_output(app, override)
        elif not override.operator:
            setattr(app, override.name, override.value)
        elif (port := _port_of(app, override.operator)) is not None:
            app.declared.extend(_set_port(app, *port, override))
        elif override.operator not in app.nodes:
            known = (
                f"{did_you_mean(override.operator, app.nodes)}Existing operators: "
                f"{', '.join(app.nodes) or 'none'}."
            )
            app.declared.append(_violation(override, f"no operator has this name. {known}"))
        else:
            apply_to(app, app.nodes[override.operator], override)


def apply_to(app: Application, node: Node, one: PropertyOverride) -> None:
    """Applies an override to an operator, see `apply_overrides`."""
    key = property_key(node.operator, one.name)
    if key is not None:
        _set(node.operator, key, one.name, one.value)
    elif one.name in ATTRIBUTES:
        app.declared.extend(_set_attribute(app, node, one))
    else:
        known = [*type(node.operator).model_fields, *ATTRIBUTES]
        kind = type(node.operator).__name__
        words = (
            f"{kind} has no such property or attribute. {did_you_mean(one.name, known)}It "
            f"has: {', '.join(known)}."
        )
        app.declared.append(_violation(one, words))
    app.renew_unifiers(node.name)


def apply_changes(app: Application, changes: Iterable[PropertyChange]) -> None:
    """Sets changeable properties and attributes to new values.

    Rules: O26, O27
    """
    for change in changes:
        node = app.nodes[change.operator]
        key = property_key(node.operator, change.name)
        if key is None and change.name in PLACING_ATTRIBUTES:
            changed: dict[str, Any] = {change.name: change.value}
            app.nodes[node.name] = replace(node, **changed)
            continue
        _set(node.operator, key or change.name, change.name, change.value)
        app.renew_unifiers(node.name)


def check_changes(app: Application, changes: Iterable[PropertyChange]) -> list[Any]:
    """Applies changes to an application, in order, and returns the values after validation.

    Raises:
        InputError: the operator or property does not exist, is not changeable, or rejects the
            value.
    """
    return [_check_change(app, change) for change in changes]


def _check_change(app: Application, change: PropertyChange) -> Any:
    where = f'property "{change.path}"'
    if change.operator not in app.nodes:
        known = (
            f"{did_you_mean(change.operator, app.nodes)}Existing operators: {', '.join(app.nodes)}."
        )
        raise InputError(f'{where}: no operator has the name "{change.operator}"', hint=known)
    operator = app.nodes[change.operator].operator
    kind = type(operator)
    if change.name in PLACING_ATTRIBUTES and property_key(operator, change.name) is None:
        return _check_placing_change(app, change, where)
    changeable = sorted(type(operator).changeable)
    names = {name for name, info in kind.model_fields.items() if change.name in (name, info.alias)}
    if not names:
        known = (
            f"{did_you_mean(change.name, kind.model_fields)}It has: "
            f"{', '.join(kind.model_fields) or 'none'}."
        )
        raise InputError(f"{where}: {kind.__name__} has no such property", hint=known)
    if not names & set(changeable):
        raise InputError(
            f"{where} is not changeable while a replay runs",
            detail=f"Changeable of {kind.__name__}: {', '.join(changeable) or 'none'}.",
            hint="Set it for a new replay (--set), or declare it in the operator's class: "
            f'changeable: ClassVar = ("{min(names)}",)',
        )
    # The change is made on the loaded application: only the operator itself can check the value,
    # and whether its ports and its state stay as the replay has stored them.
    before = operator.output_ports(), operator.state_columns()
    apply_changes(app, [change])
    for wrong in operator.wrong_properties():
        if wrong.path.partition(".")[0] in {change.name, *names}:
            raise InputError(f"cannot set {where} to {change.value!r}: {wrong.message}")
    if (operator.output_ports(), operator.state_columns()) != before:
        raise InputError(
            f"{where} cannot become {change.value!r} while a replay runs: the columns of ports or "
            "state would change"
        )
    [value] = operator.model_dump(mode="json", include=names).values()
    return value


def _check_placing_change(app: Application, change: PropertyChange, where: str) -> int | None:
    """Checks a change of the number of partitions or instances.

    Returns the new number.

    Rules: O99, R98
    """
    operator = app.nodes[change.operator].operator
    if getattr(operator.placing, change.name) is None:
        raise InputError(
            f"{where} is not changeable while a replay runs: the replay was planned without it",
            hint=f"Set it for a new replay: --set {change.path}=NUMBER",
        )
    try:
        value = int(str(change.value))
    except ValueError:
        raise InputError(f"{where} must be a whole number, not {change.value!r}") from None
    apply_changes(app, [change.model_copy(update={"value": value})])
    wrong = operator.wrong_placing()
    if wrong:
        raise InputError(f"{where} cannot become {value}: {wrong[0][1]}")
    return value


def property_key(operator: FrameOperator, name: str) -> str | None:
    """Returns the keyword for a property in an operator's constructor; None if the operator has no
    such property.
    """
    for field, info in type(operator).model_fields.items():
        if name in (field, info.alias):
            return info.alias or field
    return None


def _set(operator: FrameOperator, key: str, name: str, value: Any) -> None:
    """Sets a property.

    A text is first tried unchanged, then parsed as JSON. The first valid value is used.
    """
    for reading in _readings(value):
        operator.set_properties(**{key: reading})
        wrong = {violation.path.partition(".")[0] for violation in operator.wrong_properties()}
        if wrong.isdisjoint((key, name, "properties")):
            return
    operator.set_properties(**{key: value})


def _readings(value: Any) -> Iterator[Any]:
    if value == "null":
        yield None
    yield value
    if isinstance(value, str):
        try:
            yield json.loads(value)
        except ValueError:
            return


def _set_attribute(
    app: Application,
    node: Node,
    one: PropertyOverride,
) -> Iterator[Violation]:
    try:
        value = _attribute(one.name, one.value)
    except InputError as error:
        yield _violation(one, error.primary)
    except ValueError:
        yield _violation(one, "it must be a whole number")
    else:
        changed: dict[str, Any] = {one.name: value}
        app.nodes[node.name] = replace(node, **changed)


def _attribute(name: str, value: Any) -> Mode | str | int:
    if name == "mode":
        return Mode.parse(value)
    return str(value) if name in _TEXTS else int(str(value))


def _of_ports(app: Application, one: PropertyOverride) -> Iterator[PropertyOverride]:
    """Yields the attributes in a port's section of the settings, one by one. Yields any other
    override unchanged.

    Such a section is `[applications.A.operators.O.PORT]`.
    """
    node = app.nodes.get(one.operator)
    is_port = (
        node is not None
        and one.name in node.output_ports()
        and property_key(node.operator, one.name) is None
    )
    if not (is_port and isinstance(one.value, Mapping)):
        yield one
        return
    path = f"{one.operator}.{one.name}"
    for name, value in one.value.items():
        yield PropertyOverride(operator=path, name=name, value=value, source=one.source)


def _port_of(app: Application, path: str) -> tuple[Node, str] | None:
    """Returns the operator and the output port of a path such as operator.port; None if it is not
    the path of a port.
    """
    name, _, port = path.rpartition(".")
    node = None if path in app.nodes else app.nodes.get(name)
    return (node, port) if node is not None and port in node.output_ports() else None


def _set_port(
    app: Application,
    node: Node,
    port: str,
    one: PropertyOverride,
) -> Iterator[Violation]:
    """Sets an attribute of a port.

    Yields a violation if the attribute or its value is invalid.

    Rules: O30
    """
    if one.name not in PORT_ATTRIBUTES:
        words = f"a port has no such attribute. {did_you_mean(one.name, PORT_ATTRIBUTES)}"
        yield _violation(one, f"{words}It has: {', '.join(PORT_ATTRIBUTES)}.", node.name, port=port)
    elif not node.output_ports()[port].error:
        yield _violation(
            one, "only an error port has a limit of error tuples", node.name, port=port
        )
    else:
        try:
            bound = int(str(one.value))
        except ValueError:
            bound = -1
        if bound < 0:
            yield _violation(one, "it must be a whole number, 0 or more", node.name, port=port)
        else:
            app.nodes[node.name] = replace(node, errors_max={**node.errors_max, port: bound})


def _set_output(app: Application, one: PropertyOverride) -> None:
    """Sets an attribute of an output. Launch validation checks the columns of `sorted_by` later."""
    output = app.outputs.get(one.output)
    if output is None:
        known = (
            f"{did_you_mean(one.output, app.outputs)}Existing outputs: "
            f"{', '.join(app.outputs) or 'none'}."
        )
        app.declared.append(_violation(one, f"no output has the name {one.output}. {known}"))
    elif one.name not in OUTPUT_ATTRIBUTES:
        known = (
            f"{did_you_mean(one.name, OUTPUT_ATTRIBUTES)}It has: {', '.join(OUTPUT_ATTRIBUTES)}."
        )
        app.declared.append(
            _violation(one, f"an output has no such attribute. {known}", port=one.output)
        )
    else:
        takes, convert, words = OUTPUT_ATTRIBUTES[one.name]
        values = list(filter(takes, _readings(one.value)))
        if values:
            app.outputs[one.output] = replace(output, **{one.name: convert(values[0])})
        else:
            app.declared.append(_violation(one, f"it must be {words}", port=one.output))


def _violation(
    one: PropertyOverride,
    message: str,
    operator: str | None = None,
    port: str = "",
) -> Violation:
    where = one.operator if operator is None else operator
    return Violation(
        "O28",
        where,
        port,
        value=f"{one.name} = {one.value!r}, from {one.source}",
        message=message,
    )
