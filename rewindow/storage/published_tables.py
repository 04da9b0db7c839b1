"""The tables that a publication writes, in the order in which it commits them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rewindow.errors import InputError
from rewindow.names import windows_name
from rewindow.recovery import OutputPlan, Plan
from rewindow.storage.names import checkpoints_name, data_name


class Kind(StrEnum):
    """Kinds of published tables."""

    DATA = "data"
    WINDOWS = "windows"
    CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class PublicationTarget:
    """A table that a publication writes.

    Attributes:
        output: the output that it belongs to, None for the checkpoints.
    """

    name: str
    kind: Kind
    output: OutputPlan | None


def targets_of(plan: Plan) -> list[PublicationTarget]:
    """Returns the tables of a publication in commit order.

    For each output and error port, these are its tuples, then its seals. The checkpoints are last.

    Raises:
        InputError: the name of an output's table is reserved.
    """
    targets = []
    for output in plan.staged:
        if output.name in (Kind.WINDOWS, Kind.CHECKPOINTS, "files"):
            raise InputError(
                f'output "{output.name}" of application "{plan.application}" cannot be published '
                "under this name",
                detail="The name is reserved for tables that accompany every published stream.",
                hint="Rename the output.",
            )
        name = data_name(plan.application, output.name)
        targets += [
            PublicationTarget(name, Kind.DATA, output),
            PublicationTarget(windows_name(name), Kind.WINDOWS, output),
        ]
    return [*targets, PublicationTarget(checkpoints_name(plan.application), Kind.CHECKPOINTS, None)]


def kind_of(name: str) -> Kind:
    """Returns the kind of a published table from its name.

    >>> kind_of("flight_delays.ranks"), kind_of("flight_delays.ranks.windows")
    (<Kind.DATA: 'data'>, <Kind.WINDOWS: 'windows'>)
    """
    last = name.rsplit(".", 1)[-1]
    return Kind(last) if last in (Kind.WINDOWS, Kind.CHECKPOINTS) else Kind.DATA
