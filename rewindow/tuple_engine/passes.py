"""A pass: one operator, or the operators of a cycle or chain, computed over one stream of tagged
rows. Each operator has separate tags.

Rules: X40
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Node, OperatorContext, PortHandle
from rewindow.application.placing import AS_SPARK, Placing
from rewindow.application.windowing import EVERY_WINDOW, Windowing
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.sequences import map_values, names_of
from rewindow.tuple_engine.chain_range import ChainRange
from rewindow.tuple_engine.cycle_range import CycleRange
from rewindow.tuple_engine.failing import FailingTuple
from rewindow.tuple_engine.key_range import KeyRange
from rewindow.tuple_engine.tagged_rows import (
    WINDOW,
    Columns,
    OperatorPort,
    TagShape,
    input_tags,
    loaded_tag,
    output_tags,
    state_tag,
    tagged_schema,
)

TAGS = 1000
"""Number of tags reserved for each operator of a pass."""
ALONE = ""
"""The name of the only operator in a pass."""
Item = TypeVar("Item")
NO_TABLES: Mapping[OperatorPort, pa.Table] = MappingProxyType({})
STATE = ""
"""The name of an operator's state among its parts; no port has this name."""


@dataclass(frozen=True)
class Member:
    """An operator in a pass.

    Attributes:
        inner: input port to the operator of the same pass, and its output port, that feed it.
        unordered: input ports without a recorded order, where the column `offset` is meaningless.
        followed: output ports whose order of emission another operator relies on.
        unseen: output ports that are only read inside the pass.

    Rules: O39, X43, X51
    """

    operator: TupleOperator
    windowing: Windowing = EVERY_WINDOW
    inner: Mapping[str, OperatorPort] = field(default_factory=dict)
    unordered: frozenset[str] = frozenset()
    followed: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()


