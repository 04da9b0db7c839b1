"""The plan of a replay: everything that is fixed before the replay runs, so that every attempt
computes the same result.
"""

from __future__ import annotations

import shlex
from itertools import starmap
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rewindow.application import TOLERANCE, GraphDescription, Mode, PropertyOverride
from rewindow.application.error_tuples import FAILED
from rewindow.application.overrides import PropertyChange
from rewindow.errors import InputError
from rewindow.location import Location
from rewindow.names import container_id, windows_name
from rewindow.recovery.groups import CheckpointSchedule
from rewindow.sequences import names_of
from rewindow.windows import Grid, WindowRange

TUPLE_ORDER = 2
"""Version of the order in which tuple operators receive tuples of operators and of published
streams. 1: by a hash that Spark defines. 2: as emitted, or by the row hash (O39, X43)."""


_FACTS = "facts"
"""Name of the table with the seals of a container's outputs, in the same folder (`storage.layout`).
"""


def path_in(state: Location, table: Location) -> str:
    """Returns a table's path in the form in which a plan stores it.

    It is relative to the state folder, or absolute for a table outside of that folder.
    """
    return table.relative_to(state) if table.is_below(state) else table.uri


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputPlan(_Value):
    """A recorded stream at the version of its table that the replay has pinned.

    Attributes:
        path: path of its table, relative to the state folder, so that the folder can be moved; see
            `table`.
        version: version of its table; every attempt reads this one.
        table_id: Delta's id of that table. Another id means another stream, even under the same
            name.
        tuples, bytes: size of the range, from the table's statistics.
        missing: windows of the range that are not sealed, as [first, last] pairs; the request has
            explicitly allowed them.
        end: the last window of the stream if it has ended within the range, otherwise None.
        foreign_files: count of the range's files that another program wrote, so that Rewindow has
            not recorded their sizes and checksums.
        container: the container that has staged the stream; its facts have the seals. Empty for a
            recorded stream.
        seals_digest: digest of the seals of such a stream. A later attempt compares it, so that it
            reads the same tuples from any later version of the table.

    Rules: R62
    """

    stream: str
    path: str
    version: int
    windows_version: int
    table_id: str = ""
    tuples: int
    bytes: int
    missing: list[tuple[int, int]] = Field(default_factory=list)
    foreign_files: int = 0
    end: int | None = None
    container: str = ""
    seals_digest: str = ""

    def table(self, state: Location) -> Location:
        """Returns the folder of the stream's tuples in the given state folder."""
        return state / self.path

    def windows_table(self, state: Location) -> Location:
        """Returns the folder of the stream's seals in the given state folder."""
        if self.container:
            return self.table(state).with_name(_FACTS)
        return state / windows_name(self.path)


class OperatorVersion(_Value):
    """The version of an operator.

    Together with its inputs, it determines the rows of the operator.

    Attributes:
        code_version: changes with its code, and with the code of Rewindow that decides rows.
        configuration_digest: changes with its configuration and with that of all upstream.
        upstream: names of the operators that feed it, directly or indirectly, without itself.
    """

    code_version: str = ""
    configuration_digest: str = ""
    upstream: list[str] = Field(default_factory=list)

    @property
    def pair(self) -> list[str]:
        """The code version and the configuration digest."""
        return [self.code_version, self.configuration_digest]


class OutputPlan(_Value):
    """An output that the replay stages.

    Attributes:
        columns: name and type of each event column.
        suite_parameters: values that the suite's expectations and measures use by name.
        stateful: whether an operator with state is upstream of it, so that a loss affects later
            windows.
        guarantee: its end-to-end guarantee, in words.
        reason: the modes that decide the guarantee; empty in a replay of one container.
        errors: whether it is a table of error tuples, which is often empty.
        errors_max: most error tuples in a window, as set for its port; None for the plan's
            `errors_max`.
        tolerance: two floating-point values are equal if |a - b| <= tolerance * max(1, |a|, |b|).
        upstream: names of the operators that compute it, including the one that emits it.
        reads_outside: those of them that read external systems, so that another run cannot verify
            its windows.
        sorted_by: columns by which the rows of each of its files are sorted; not part of the
            result.

    Rules: R14, R88, R96
    """

    name: str
    operator: str
    port: str
    key: list[str]
    suite: str | None
    suite_parameters: dict[str, str | int | float] = Field(default_factory=dict)
    columns: list[tuple[str, str]]
    stateful: bool
    guarantee: str
    reason: str = ""
    tolerance: float = TOLERANCE
    errors: bool = False
    errors_max: int | None = None
    upstream: list[str] = Field(default_factory=list)
    reads_outside: list[str] = Field(default_factory=list)
    sorted_by: list[str] = Field(default_factory=list)

    @property
    def promise(self) -> str:
        """The guarantee of the output, followed by the modes that determine it."""
        return f"{self.guarantee} ({self.reason})" if self.reason else self.guarantee


