"""Recovery modes: what a new attempt may lose or repeat, and what follows from that
(docs/rules/recovery.md section 2).

A mode is a policy. Whoever acts by the mode of a replay asks it here; another mode is another entry
of `MODES`.
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
        name: what users and tables call it.
        promise: what is promised of an output end to end; `{lost}` stands for the windows that a
            crash costs at worst.
        may_lose: a window that was begun is never begun again: the commit group in progress is
            lost, once for each attempt that dies. The newest checkpoint is restored, wherever the
            tables are (R12, R13, R49).
        may_repeat: every table is written again from the restored checkpoint on, so that windows
            may be there twice (R48, R51). A mode that may do neither writes only what a table
            lacks.
        saves_every_group: a checkpoint after every commit group (W51); else where one falls due,
            and at the end.
        spark_settings: settings of Spark that the promise depends on; no other value is accepted.
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
        """Returns the mode of a name; dashes and spaces count as underscores.

        Raises:
            InputError: there is no such mode.
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
        """The mode as a person reads it."""
        return self.name.replace("_", " ")

    @property
    def writes_only_missing(self) -> bool:
        """Whether a table that holds a window already is not written again: nothing is lost,
        nothing repeated.
        """
        return not (self.may_lose or self.may_repeat)

    def may_feed(self, downstream: Mode) -> bool:
        """Returns whether this mode may feed another (R39): one that loses feeds only its own
        kind.
        """
        return not self.may_lose or downstream.may_lose

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: Any,
        handler: Any,
    ) -> core_schema.CoreSchema:
        """In JSON a mode is its name."""
        name = core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        return core_schema.no_info_plain_validator_function(_read, serialization=name)


@dataclass(frozen=True)
class Pair:
    """An operator that feeds another one, both with their modes."""

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
        modes: by operator, in the order of the graph.
        unset: operators without a mode set by the user: theirs is inherited or the default (X6).
        refused: pairs of an operator that may lose windows and a reader that must not (R39).
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
        declared: mode of each operator as the user has set it, in topological order (R40).
        sources: the operators that feed each operator, also on the way back of a cycle (R41).
        default: mode of operators without a mode whose sources cannot lose windows (X6).

    >>> found = resolve(
    ...     {"a": Mode.AT_MOST_ONCE, "b": None, "c": Mode.EXACTLY_ONCE},
    ...     {"b": ["a"], "c": ["b"]},
    ...     Mode.EXACTLY_ONCE,
    ... )
    >>> str(found.modes["b"]), [str(pair) for pair in found.refused]
    ('at_most_once', ['b at most once -> c exactly once'])
    """
    modes: dict[str, Mode] = {}
    for name, mode in declared.items():
        inherited = default
        for source in sources.get(name, ()):
            # The source of a way back of a cycle comes later in the order.
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
"""The modes by name, the default first (X5). At most once needs its Spark settings to begin no work
twice."""
