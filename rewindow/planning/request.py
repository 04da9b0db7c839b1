"""The request for a replay, and the preview of the plan that it leads to."""

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
    """The request for a replay. Without a range it covers all windows that all inputs have sealed.

    Attributes:
        first, last: window ids, closed.
        from_time, to_time: times in ISO 8601, half-open.
        properties: values of properties and attributes by operator.property; they take precedence
            over rewindow.toml and the code.
        sample_seed: for a sample that is compared with another one, see Plan.
        candidate: for a candidate, see Plan.
        changes_from: a replay whose property changes are repeated at the same windows.
        code: folder with the application's code, instead of the folders in the settings; the replay
            stores a copy.
        state_from: a replay whose last checkpoint is the start state.
        reuse: a replay whose containers are reused if they would compute the same results.
        initial_state: whether to start from the initial state even if the range starts later.
        dag: id of the Airflow DAG that created the request; empty for the command line.
        allow_affected: whether to accept a start state that lacks lost windows or is stale.
        verify_inputs: whether to compare the bytes of input files with their checksums; None: as in
            the settings.
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
        """Returns the request as words of a command line, without range and id. A plan stores them,
        so that it can be repeated.
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
        """Returns the properties of the request as overrides, with their source."""
        return overrides_from(self.properties, FORM if self.dag else OPTION)


_VALUES = (
    "group_windows",
    "checkpoint_windows",
    "state_from",
    "changes_from",
    "reuse",
    "reason",
)
"""Options of the command line that have one value."""


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class ReplayOptions(TypedDict, total=False):
    """The fields of ReplayRequest except its application, for functions that accept them as
    keywords.
    """

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
    """A plan before anything is created for it.

    Attributes:
        blockers: reasons why it could not be run now, in words.
        seconds: estimated time, None if unknown.
        basis: the measurements that the estimate is based on, in words.
        recovery: container name to the cost of a crash; empty without times of earlier replays.
        refusal: the error unless the request allows it anyway; None without an objection.
    """

    plan: Plan
    loaded: LoadedApplication
    blockers: list[str]
    seconds: float | None
    basis: str
    recovery: Mapping[str, RecoveryTimes] = field(default_factory=dict)
    refusal: RewindowError | None = None

    def check(self) -> None:
        """Raises the error that the request did not allow, if there is one.

        Raises:
            CheckpointError: the start state lacks windows or is stale; the message names what to
                replay first.
        """
        if self.refusal is not None:
            raise self.refusal
