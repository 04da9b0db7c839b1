"""The request for a replay, and the preview of the plan that it leads to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, TypedDict

from rewindow.application import Mode, PropertyOverride
from rewindow.application.overrides import FORM, OPTION, overrides_from
from rewindow.errors import RewindowError
from rewindow.loading.catalog import LoadedApplication
from rewindow.location import Location
from rewindow.recovery import Candidate, Plan, RecoveryTimes
from rewindow.sequences import excluding

HELP = "help"
WORDS = "words"
METAVAR = "metavar"
SHOWN_DEFAULT = "shown_default"
"""Keys of a field's metadata: its help text on the command line, the words of its option, the
placeholder of its value, and its default in words.
"""


def _option(
    help_text: str,
    *words: str,
    metavar: str | None = None,
    shown_default: str | None = None,
) -> dict[str, Any]:
    """Returns the metadata of a field that is an option of the command line.

    Args:
        help_text: its help text.
        words: its words on the command line; by default `--name`.
        metavar: placeholder of its value in the help.
        shown_default: default that the help shows.
    """
    return {HELP: help_text, WORDS: words, METAVAR: metavar, SHOWN_DEFAULT: shown_default}


@dataclass(frozen=True)
class ReplayRequest:
    """The request for a replay. Without a range it covers all windows that all inputs have sealed.

    The help text of a field describes it, here and on the command line.

    Attributes:
        dag: id of the Airflow DAG that created the request; empty for the command line.
        sample_seed: for a sample that is compared with another one, see Plan.
        candidate: for a candidate, see Plan.
        code: folder with the application's code, instead of the folders in the settings; the replay
            stores a copy.
    """

    application: str
    _: KW_ONLY
    from_time: str | None = field(
        default=None,
        metadata=_option("Begin of the range as a time, ISO 8601 (half-open range).", "--from"),
    )
    to_time: str | None = field(
        default=None, metadata=_option("End of the range as a time, not included.", "--to")
    )
    first: int | None = field(default=None, metadata=_option("First window id (closed range)."))
    last: int | None = field(default=None, metadata=_option("Last window id (closed range)."))
    mode: str = field(
        default=Mode.EXACTLY_ONCE.name,
        metadata=_option("Recovery mode: exactly_once, at_least_once or at_most_once."),
    )
    replay_id: str | None = field(
        default=None, metadata=_option("Id of the new replay; made up by default.", "--id")
    )
    group_windows: int | None = field(
        default=None, metadata=_option("Fixed number of windows in a commit group.")
    )
    checkpoint_windows: int | None = field(
        default=None,
        metadata=_option(
            "Windows from one checkpoint to the next; exactly once makes one after every commit "
            "group.",
        ),
    )
    allow_missing: bool = field(
        default=False,
        metadata=_option(
            "Replay although windows of the range are not sealed; the plan notes it.",
            "--allow-missing",
        ),
    )
    state_from: str | None = field(
        default=None, metadata=_option("Id of a replay whose last state is the start state.")
    )
    changes_from: str | None = field(
        default=None, metadata=_option("Id of a replay whose changes of properties are made again.")
    )
    reuse: str | None = field(
        default=None,
        metadata=_option(
            "Reuse the containers that this replay of the same range has computed from the same "
            "code, settings and inputs.",
        ),
    )
    initial_state: bool = field(
        default=False,
        metadata=_option(
            "Start from the initial state although the range starts later.",
            "--initial-state",
        ),
    )
    allow_other_code: bool = field(
        default=False,
        metadata=_option(
            "Accept a start state made by other code; the plan notes it.",
            "--allow-other-code",
        ),
    )
    allow_affected: bool = field(
        default=False,
        metadata=_option(
            "Start from a state that lacks lost windows or is stale; the plan notes it.",
            "--allow-affected",
        ),
    )
    verify_inputs: bool | None = field(
        default=None,
        metadata=_option(
            "Compare the bytes of input files with their checksums; names and sizes always are.",
            "--verify-inputs/--no-verify-inputs",
            shown_default="as in rewindow.toml",
        ),
    )
    parameters: dict[str, str] = field(
        default_factory=dict,
        metadata=_option(
            "name=value for an application that takes parameters.",
            "--parameter",
            "-p",
            metavar="N=V",
        ),
    )
    properties: dict[str, Any] = field(
        default_factory=dict,
        metadata=_option(
            "Value of an operator's property, before rewindow.toml and the code.",
            "--set",
            metavar="O.P=V",
        ),
    )
    reason: str = field(default="", metadata=_option("Why; kept with the replay."))
    dag: str = ""
    sample_seed: int | None = None
    candidate: Candidate | None = None
    code: Location | None = None

    def options(self) -> list[str]:
        """Returns the request as words of a command line, without range and id. A plan stores them,
        so that it can be repeated.
        """
        words: list[str] = []
        for name in excluding(OPTIONS, _OF_ONE_REPLAY):
            option = OPTIONS[name]
            value = getattr(self, name)
            names = option.metadata[WORDS] or (f"--{name.replace('_', '-')}",)
            if isinstance(value, dict):
                for key, given in value.items():
                    text = given if isinstance(given, str) else json.dumps(given)
                    words += [names[0], f"{key}={text}"]
            elif value != option.default:
                yes, _, no = names[0].partition("/")
                words += [yes if value else no] if isinstance(value, bool) else [yes, str(value)]
        return words

    def given(self) -> list[PropertyOverride]:
        """Returns the properties of the request as overrides, with their source."""
        return overrides_from(self.properties, FORM if self.dag else OPTION)


OPTIONS = {one.name: one for one in fields(ReplayRequest) if HELP in one.metadata}
"""The fields that are options of the command line, by name and in order."""
_OF_ONE_REPLAY = ("from_time", "to_time", "first", "last", "replay_id")
"""Options that a repeated replay does not copy: its range and its id."""


class ReplayOptions(TypedDict, total=False):
    """The types of the options of ReplayRequest, for functions that accept them as keywords. A test
    compares both.
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
