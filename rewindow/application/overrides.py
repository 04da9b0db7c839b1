"""Overrides: values of properties and attributes from outside of an application's code.

A property changes the results of an operator, and an attribute changes how the operator is run. A
later source takes precedence over an earlier one: the code, then rewindow.toml, then `--set
operator.property=value` or the form of a DAG.

Rules: O23, O28
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from rewindow.errors import InputError

FILE = "rewindow.toml"
OPTION = "--set"
FORM = "form"
CODE = "code"
DEFAULT = "default"
"""These five are the possible sources of a value."""


class PropertyOverride(BaseModel):
    """A value for a property or an attribute from outside of the code.

    Attributes:
        operator: name of the operator, empty for an attribute of the application or of an output.
        source: FILE, OPTION or FORM.
        output: name of the output whose attribute it is, empty for others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: str
    name: str
    value: Any
    source: str
    output: str = ""

    @property
    def path(self) -> str:
        """The full name in the format of `--set` (operator.name), or of the settings for an
        output.
        """
        if self.output:
            return f"outputs.{self.output}.{self.name}"
        return f"{self.operator}.{self.name}" if self.operator else self.name


class PropertyChange(BaseModel):
    """A new value of an operator's property that was set while the replay ran, effective from a
    given window on.

    Attributes:
        at: when it was set, in UTC.
        by: the user who has set it.

    Rules: X10
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: str
    name: str
    value: Any
    from_window: int
    at: datetime
    by: str

    @property
    def path(self) -> str:
        """The full name in the format of `--set` (operator.name)."""
        return f"{self.operator}.{self.name}"


def overrides_from(pairs: Mapping[str, Any], source: str) -> list[PropertyOverride]:
    """Creates overrides from values by `operator.property`, or by `outputs.NAME.attribute` for an
    output.

    Raises:
        InputError: a name has no operator before its property.
    """
    overrides = []
    for path, value in pairs.items():
        operator, stop, name = path.rpartition(".")
        if not (operator and stop and name):
            raise InputError(
                f'property "{path}" lacks the name of its operator',
                hint="Write it as operator.property=value.",
            )
        where, _, output = operator.partition(".")
        of_output = output if where == "outputs" else ""
        overrides.append(
            PropertyOverride(
                operator="" if of_output else operator,
                name=name,
                value=value,
                source=source,
                output=of_output,
            )
        )
    return overrides


def resolve_overrides(given: Iterable[PropertyOverride]) -> list[PropertyOverride]:
    """Returns the last override of each property. Earlier overrides are ignored."""
    return list({override.path: override for override in given}.values())
