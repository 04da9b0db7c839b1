"""The graph of a live run: its physical operators, the connections between them, and the order in
which they are evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.sequences import names_of, repeated_names

_STRICT = ConfigDict(
    frozen=True,
    extra="forbid",
    strict=True,
)
_HINT = (
    'A graph is {"width_ms": 500, "operators": [{"name": "count", "inputs": [["in", "read"]]}, '
    "...]}; an operator may also have logical, container and delay."
)


class GraphOperator(BaseModel):
    """An operator of a live run, or a unifier or partition that is listed separately.

    Attributes:
        logical: the operator of the application that it belongs to; by default its own name.
        container: the container in which it ran.
        inputs: port and upstream operator of each connection, in the order of input ports.
        delay: whether it passes on the tuples of a window in a later one.
    """

    model_config = _STRICT

    name: str = Field(min_length=1)
    logical: str = ""
    container: str = ""
    inputs: list[tuple[str | int, str]] = Field(default_factory=list)
    delay: bool = False


class LatencyGraph(BaseModel):
    """The operators of a live run as declared, and the width of its streaming windows."""

    model_config = _STRICT

    width_ms: int = Field(ge=1)
    operators: list[GraphOperator] = Field(min_length=1)


@dataclass(frozen=True)
class Layout:
    """Physical operators by index, in the order in which the graph declares them.

    Attributes:
        names: an operator with several partitions has a name for each, as in `count#1`.
        keys: name in the graph and partition of each operator.
        inputs: operators that feed each operator, ordered by input port, then by partition.
        upstream: those of `inputs` that each operator waits for: a delay operator waits for none.
        order: indices of all operators, each after its upstream operators.
        leaves: operators at which a path may end, in the order of declaration.
        delays: whether an operator is a delay operator.
        is_root: whether it has no inputs.
    """

    width_ms: int
    names: list[str]
    logical: list[str]
    keys: list[tuple[str, int]]
    inputs: list[list[int]]
    upstream: list[list[int]]
    order: list[int]
    leaves: list[int]
    delays: list[bool]
    is_root: list[bool]

    def path(self, on_path: Iterable[Any]) -> list[str]:
        """Returns the names of the operators on a path, from its root to its leaf."""
        marks = list(on_path)
        return [self.names[n] for n in self.order if marks[n]]

    def unified(self, n: int) -> list[int]:
        """Returns the operators from which a unifier reads.

        They belong to the same logical operator.

        Rules: L27
        """
        return [one for one in self.upstream[n] if self.logical[one] == self.logical[n]]


def parse_graph(content: str | Mapping[str, Any]) -> LatencyGraph:
    """Returns a graph from the content of its JSON file, given as text or as values.

    Raises:
        InputError: the graph is malformed, names an operator twice, names an upstream operator that
            does not exist, or has a loop without a delay operator.
    """
    try:
        text = content if isinstance(content, str) else json.dumps(content)
        graph = LatencyGraph.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the content"
        raise InputError(
            f"graph of latencies is wrong at {where}: {first['msg'].lower()}",
            hint=_HINT,
        ) from error
    names = names_of(graph.operators)
    twice = repeated_names(names)
    if twice:
        raise InputError(f'graph of latencies has operator "{twice[0]}" twice')
    for operator in graph.operators:
        for port, upstream in operator.inputs:
            if upstream not in names:
                raise InputError(
                    f'input port "{port}" of operator "{operator.name}" is connected to '
                    f'"{upstream}", which is not in the graph',
                    hint=f"{did_you_mean(upstream, names)}Operators: {', '.join(names)}.",
                )
    lay_out(graph, {})
    return graph


def lay_out(graph: LatencyGraph, partitions: Mapping[str, Sequence[int]]) -> Layout:
    """Returns the physical operators of a graph.

    Each partition of an upstream operator feeds every partition of a downstream operator.

    Args:
        graph: as declared.
        partitions: the partitions of each operator in the statistics; by default partition 0 only.

    Raises:
        InputError: the graph has a loop without a delay operator.
    """
    keys: list[tuple[str, int]] = []
    names: list[str] = []
    places: dict[str, list[int]] = {}
    operators = []
    for operator in graph.operators:
        found = sorted(partitions.get(operator.name, ())) or [0]
        for partition in found:
            places.setdefault(operator.name, []).append(len(keys))
            keys.append((operator.name, partition))
            names.append(operator.name if len(found) == 1 else f"{operator.name}#{partition}")
            operators.append(operator)
    read: set[str] = set()
    for operator in graph.operators:
        read.update(source for _, source in operator.inputs)
    inputs = []
    upstream = []
    readers: set[int] = set()
    for operator in operators:
        ports = list(dict.fromkeys(port for port, _ in operator.inputs))
        candidates = []
        for position, (port, source) in enumerate(operator.inputs):
            for n in places[source]:
                candidates.append((ports.index(port), keys[n][1], position, n))
        sources = list(dict.fromkeys(n for *_, n in sorted(candidates)))
        # A delay operator passes on its input in a later window. So a path ends before the delay
        # operator, unless no operator reads it.
        waited_for = [n for n in sources if not operators[n].delay]
        inputs.append(sources)
        upstream.append(waited_for)
        if not operator.delay or operator.name not in read:
            readers.update(waited_for)
    unread = [n for n in range(len(keys)) if n not in readers]
    leaves = [n for n in unread if not operators[n].delay or keys[n][0] not in read]
    return Layout(
        graph.width_ms,
        names,
        [operator.logical or operator.name for operator in operators],
        keys,
        inputs,
        upstream,
        order=_topological(upstream, names),
        # If all these are delay operators that read each other, each of them may end a path.
        leaves=leaves or unread,
        delays=[operator.delay for operator in operators],
        is_root=[not operator.inputs for operator in operators],
    )


def _topological(upstream: Sequence[Sequence[int]], names: Sequence[str]) -> list[int]:
    try:
        return list(TopologicalSorter(dict(enumerate(upstream))).static_order())
    except CycleError as error:
        loop = " to ".join(names[n] for n in error.args[1])
        raise InputError(
            f"graph of latencies has a loop without a delay operator: {loop}",
            hint='Set "delay": true at the operator that hands tuples to a later window.',
        ) from error
