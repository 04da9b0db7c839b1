"""The trigger form of a replay: its typed fields, and checks that JSON Schema cannot express."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from rewindow.application import MODES
from rewindow.crash import CONTAINER, Step
from rewindow.errors import InputError
from rewindow.names import COMPONENT, REPLAY_ID_LENGTH_MAX
from rewindow.settings.config import Config

if TYPE_CHECKING:
    from rewindow.planning.request import ReplayOptions

TIMES = "times"
WINDOWS = "windows"
UNPUBLISHED = "unpublished"
APPROVE = "approve"
AT_ONCE = "at_once"
STAGED = "staged"
CRASH = "crash"
_RANGE = "Range"
_HOW = "How"
_DRILL = "Drill"
_NAME = f"^{COMPONENT}$"
_REASON = r"^\s*\S[\s\S]{6,}\S\s*$"
"""At least eight characters without the blanks around them."""
_WINDOW_MAX = 253_402_300_799_999
"""Number of milliseconds from 1970 to the end of the year 9999, so every date has a smaller
window. Airflow cannot pass integers of more than 64 bits to a task.
"""
_COUNT_MAX = 1_000_000
TEXT_LENGTH_MAX = 500
"""Maximum length of a text of a user, such as a reason. A command line has a limit, too."""


def applications(config: Config) -> list[str]:
    """Returns the names of all applications: those in the configured folders, then those that
    rewindow.toml defines, for streams and without code.

    `rewindow.loading.catalog.application_names` returns the same names, but its imports are too
    slow for the parsing of a DAG.
    """
    own = _own(config)
    made = {*config.made_applications, *config.defined_applications}
    return [*sorted(own), *sorted(made - own)]


def default_application(config: Config) -> str | None:
    """Returns the application that is replayed by default: the one in the settings, otherwise the
    only existing one.

    With two or more applications there is no default: a new file in the folder must not change what
    the nightly replay computes. Applications that fill streams do not count, because they have a
    separate DAG.

    Raises:
        InputError: the application in the settings does not exist.
    """
    chosen = config.airflow.application
    known = applications(config)
    if chosen is not None and chosen not in known:
        raise InputError(
            f'application "{chosen}" of setting "airflow.application" is unknown',
            hint=f"Available applications: {', '.join(known)}.",
        )
    own = _own(config)
    return chosen or (own.pop() if len(own) == 1 else None)


def _own(config: Config) -> set[str]:
    names: set[str] = set()
    for folder in config.applications:
        names |= {path.stem for path in folder.glob("*.py") if path.stem[0] != "_"}
    return names


def replay_params(
    names: list[str],
    default: str | None = None,
    *,
    drills: bool = False,
) -> dict[str, Param]:
    """Returns the fields of the form of replay_windows, in order.

    Args:
        names: names of all applications.
        default: the application that the form shows first; without it, the user must choose one.
        drills: whether the form has a crash point.
    """
    fields = {
        "application": Param(
            **({"default": default} if default else {}),
            **_application(names, ["string"]),
        ),
        "reason": reason("The reason for this replay; it is stored with the replay."),
        "range_as": Param(
            TIMES,
            type="string",
            enum=[TIMES, WINDOWS, UNPUBLISHED],
            values_display={
                TIMES: "times (half-open)",
                WINDOWS: "windows (closed)",
                UNPUBLISHED: "all sealed windows that are not published",
            },
            title="Range given as",
            section=_RANGE,
        ),
        "from_time": _time("From", "Start of the first window, with a time zone."),
        "to_time": _time("To", "Start of the window after the last one, with a time zone."),
        "first_window": _number("First window", _RANGE, _WINDOW_MAX, minimum=0),
        "last_window": _number("Last window", _RANGE, _WINDOW_MAX, minimum=0),
        "allow_missing": Param(
            False,
            type="boolean",
            title="Allow missing windows",
            section=_RANGE,
            description="They are recorded.",
        ),
        "initial_state": Param(
            False,
            type="boolean",
            title="Start with the initial state",
            section=_RANGE,
            description="Otherwise the replay starts with the published state of the window before "
            "the range.",
        ),
        "allow_affected": _affected(),
        "mode": _mode(),
        "publish": Param(
            APPROVE,
            type="string",
            enum=[APPROVE, AT_ONCE, STAGED],
            values_display={
                APPROVE: "once a person has approved",
                AT_ONCE: "as soon as the gate has passed",
                STAGED: "never, leave it staged",
            },
            title="Publish",
            section=_HOW,
        ),
        "group_windows": _group_windows(),
        "cores_max": _cores_max(),
        "checkpoint_windows": _number(
            "Windows between two checkpoints",
            _HOW,
            description="Empty: the application's own number.",
        ),
        "properties": _given(),
        "reuse": Param(
            None,
            type=["null", "string"],
            title="Reuse containers of replay",
            section=_HOW,
            description="Id of a replay of the same range. Containers that it has computed from "
            "the same code, settings and inputs are reused.",
        ),
    }
    return fields | ({CRASH: _crash()} if drills else {})


def backfill_params(names: list[str], default: str | None = None) -> dict[str, Param]:
    """Returns the fields of the form of backfill_range, in order; see replay_params."""
    fields = replay_params(names, default)
    del fields["reuse"]  # It needs a replay of the same range.
    fields["publish"].value = AT_ONCE
    fields["publish"].schema["enum"] = [AT_ONCE, STAGED]
    return fields | {
        "step": Param(
            "1 d",
            type="string",
            pattern=r"^\s*[0-9.]+\s*[A-Za-z]+\s*$",
            title="Step",
            section=_RANGE,
            description="Duration of the range of each replay, such as 36 h, 1 d or 1 w.",
        ),
        "newest_first": Param(
            False,
            type="boolean",
            title="Newest step first",
            section=_RANGE,
            description="Only possible for an application without state.",
        ),
    }


def drill_params(names: list[str], default: str | None = None) -> dict[str, Param]:
    """Returns the fields of the form of drill_application, in order; see replay_params."""
    return {
        "application": Param(
            **({"default": default} if default else {}),
            **_application(names, ["string"]),
        ),
        "modes": Param(
            ["exactly_once"],
            type="array",
            items={"type": "string", "enum": list(MODES)},
            examples=list(MODES),
            title="Recovery modes",
            description="For operators without a mode; the modes run one after the other.",
        ),
        "windows": _number("Windows", _DRILL, description="Empty: 60."),
        "kills": _number("Kills in each mode", _DRILL, description="Empty: 5."),
        "every_step": Param(
            False,
            type="boolean",
            title="Every step",
            section=_DRILL,
            description="Instead of random kills, kill once at every step of every container.",
        ),
        "seed": _number(
            "Seed", _DRILL, _WINDOW_MAX, description="Empty: a new one, which the log shows."
        ),
    }


def act_params(acts: Iterable[str], **fields: Param) -> dict[str, Param]:
    """Returns the fields of the form of a DAG for actions: action, further fields, and reason."""
    names = list(acts)
    # No default, because one of the actions changes what readers see without a question.
    choice = {"act": Param(type="string", enum=names, title="Action")}
    return (
        (choice if len(names) > 1 else {})
        | fields
        | {"reason": reason("The reason, which is stored with the run.")}
    )


def replay_id_param() -> Param:
    """Returns the field for the id of an existing replay."""
    return Param(
        type="string",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        maxLength=REPLAY_ID_LENGTH_MAX,
        title="Replay",
        description="Id of the replay, as the pages and the logs show it.",
    )


def daily_params(names: list[str], default: str | None = None) -> dict[str, Param]:
    """Returns the parameters of replay_daily.

    The option `--dag-run-conf` of a backfill sets them too.

    Args:
        names: names of all applications.
        default: the application that a scheduled run replays; by default the only name, and none if
            there are several.
    """
    default = default or (names[0] if len(names) == 1 else None)
    return {
        # A DAG with a schedule must not have a required parameter. A run without an application
        # fails at its plan.
        "application": Param(
            default,
            **_application(names, ["string"] if default else ["null", "string"]),
        ),
        "mode": _mode(),
        "initial_state": Param(
            False,
            type="boolean",
            title="Start with the initial state",
            description="Only where no state was published before the day, so on the first day of "
            "a backfill.",
        ),
        "allow_affected": _affected(),
        "group_windows": _group_windows(),
        "cores_max": _cores_max(),
    }


def parse_form(
    params: Mapping[str, Any],
    *,
    drills: bool = False,
    known: Iterable[str] = (),
) -> ReplayOptions:
    """Returns the options of the replay that a form requests.

    Without a range, the form requests all windows that are not yet published.

    Args:
        params: name to value, as Airflow has validated them.
        drills: whether a crash point is allowed.
        known: parameters that the DAG declares; by default those of replay_windows.

    Raises:
        InputError: a field is unknown, or the range is not given in the way that the form selects.
    """
    if CRASH in params and not drills:
        raise InputError(
            f'parameter "{CRASH}" is for drills, and drills are not enabled in this project',
            hint="To enable them, set [replay] drills = true in rewindow.toml.",
        )
    refuse_unknown(params, known or replay_params([], drills=True))
    _check_range(params)
    return {
        "from_time": params["from_time"],
        "to_time": params["to_time"],
        "first": params["first_window"],
        "last": params["last_window"],
        "mode": params["mode"],
        "group_windows": params["group_windows"],
        "cores_max": params.get("cores_max"),
        "checkpoint_windows": params["checkpoint_windows"],
        "properties": parse_properties(params["properties"] or ""),
        "allow_missing": params["allow_missing"],
        "allow_affected": params["allow_affected"],
        "initial_state": params["initial_state"],
        "reuse": params.get("reuse") or None,
        "reason": params["reason"].strip(),
    }


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties in the lines of a form.

    Each line has the form operator.property=value.

    Raises:
        InputError: a line has another format.
    """
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        path, sign, value = line.partition("=")
        if not sign or "." not in path:
            raise InputError(f'line "{line}" of the properties is not operator.property=value')
        found[path.strip()] = value.strip()
    return found


