"""Containers: parts of an application that recover together. Each container is computed by a
separate job.

The graph is cut between two operators that differ in mode or in the container name that the user
has set. Operators of the same mode without a container name share a container, unless two
containers would then depend on each other.

Rules: O107, R5, X53
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError
from itertools import chain
from typing import TYPE_CHECKING

from rewindow.application.modes import Mode, ResolvedModes, resolve
from rewindow.application.violations import Violation
from rewindow.sequences import names_of

if TYPE_CHECKING:
    from rewindow.application.graph import Application


@dataclass(frozen=True)
class Container:
    """A part of an application whose operators have the same mode.

    Attributes:
        name: the name that the user has set; otherwise the name of its first operator.
        operators: their names, in the order of the graph.
        after: names of the containers whose streams it reads.
    """

    name: str
    mode: Mode
    operators: tuple[str, ...]
    after: tuple[str, ...] = ()


def modes_of(app: Application, default: Mode) -> ResolvedModes:
    """Returns the mode of each operator of an application, see `modes.resolve`."""
    declared: dict[str, Mode | None] = {}
    sources: dict[str, list[str]] = {}
    for node in app.order():
        declared[node.name] = node.mode
        sources[node.name] = sorted(node.sources)
    return resolve(
        declared,
        sources,
        default,
    )


def containers_of(app: Application, default: Mode) -> list[Container]:
    """Returns the containers of a valid application.

    Each container comes after the containers that it reads.
    """
    units = []
    for unit in app.units():
        units.append(names_of(unit))
    named = {}
    for node in app.nodes.values():
        if node.container:
            named[node.name] = node.container
    resolved = modes_of(app, default)
    return cut_graph(units, _sources_of(app), resolved.modes, named)


def _sources_of(app: Application) -> dict[str, set[str]]:
    """Returns the operators that feed each operator."""
    sources = {}
    for node in app.nodes.values():
        sources[node.name] = node.sources
    return sources


def cut_graph(
    units: Sequence[Sequence[str]],
    sources: Mapping[str, Iterable[str]],
    modes: Mapping[str, Mode],
    named: Mapping[str, str],
) -> list[Container]:
    """Returns the containers of a graph.

    Args:
        units: operators that must stay together, in topological order: a single operator, or the
            operators of a cycle.
        sources: the operators that feed each operator.
        modes: mode of each operator.
        named: container of each operator for which the user has set one.

    Raises:
        CycleError: containers that the user has named depend on each other.

    >>> modes = {"a": Mode.EXACTLY_ONCE, "b": Mode.AT_LEAST_ONCE, "c": Mode.EXACTLY_ONCE}
    >>> feeds = {"b": ["a"], "c": ["a", "b"]}
    >>> containers = cut_graph([["a"], ["b"], ["c"]], feeds, modes, {})
    >>> [(container.name, container.after) for container in containers]
    [('a', ()), ('b', ('a',)), ('c', ('a', 'b'))]
    """
    keys = _joined_keys(
        units,
        sources,
        modes,
        named,
    )
    order = _order(keys, sources)
    if order is None:
        raise CycleError("containers wait for each other")
    members: dict[str, list[str]] = {key: [] for key in order}
    for operator in chain(*units):
        members[keys[operator]].append(operator)
    # A container without a name gets that of its first operator, which may be in use.
    taken = set(named.values())
    names = {}
    for key in order:
        name = key.removeprefix(_NAMED)
        is_named = key.startswith(_NAMED)
        names[key] = f"{name}-2" if not is_named and name in taken else name
    containers = []
    for key in order:
        fed_by = _feeding_keys(members[key], keys, sources) - {key}
        after = []
        for other in order:
            if other in fed_by:
                after.append(names[other])
        operators = tuple(members[key])
        container = Container(
            name=names[key],
            mode=modes[operators[0]],
            operators=operators,
            after=tuple(after),
        )
        containers.append(container)
    return containers


_NAMED = "+"
"""Prefix of the key of a container that the user has named. An operator's name never has it, so a
container may have the name of an operator that is in another container."""


def _joined_keys(
    units: Sequence[Sequence[str]],
    sources: Mapping[str, Iterable[str]],
    modes: Mapping[str, Mode],
    named: Mapping[str, str],
) -> dict[str, str]:
    """Returns the key of the container of each operator, see `cut_graph` for the arguments.

    Every unit starts with a separate key, or with the key of its named container. Each unnamed unit
    is then merged, in topological order, into the first earlier container of the same mode with
    which the containers can still be ordered. Merging greedily keeps the number of containers small
    without a search over all partitions of the graph.
    """
    keys: dict[str, str] = {}
    for operator in chain(*units):
        is_named = operator in named
        keys[operator] = f"{_NAMED}{named[operator]}" if is_named else operator
    for unit in units:
        keys.update(dict.fromkeys(unit, keys[unit[0]]))
    shared: list[str] = []
    for unit in units:
        own = keys[unit[0]]
        if own.startswith(_NAMED):
            continue
        feeding = _feeding_keys(
            unit,
            keys,
            sources,
        )
        # Containers that feed the unit are tried first, so that no stream between them is cut.
        for other in sorted(shared, key=lambda key: key not in feeding):
            if modes[other] is not modes[unit[0]]:
                continue
            joined = keys | dict.fromkeys(unit, other)
            # Two parts with a third one between them must stay separate: the third needs the
            # first to end before it starts.
            if _order(joined, sources) is not None:
                keys = joined
                break
        else:
            shared.append(own)
    return keys


def _feeding_keys(
    operators: Iterable[str],
    keys: Mapping[str, str],
    sources: Mapping[str, Iterable[str]],
) -> set[str]:
    """Returns the keys of the containers that feed the given operators."""
    feeding = set()
    for operator in operators:
        for source in sources.get(operator, ()):
            feeding.add(keys[source])
    return feeding


def _order(
    keys: Mapping[str, str],
    sources: Mapping[str, Iterable[str]],
) -> list[str] | None:
    """Returns the containers in an order in which each comes after the containers that feed it;
    None if some depend on each other.

    Otherwise, the order of the graph is kept.
    """
    fed_by: dict[str, set[str]] = {}
    for operator, own in keys.items():
        feeding = fed_by.setdefault(own, set())
        for source in sources.get(operator, ()):
            if source in keys and keys[source] != own:
                feeding.add(keys[source])
    ordered: list[str] = []
    while len(ordered) < len(fed_by):
        for key, feeding in fed_by.items():
            if key not in ordered and feeding.issubset(ordered):
                ordered.append(key)
                break
        else:
            return None
    return ordered


def wrong_containers(app: Application, modes: ResolvedModes) -> Iterator[Violation]:
    """Yields the reasons why an application cannot run in the containers that the user has set.

    Rules: R39, X53
    """
    for pair in modes.refused:
        feeds = app.nodes[pair.downstream].feeds
        port = next(port for port, end in feeds.items() if end.operator == pair.upstream)
        message = "an at-most-once operator may feed only at-most-once ones"
        yield Violation("R39", pair.downstream, port, value=pair, message=message)
    named: dict[str, list[str]] = {}
    for node in app.nodes.values():
        if node.container:
            named.setdefault(node.container, []).append(node.name)
    together = []
    for cycle in app.cycles():
        members = names_of(cycle)
        together.append((", ".join(members), members))
    together += named.items()
    violations = [*_several_modes(together, modes), *_cut_cycles(app)]
    yield from violations
    # The order of containers is checked only when each of them is valid by itself.
    if not named or violations:
        return
    order = _order(_named_keys(app), _sources_of(app))
    if order is None:
        value = ", ".join(sorted(named))
        message = "these containers would wait for each other: one reads a stream of the other"
        yield Violation("X53", "", "", value=value, message=message)


def _several_modes(
    together: Iterable[tuple[str, list[str]]],
    modes: ResolvedModes,
) -> Iterator[Violation]:
    """Yields the groups of operators that must have the same mode but have several.

    Args:
        together: text that names a group, and the operators of the group.
        modes: the modes of all operators.
    """
    for value, members in together:
        own = [modes.modes[name] for name in members]
        if len(set(own)) > 1:
            pairs = []
            for name, mode in zip(members, own, strict=True):
                pairs.append(f"{name} {mode.words}")
            message = "operators that recover together must have the same mode, and these have "
            message += f"several: {', '.join(pairs)}"
            yield Violation("X53", members[0], "", value=value, message=message)


def _cut_cycles(app: Application) -> Iterator[Violation]:
    """Yields the cycles that the user has put into several containers."""
    for cycle in app.cycles():
        containers = {node.container for node in cycle}
        if len(containers) > 1:
            value = ", ".join(names_of(cycle))
            message = "the operators of a cycle are computed together and must be in one container"
            yield Violation("X53", cycle[0].name, "", value=value, message=message)


def _named_keys(app: Application) -> dict[str, str]:
    """Returns a key for each operator: its named container, or the operator itself if it has
    none.
    """
    keys = {}
    for node in app.order():
        keys[node.name] = node.container or node.name
    for cycle in app.cycles():
        key = keys[cycle[0].name]
        keys.update(dict.fromkeys(names_of(cycle), key))
    return keys
