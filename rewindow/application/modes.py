"""Recovery modes: the policies that decide what a new attempt may lose or repeat after a crash
(docs/rules/recovery.md section 2).

All code that depends on the mode of a replay reads the attributes of `Mode`. So a new mode that
differs from the others only in these attributes is a new entry of `MODES`. docs/where_to_add.md
lists what else a mode can concern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic_core import core_schema

from rewindow.errors import InputError
from rewindow.names import did_you_mean


@dataclass(frozen=True)
class Mode:
    """How a container recovers from a crash.

    Attributes:
        name: name of the mode in settings and tables.
        promise: the end-to-end guarantee of an output, in words; `{lost}` stands for the most
            windows that a crash can cost.
        may_lose: a started window is never started again, so each crash loses the current commit
            group. The newest checkpoint is restored, whatever the tables contain.
        may_repeat: after a crash every table is written again from the restored checkpoint on, so
            that windows may be stored twice. A mode that may neither lose nor repeat writes only
            windows that a table lacks.
        saves_every_group: a checkpoint is saved after every commit group; otherwise when one is
            due, and at the end.
        spark_settings: settings of Spark that the guarantee depends on; other values are rejected.

    Rules: R12, R13, R48, R49, R51, W51
    """

    name: str
    promise: str = field(compare=False)
    may_lose: bool = field(default=False, compare=False)
    may_repeat: bool = field(default=False, compare=False)
    saves_every_group: bool = field(default=False, compare=False)
    spark_settings: Mapping[str, str] = field(default_factory=dict, compare=False)

    EXACTLY_ONCE: ClassVar[Mode]
    AT_LEAST_ONCE: ClassVar[Mode]
    AT_MOST_ONCE: ClassVar[Mode]

    @classmethod
    def parse(cls, given: str | Mode) -> Mode:
        """Returns the mode with a given name.

        Dashes and spaces count as underscores.

        Raises:
            InputError: the name is unknown.
        """
        mode = MODES.get(str(given).strip().lower().replace("-", "_").replace(" ", "_"))
        if mode is None:
            raise InputError(
                f'recovery mode "{given}" is unknown',
                hint=f"{did_you_mean(str(given), MODES)}Use one of {', '.join(MODES)}.",
            )
        return mode

    def __str__(self) -> str:
        return self.name

    @property
    def words(self) -> str:
        """The name of the mode as text for a user, such as "exactly once"."""
        return self.name.replace("_", " ")

    @property
    def writes_only_missing(self) -> bool:
        """Whether a recovering attempt writes only the windows that a table lacks.

        Then no window is lost or repeated.
        """
        return not (self.may_lose or self.may_repeat)

    def may_feed(self, downstream: Mode) -> bool:
        """Returns whether an operator of this mode can feed an operator of another mode.

        A mode that can lose windows can only feed modes that can lose windows too.

        Rules: R39
        """
        return not self.may_lose or downstream.may_lose

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: Any,
        handler: Any,
    ) -> core_schema.CoreSchema:
        """Serializes a mode as its name in JSON."""
        name = core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        return core_schema.no_info_plain_validator_function(_read, serialization=name)


@dataclass(frozen=True)
class Pair:
    """Two connected operators with their modes."""

    upstream: str
    upstream_mode: Mode
    downstream: str
    downstream_mode: Mode

    def __str__(self) -> str:
        writer = f"{self.upstream} {self.upstream_mode.words}"
        return f"{writer} -> {self.downstream} {self.downstream_mode.words}"


@dataclass(frozen=True)
class ResolvedModes:
    """The mode of each operator of an application.

    Attributes:
        modes: operator name to mode, in the order of the graph.
        unset: operators for which the user has not set a mode: theirs is inherited or the default.
        refused: pairs of an operator that may lose windows and a reader that must not.

    Rules: R39, X6
    """

    modes: Mapping[str, Mode]
    unset: frozenset[str]
    refused: tuple[Pair, ...]


def resolve(
    declared: Mapping[str, Mode | None],
    sources: Mapping[str, Iterable[str]],
    default: Mode,
) -> ResolvedModes:
    """Returns the modes of the operators of a graph, and the pairs that are not allowed.

    Args:
        declared: mode of each operator as the user has set it, in topological order.
        sources: the operators that feed each operator, including the feedback stream of a cycle.
        default: mode of operators without a mode whose sources cannot lose windows.

    Rules: R40, R41, X6

    >>> resolved = resolve(
    ...     {"a": Mode.AT_MOST_ONCE, "b": None, "c": Mode.EXACTLY_ONCE},
    ...     {"b": ["a"], "c": ["b"]},
    ...     Mode.EXACTLY_ONCE,
    ... )
    >>> str(resolved.modes["b"]), [str(pair) for pair in resolved.refused]
    ('at_most_once', ['b at most once -> c exactly once'])
    """
    modes: dict[str, Mode] = {}
    for name, mode in declared.items():
        inherited = default
        for source in sources.get(name, ()):
            # The source of a cycle's feedback stream comes later in the order.
            if source in modes and modes[source].may_lose:
                inherited = modes[source]
                break
        modes[name] = mode or inherited
    refused = []
    for name, mode in modes.items():
        for source in sources.get(name, ()):
            if source in modes and not modes[source].may_feed(mode):
                refused.append(Pair(source, modes[source], name, mode))
    unset = frozenset(name for name, mode in declared.items() if mode is None)
    return ResolvedModes(modes, unset, tuple(refused))


def _read(given: object) -> Mode:
    mode = given if isinstance(given, Mode) else MODES.get(str(given))
    if mode is None:
        raise ValueError(f"recovery mode {given} is unknown")
    return mode


Mode.EXACTLY_ONCE = Mode(
    "exactly_once",
    "exactly once: every window once, staged and published",
    saves_every_group=True,
)
Mode.AT_LEAST_ONCE = Mode(
    "at_least_once",
    "at least once: nothing lost; repeats stay staged, readers and publish take one attempt",
    may_repeat=True,
)
Mode.AT_MOST_ONCE = Mode(
    "at_most_once",
    "at most once: nothing repeated; an attempt that dies loses at most {lost} of an output, "
    "listed",
    may_lose=True,
    spark_settings={
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
    },
)
MODES = {mode.name: mode for mode in (Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE)}
"""The modes by name, the default first (X5). At most once needs its Spark settings, so that Spark
does not start any work twice."""