def _check_range(params: Mapping[str, Any]) -> None:
    """Checks that the range is set only in the way that the form selects.

    Raises:
        InputError: names the fields.
    """
    given_as = params["range_as"]
    said = f'The form has "{params["range_as"]}" for the range.'
    fields = {TIMES: ("from_time", "to_time"), WINDOWS: ("first_window", "last_window")}
    for name in fields.get(given_as, ()):
        if params[name] is None:
            raise InputError(
                f"range is not given: {' and '.join(fields[given_as])} must both be set",
                detail=said,
            )
    for way, names in fields.items():
        for name in names:
            if way != given_as and params[name] is not None:
                raise InputError(f"range is given twice: {name} must be empty", detail=said)


def refuse_unknown(params: Mapping[str, Any], known: Iterable[str]) -> None:
    """Checks that the DAG has all parameters of a run, because Airflow accepts any parameters.

    Raises:
        InputError: names the unknown parameter.
    """
    if unknown := sorted(set(params) - set(known)):
        raise InputError(
            f'parameter "{unknown[0]}" is unknown',
            hint=f"Available parameters: {', '.join(sorted(known))}.",
        )


def _application(names: list[str], types: list[str]) -> dict[str, Any]:
    known: dict[str, Any] = (
        {"enum": [None, *names] if "null" in types else names} if names else {"pattern": _NAME}
    )
    return {"type": types, "title": "Application", **known}


