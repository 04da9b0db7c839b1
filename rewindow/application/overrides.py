"""Properties and attributes that are given from outside of an application's code, and where each
value came from.

A property changes what an operator computes, an attribute how it is run (O23). Values come, the
later the stronger, from the code, from rewindow.toml, and from `--set operator.property=value` or
the form of a DAG (O28).
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
"""Where a value can come from."""


class PropertyOverride(BaseModel):
    """A value that is given for a property or an attribute.

    Attributes:
        operator: name of the operator, empty for an attribute of the application or of an output.
        source: where it comes from: FILE, OPTION or FORM.
        output: name of the output of which it is an attribute, empty for others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: str
    name: str
    value: Any
    source: str
    output: str = ""

    @property
    def path(self) -> str:
        """Operator and name, as `--set` has them; of an output as the settings have it."""
        if self.output:
            return f"outputs.{self.output}.{self.name}"
        return f"{self.operator}.{self.name}" if self.operator else self.name


class PropertyChange(BaseModel):
    """Another value that a property of an operator has from a window on, set while its replay ran
    (X10).

    Attributes:
        at: when it was set, in UTC.
        by: the user who has set it.
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
        """Operator and name, as `--set` has them."""
        return f"{self.operator}.{self.name}"


def overrides_from(pairs: Mapping[str, Any], source: str) -> list[PropertyOverride]:
    """Returns values by `operator.property` as given ones; `outputs.NAME.attribute` is one of an
    output.

    Raises:
        InputError: a name has no operator before its property.
    """
    found = []
    for path, value in pairs.items():
        operator, stop, name = path.rpartition(".")
        if not (operator and stop and name):
            raise InputError(
                f'property "{path}" does not say of which operator',
                hint="Write it as operator.property=value.",
            )
        where, _, output = operator.partition(".")
        of_output = output if where == "outputs" else ""
        found.append(
            PropertyOverride(
                operator="" if of_output else operator,
                name=name,
                value=value,
                source=source,
                output=of_output,
            )
        )
    return found


def resolve_overrides(given: Iterable[PropertyOverride]) -> list[PropertyOverride]:
    """Returns of each property the last value that is given, which counts."""
    return list({one.path: one for one in given}.values())