class Pass:
    """The operators of a pass and the columns of its tagged rows. Ports and states are identified
    by operator and name.

    Attributes:
        members: the operators, in the order in which they are called.
        inputs: columns of the ports that are fed from outside of the pass.
        controls: columns of the ports whose tuples go to every key range.
        keys: columns of the tagged rows by which the pass is divided into key ranges; without keys
            it has one range.
        broadcast: input ports whose tuples go to all partitions.
        codec: how keys are hashed, None if no port declares it.
        loaded, states: operator name to the columns of its loaded state, and of its new state.
    """

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members = dict(members)
        self.inputs: dict[OperatorPort, Columns] = {}
        self.controls: dict[OperatorPort, Columns] = {}
        self.outputs: dict[OperatorPort, Columns] = {}
        self.states: dict[str, Columns] = {}
        self.loaded: dict[str, Columns] = {}
        for number, (name, member) in enumerate(self.members.items()):
            self.states[name] = _shifted(state_tag(member.operator), number)
            self.loaded[name] = _shifted(loaded_tag(member.operator), number)
            for port, columns in input_tags(member.operator).items():
                if port not in member.inner:
                    is_control = member.operator.input_ports()[port].control
                    (self.controls if is_control else self.inputs)[name, port] = _shifted(
                        columns,
                        number,
                    )
            for port, columns in output_tags(member.operator).items():
                self.outputs[name, port] = _shifted(columns, number)
        self.keys = self._keys()
        self.codec: str | None = None
        self.broadcast: set[OperatorPort] = set()
        for name, member in self.members.items():
            for port, declared in member.operator.input_ports().items():
                self.codec = declared.codec or self.codec
                if declared.broadcast:
                    self.broadcast.add((name, port))
        self.sent = tagged_schema([*self.loaded.values(), *self.inputs.values()])
        self.made = tagged_schema([*self.states.values(), *self.outputs.values()])

    @property
    def placing(self) -> Placing:
        """How the pass is divided between tasks, from the current attributes of its operators."""
        placings = [member.operator.placing for member in self.members.values()]
        return next((placing for placing in placings if placing != AS_SPARK), AS_SPARK)

    @property
    def parts(self) -> dict[str, Columns]:
        """The columns of each result of the pass.

        A result is named after its port, and the state has an empty name. With several operators
        the name is OPERATOR/PORT.
        """
        parts = {}
        for name, columns in self.states.items():
            parts[_part(name, STATE)] = columns
        for (name, port), columns in self.outputs.items():
            parts[_part(name, port)] = columns
        return parts

    @property
    def title(self) -> str:
        """The name of a pass of several operators in messages."""
        delays = [name for name, member in self.members.items() if member.operator.delays]
        return f"the pass of its {'cycle' if delays else 'chain'}"

    @classmethod
    def of(
        cls,
        unit: list[Node],
        unseen: Collection[PortHandle] = (),
        followed: Callable[[str], frozenset[str]] = lambda operator: frozenset(),
    ) -> Pass:
        """Returns the pass of one operator, or of several operators in the order in which they are
        called.

        Args:
            unit: the operators.
            unseen: ports that are only read inside the pass.
            followed: returns the output ports of an operator whose order another operator relies
                on.
        """
        if len(unit) == 1:
            return cls({ALONE: _member(unit[0], set(), unseen, followed(unit[0].name))})
        names = set(names_of(unit))
        members = {}
        for node in unit:
            members[node.name] = _member(node, names, unseen, followed(node.name))
        return cls(members)

    def run(
        self,
        context: OperatorContext,
        batches: Iterable[pa.RecordBatch],
        shapes: Mapping[str, TagShape] | None = None,
        controls: Mapping[OperatorPort, pa.Table] = NO_TABLES,
        *,
        tells_changes: bool = False,
        port_order: Iterable[str] = (),
        failing: list[FailingTuple] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the tuples that one key range emits, then its state; see `KeyRange` and
        `CycleRange`.

        Args:
            context: the group's windows.
            batches: the tagged rows of the key range.
            shapes: columns of the operators; computed unless they are given.
            controls: `window_id` and columns of the tuples that every key range receives, see
                `control_rows`.
            tells_changes: see `KeyRange`.
            port_order: see `CycleRange`.
            failing: receives the tuples for which the operator fails; only for a pass of one
                operator.
        """
        shapes = shapes or self.shapes()
        ranges = {}
        unseen = set()
        delays = set()
        inner = {}
        for name, member in self.members.items():
            own = (
                context
                if name == ALONE
                else replace(context, operator=f"{context.operator}.{name}")
            )
            own = replace(own, windowing=member.windowing)
            sent = {}
            for (of, port), rows in controls.items():
                if of == name:
                    sent[port] = _by_window(rows)
            unseen |= {(name, port) for port in member.unseen}
            if member.operator.delays:
                delays.add(name)
            for port, end in member.inner.items():
                inner[name, port] = end
            ranges[name] = KeyRange(
                member.operator,
                own,
                shapes[name],
                controls=sent,
                followed=member.followed,
                tells_changes=tells_changes,
                failing=failing,
            )
        if ALONE in ranges:
            return ranges[ALONE].run(batches)
        if not delays:
            return ChainRange(self, ranges, shapes, inner, unseen, context.windows).run(batches)
        return CycleRange(
            self,
            ranges,
            shapes,
            inner=inner,
            unseen=unseen,
            delays=delays,
            windows=context.windows,
            port_order=port_order,
        ).run(batches)

    def shapes(self) -> dict[str, TagShape]:
        """Returns the columns of each operator, which all key ranges share."""
        return map_values(lambda member: TagShape(member.operator), self.members)

    def _keys(self) -> list[str]:
        """Returns the key columns if all keyed ports of all operators have keys of the same types;
        otherwise none.
        """
        keys = {}
        for member in self.members.values():
            ports = member.operator.input_ports()
            for name, columns in input_tags(member.operator).items():
                if not ports[name].is_keyed:
                    continue
                types = []
                names = []
                for key in columns.key:
                    if key in columns.schema.names:
                        place = columns.schema.get_field_index(key)
                        types.append(str(columns.schema.field(place).type))
                        names.append(columns.names[place])
                keys[tuple(types)] = names
        return keys.popitem()[1] if len(keys) == 1 else []


def control_rows(rows: pa.Table) -> pa.Table:
    """Returns control tuples without duplicates, sorted by `window_id` and then by their values.

    Rules: O133, X44
    """
    # Every key range may emit the same control tuple, in any order. Sorting by the text of all
    # values, and taking the first row of each text, makes the result the same in every run.
    columns = [column.to_pylist() for column in rows.columns]
    indexes: dict[str, int] = {}
    for index, row in enumerate(zip(*columns, strict=True)):
        indexes.setdefault(repr(row), index)
    return rows.take(pa.array(map(indexes.get, sorted(indexes)), pa.int64()))


def alone_ports(by_port: Mapping[str, Item]) -> dict[OperatorPort, Item]:
    """Converts a mapping by port name to a mapping by (operator, port), for a pass of one
    operator.
    """
    return {(ALONE, port): item for port, item in by_port.items()}


def _by_window(rows: pa.Table) -> dict[int, pa.RecordBatch]:
    by_window = {}
    for window in rows[WINDOW].unique().to_pylist():
        of_window = (
            rows.filter(pc.equal(rows[WINDOW], window)).drop_columns(WINDOW).combine_chunks()
        )
        by_window[window] = of_window.to_batches()[0]
    return by_window


def _part(member: str, port: str) -> str:
    return port if member == ALONE else f"{member}/{port}"


def _shifted(columns: Columns, number: int) -> Columns:
    return replace(columns, tag=number * TAGS + columns.tag)


def _member(
    node: Node,
    names: set[str],
    unseen: Collection[PortHandle],
    followed: frozenset[str],
) -> Member:
    assert isinstance(node.operator, TupleOperator), "checked at launch"
    inner = {}
    for port, end in node.feeds.items():
        if end.operator in names:
            inner[port] = (str(end.operator), end.port)
    hidden = frozenset(end.port for end in unseen if end.operator == node.name)
    return Member(
        node.operator,
        node.windowing,
        inner,
        unordered=node.unordered,
        followed=followed,
        unseen=hidden,
    )