_EVER = -(1 << 62)
"""A window id smaller than every real one."""


class StartState(_Value):
    """The state with which the replay starts.

    It is the state after the window before its range.

    Attributes:
        source: none (stateless), initial, published, replay (named by --state-from), or warm_up.
        window: the window whose state is used: the one before the range, or an earlier one for
            warm_up.
        lacking: windows that at most once lost before they reached the state, as [first, last]
            pairs.
        stale: stale windows that contributed to the state, as [first, last] pairs: their published
            content has changed since.
        taken_from: path of the table with the state, relative to the state folder; empty for
            initial. See `table`.
        version: version of that table.
        other_versions: operators whose code or configuration differs in a newer published state, so
            that the replay does not use that state.

    Rules: R14
    """

    source: Literal["none", "initial", "published", "replay", "warm_up"]
    window: int | None = None
    taken_from: str = ""
    version: int | None = None
    digest: str = ""
    warm_up_first: int | None = None
    lacking: list[tuple[int, int]] = Field(default_factory=list)
    stale: list[tuple[int, int]] = Field(default_factory=list)
    other_versions: list[str] = Field(default_factory=list)

    def table(self, state: Location) -> Location:
        """Returns the folder of the table with the state in the given state folder."""
        return state / self.taken_from

    def unseen(self, first: int) -> tuple[tuple[int, int], ...]:
        """Returns the windows before the range that are missing from the start state, as (first,
        last) pairs.

        Args:
            first: first window of the range.

        Rules: X8
        """
        if self.source in ("none", "initial"):
            return ((_EVER, first - 1),)
        from_nothing = (
            self.source == "warm_up" and not self.taken_from and self.warm_up_first is not None
        )
        before = (
            ((_EVER, self.warm_up_first - 1),)
            if from_nothing and self.warm_up_first is not None
            else ()
        )
        return (*before, *self.lacking)

    @property
    def affects(self) -> bool:
        """Whether every window computed from the state is affected."""
        return bool(self.lacking or self.stale)


class Candidate(_Value):
    """The settings of a candidate.

    A candidate is a replay that can run alongside others over its range and is certified, but never
    published.

    Attributes:
        code: origin of its code, in words; empty for the code in the folders of applications.
        fraction: fraction of the keys that it computes, 1 for all.
        keys: for each sampled input, the columns of the key.
        drill: whether its jobs are killed on purpose; then it runs in its containers and modes.

    Rules: O143, X19
    """

    code: str = ""
    fraction: float = 1.0
    drill: bool = False
    keys: dict[str, list[str]] = Field(default_factory=dict)

    @property
    def words(self) -> str:
        """The code and the sample of the candidate as text.

        A sample is always mentioned.

        Rules: O144
        """
        sample = "; ".join(
            f"{stream} by {', '.join(columns)}" for stream, columns in sorted(self.keys.items())
        )
        on = f", on a sample of {100 * self.fraction:g} % of the keys ({sample})" if sample else ""
        words = f"computed by {self.code or 'the code in the folders of applications'}{on}"
        return f"{words}, and killed on purpose" if self.drill else words


class ContainerPlan(_Value):
    """A part of the graph that crashes and recovers separately, in a replay of only that part.

    Attributes:
        operators: their names, in the order of the graph.
        after: the containers whose streams it reads.
        unset: its operators for which the user has not set a mode.
        reused: id of the container of another replay whose results it reuses; empty if it is
            computed.
        why: the reason why it is computed although the request names a replay to reuse.

    Rules: X53
    """

    name: str
    mode: Mode
    operators: list[str]
    after: list[str] = Field(default_factory=list)
    unset: list[str] = Field(default_factory=list)
    reused: str = ""
    why: str = ""