def _crash() -> Param:
    return Param(
        None,
        type=["null", "string"],
        pattern=rf"^({CONTAINER}/)?({'|'.join(Step)}):[1-9][0-9]*@[1-9][0-9]*$",
        title="Crash point",
        section=_DRILL,
        description="For drills only: <step>:<group>@<attempt> kills the job there, such as "
        "after_outputs:3@1, or totals/after_outputs:3@1 in container totals only.",
    )


def _affected() -> Param:
    return Param(
        False,
        type="boolean",
        title="Allow an affected start state",
        section=_RANGE,
        description="Also start with a state that lacks lost windows or is stale; it is recorded.",
    )


def _mode() -> Param:
    labels = {name: mode.words for name, mode in MODES.items()}
    return Param(
        next(iter(MODES)),
        type="string",
        enum=list(MODES),
        values_display=labels,
        title="Recovery mode",
        section=_HOW,
    )


def _given() -> Param:
    return Param(
        None,
        type=["null", "string"],
        format="multiline",
        title="Properties",
        section=_HOW,
        description="operator.property=value, one per line; they override rewindow.toml and the "
        "code.",
    )


def _time(title: str, description: str) -> Param:
    return Param(
        None,
        type=["null", "string"],
        format="date-time",
        title=title,
        description=description,
        section=_RANGE,
    )


def reason(description: str) -> Param:
    """Returns a required field for a reason of at least eight characters that are not blank."""
    return Param(
        type="string",
        minLength=8,
        maxLength=TEXT_LENGTH_MAX,
        pattern=_REASON,
        title="Reason",
        description=description,
    )


def _group_windows() -> Param:
    return _number("Windows in a commit group", _HOW, description="Empty: sized by time.")


def _cores_max() -> Param:
    description = "Largest number of cores that Spark uses. Empty: as in rewindow.toml."
    return _number("Cores", _HOW, description=description)


def _number(
    title: str,
    section: str,
    maximum: int = _COUNT_MAX,
    *,
    minimum: int = 1,
    description: str = "",
) -> Param:
    return Param(
        None,
        type=["null", "integer"],
        minimum=minimum,
        maximum=maximum,
        title=title,
        description=description,
        section=section,
    )
