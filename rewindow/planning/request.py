"""What somebody wants replayed, and the plan that it comes to before anything is created."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypedDict

from rewindow.application import Mode, PropertyOverride
from rewindow.application.overrides import FORM, OPTION, overrides_from
from rewindow.errors import RewindowError
from rewindow.loading.catalog import LoadedApplication
from rewindow.location import Location
from rewindow.recovery import Candidate, Plan, RecoveryTimes


@dataclass(frozen=True)
class ReplayRequest:
    """What somebody wants replayed. Without a range it is every window that all inputs have sealed.

    Attributes:
        first, last: window ids, closed.
        from_time, to_time: times in ISO 8601, half-open.
        properties: value of a property or attribute by operator.property, before those of
            rewindow.toml and the code.
        sample_seed: for a sample that is compared with another one, see Plan.
        candidate: for a candidate, see Plan.
        changes_from: a replay whose changes of properties are made again, at the same windows.
        code: folder with the application's code, in the place of those in the settings; the replay
            keeps a copy.
        state_from: a replay whose last checkpoint is the start state.
        reuse: a replay whose containers are reused if they would give the same results.
        initial_state: start from the initial state although the range begins later.
        dag: id of the Airflow DAG that asks; empty for the command line.
        allow_affected: start from a state that lacks lost windows or is stale.
        verify_inputs: compare the bytes of input files with their checksums; as the settings say
            unless given.
    """

    application: str
    _: KW_ONLY
    first: int | None = None
    last: int | None = None
    from_time: str | None = None
    to_time: str | None = None
    mode: str = Mode.EXACTLY_ONCE.name
    replay_id: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    group_windows: int | None = None
    checkpoint_windows: int | None = None
    allow_missing: bool = False
    state_from: str | None = None
    initial_state: bool = False
    allow_other_code: bool = False
    allow_affected: bool = False
    reason: str = ""
    dag: str = ""
    verify_inputs: bool | None = None
    sample_seed: int | None = None
    candidate: Candidate | None = None
    code: Location | None = None
    changes_from: str | None = None
    reuse: str | None = None

    def options(self) -> list[str]:
        """Returns how it is asked for as words of a command line, without range and id: what a plan
        repeats them by.
        """
        words = ["--mode", self.mode] if self.mode != Mode.EXACTLY_ONCE.name else []
        for name in _VALUES:
            value = getattr(self, name)
            words += [_option(name), str(value)] if value not in (None, "") else []
        for name in ("allow_missing", "initial_state", "allow_other_code", "allow_affected"):
            words += [_option(name)] if getattr(self, name) else []
        if self.verify_inputs is not None:
            words += ["--verify-inputs" if self.verify_inputs else "--no-verify-inputs"]
        for name, value in self.parameters.items():
            words += ["--parameter", f"{name}={value}"]
        for name, value in self.properties.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return words

    def given(self) -> list[PropertyOverride]:
        """Returns the properties that are asked for, which a form or the command line gives."""
        return overrides_from(self.properties, FORM if self.dag else OPTION)


_VALUES = (
    "group_windows",
    "checkpoint_windows",
    "state_from",
    "changes_from",
    "reuse",
    "reason",
)
"""Options of the command line that take one value."""


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class ReplayOptions(TypedDict, total=False):
    """The fields of ReplayRequest but its application, for functions that take them by keyword."""

    first: int | None
    last: int | None
    from_time: str | None
    to_time: str | None
    mode: str
    replay_id: str | None
    parameters: dict[str, str]
    properties: dict[str, Any]
    group_windows: int | None
    checkpoint_windows: int | None
    allow_missing: bool
    state_from: str | None
    initial_state: bool
    allow_other_code: bool
    allow_affected: bool
    reason: str
    dag: str
    verify_inputs: bool | None
    changes_from: str | None
    reuse: str | None


@dataclass(frozen=True)
class PlanPreview:
    """A plan that nothing has been created for yet.

    Attributes:
        blockers: what would stop it from being run now, in words.
        seconds: estimated time, None without a basis.
        basis: what the estimate rests on.
        recovery: container name to the cost of a crash; empty without times of earlier replays.
        refusal: why it must not be created unless that is asked for, None when nothing speaks
            against it.
    """

    plan: Plan
    loaded: LoadedApplication
    blockers: list[str]
    seconds: float | None
    basis: str
    recovery: Mapping[str, RecoveryTimes] = field(default_factory=dict)
    refusal: RewindowError | None = None

    def check(self) -> None:
        """Refuses what the plan shows and nobody has allowed.

        Raises:
            CheckpointError: the start state lacks windows or is stale; names what to replay first.
        """
        if self.refusal is not None:
            raise self.refusal