class Plan(_Value):
    """A planned replay: application, window range, mode, pinned inputs, start state, guarantees.

    Attributes:
        errors_max: most error tuples that a port may emit in a window, None without a bound.
        group_windows_max: most windows of a commit group, None without a bound. It limits the cost
            of a crash in at most once, and splits a range that would otherwise fit into one group.
        dag: id of the Airflow DAG that created it, empty for the command line; users who may read
            that DAG may read the replay's pages.
        run: id of the DAG run that created it, empty for the command line.
        cores_max: largest number of cores that the request, or a change since, allows to Spark;
            None if it depends on rewindow.toml at the start of each attempt.
        restart_epoch: epoch of the last attempt that a user asked to end for a new one.
        verify_inputs: whether every attempt compares the bytes of the input files with their
            recorded checksums; it always compares names and sizes.
        errors: the tables of the error ports, which every replay of the application stores.
        sample_seed: set only for a sample of check-determinism, which stages every port. A positive
            number selects an order and a partitioning of the rows of its inputs.
        candidate: its settings as a candidate, None for a replay that may be published.
        given: properties and attributes that were set outside of the code; every attempt uses them.
        changes: changes of properties that take effect from a window on, copied from another replay
            or set while this one ran. A running replay's changes are in its log of changes and are
            copied here at its end.
        graph: the application's graph.
        options: options of the request, as the words that follow the range on a command line.
        tuple_order: the order in which tuple operators receive tuples, see TUPLE_ORDER.
        containers: the parts of the graph, in the order in which they run. Each of several parts is
            a separate replay, and this plan covers their combined results.
        container: name of the container that this plan covers, empty for a whole replay.
        reused: id of the container of another replay whose results it reuses; empty if it is
            computed.
        versions: operator name to the version that its state depends on; `code_version` and
            `configuration_digest` cover the whole application.

    Rules: O71, X1, X10, X14
    """

    replay_id: str
    application: str
    code_version: str
    configuration_digest: str
    first: int
    last: int
    width_ms: int
    origin_ms: int
    mode: Mode
    checkpoint_windows: int
    checkpoint_multiple: int = 1
    group_windows: int | None = None
    group_windows_max: int | None = None
    group_seconds: float = 20.0
    attempts: int = 3
    errors_max: int | None = None
    inputs: list[InputPlan]
    outputs: list[OutputPlan]
    errors: list[OutputPlan] = Field(default_factory=list)
    start: StartState
    reason: str = ""
    dag: str = ""
    run: str = ""
    parameters: dict[str, str] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    verify_inputs: bool = True
    cores_max: int | None = None
    restart_epoch: int = 0
    options: list[str] = Field(default_factory=list)
    graph: GraphDescription | None = None
    sample_seed: int | None = None
    given: list[PropertyOverride] = Field(default_factory=list)
    changes: list[PropertyChange] = Field(default_factory=list)
    candidate: Candidate | None = None
    tuple_order: int = 1
    versions: dict[str, OperatorVersion] = Field(default_factory=dict)
    containers: list[ContainerPlan] = Field(default_factory=list)
    container: str = ""
    reused: str = ""

    @property
    def is_divided(self) -> bool:
        """Whether several containers compute the replay, each in separate jobs."""
        return len(self.containers) > 1

    def container_named(self, name: str) -> ContainerPlan:
        """Returns the container with a given name.

        Raises:
            InputError: the replay has no container of this name.
        """
        for container in self.containers:
            if container.name == name:
                return container
        raise InputError(
            f'replay "{self.replay_id}" has no container "{name}"',
            hint=f"Its containers: {', '.join(names_of(self.containers))}.",
        )

    @property
    def jobs(self) -> list[str]:
        """The replay ids of the jobs: one for each container if there are several, then the id of
        the replay itself.
        """
        ids = []
        for container in self.containers if self.is_divided else ():
            ids.append(container_id(self.replay_id, container.name))
        return [*ids, self.replay_id]

    @property
    def is_linked(self) -> bool:
        """Whether the replay's tables link the files of containers' tables.

        Then the job of the replay itself computes nothing.
        """
        return self.is_divided or bool(self.reused)

    @property
    def modes(self) -> list[Mode]:
        """The modes of the replay's containers without duplicates, in the order of the graph."""
        modes = []
        for container in self.containers:
            if container.mode not in modes:
                modes.append(container.mode)
        return modes or [self.mode]

    @property
    def asked_mode(self) -> Mode:
        """The mode of the request. Operators can have declared other modes."""
        named = self.options[self.options.index("--mode") + 1 :] if "--mode" in self.options else []
        return Mode.parse(named[0]) if named else Mode.EXACTLY_ONCE

    @property
    def mode_words(self) -> str:
        """The modes of the replay as text for a user."""
        return ", ".join(mode.words for mode in self.modes)

    @property
    def mode_name(self) -> str:
        """The mode of the replay in the ledger; "mixed" if its containers have several modes."""
        modes = self.modes
        return modes[0].name if len(modes) == 1 else "mixed"

    @property
    def may_lose(self) -> bool:
        """Whether a crash can lose windows of an output."""
        return any(mode.may_lose for mode in self.modes)

    @property
    def may_repeat(self) -> bool:
        """Whether a staged table can contain a window twice."""
        return any(mode.may_repeat for mode in self.modes)

    def missing_upstream(self) -> dict[str, list[WindowRange]]:
        """Returns the windows that were lost in streams of other containers, for each stream."""
        missing = {}
        for entry in self.inputs:
            if entry.container:
                missing[entry.stream] = list(starmap(WindowRange, entry.missing))
        return missing

    @property
    def recorded(self) -> list[InputPlan]:
        """The inputs that are recorded streams. Inputs from other containers are not included."""
        return [entry for entry in self.inputs if not entry.container]

    @property
    def staged(self) -> list[OutputPlan]:
        """All tables that the replay writes: its outputs, then its error tables."""
        return [*self.outputs, *self.errors]

    @property
    def quarantining(self) -> set[str]:
        """The operators for which failing tuples go to quarantine and do not fail the replay.

        Rules: R93
        """
        operators = set()
        for error in self.errors:
            if error.port.endswith(FAILED):
                operators.add(error.operator)
        return operators

    @property
    def tables(self) -> list[str]:
        """The published tables of the replay's outputs."""
        return [f"{self.application}.{output.name}" for output in self.outputs]

    @property
    def ends(self) -> dict[str, int | None]:
        """The last window of each input, by name; None if the input has not ended in the range."""
        return {entry.stream: entry.end for entry in self.inputs}

    @property
    def input_tuples(self) -> int:
        """The number of tuples of all inputs."""
        return sum(entry.tuples for entry in self.inputs)

    @property
    def is_stateful(self) -> bool:
        """Whether an operator with state is upstream of one of the replay's outputs."""
        return any(output.stateful for output in self.outputs)

    def errors_of(self, output: OutputPlan) -> list[OutputPlan]:
        """Returns the error tables that are relevant for an output.

        They belong to its upstream operators, and to operators that feed no output.
        """
        used: set[str] = set()
        for other in self.outputs:
            used.update(other.upstream)
        return [
            error
            for error in self.errors
            if error.operator in output.upstream or error.operator not in used
        ]

    @property
    def range(self) -> WindowRange:
        """The windows to replay."""
        return WindowRange(self.first, self.last)

    @property
    def loss_windows_max(self) -> int:
        """The largest number of windows of an output that a crash can cost.

        In the mode at most once, it is the longest commit group.

        Rules: X1
        """
        if not self.may_lose:
            return 0
        bounds = [self.group_windows, self.group_windows_max, len(self.range)]
        return min(self.unseen_windows_max, *filter(None, bounds))

    @property
    def unseen_windows_max(self) -> int:
        """The largest number of windows that a state can lack after a crash.

        In the mode at most once, it is the distance between two checkpoints.

        Rules: X2
        """
        if not self.may_lose:
            return 0
        return min(
            CheckpointSchedule(self.checkpoint_windows, self.checkpoint_multiple).gap_max,
            len(self.range),
        )

    @property
    def properties(self) -> dict[str, Any]:
        """Operator properties that were set outside of the code, by `operator.property`.

        A request with these properties repeats the settings of the replay.
        """
        return {override.path: override.value for override in self.given if override.operator}

    @property
    def grid(self) -> Grid:
        """The grid of all inputs and outputs."""
        return Grid(self.width_ms, self.origin_ms)

    @property
    def command(self) -> str:
        """The command line that replays the same range with the same options and the current
        code.
        """
        words = [
            "rewindow",
            "replay",
            self.application,
            "--first",
            str(self.first),
            "--last",
            str(self.last),
        ]
        return shlex.join([*words, *self.options])

    def window_of(self, mark: int) -> int:
        """Returns the last window that a mark covers; mark 0 is the window before the range."""
        return self.first + mark - 1

    def windows_of(self, marks: tuple[int, int]) -> WindowRange:
        """Returns the windows between two marks, including both."""
        return WindowRange(self.window_of(marks[0]), self.window_of(marks[1]))

    def mark_of(self, window: int) -> int:
        """Returns the mark of a window, which is the number of windows from the first window of the
        range to this one.
        """
        return window - self.first + 1
