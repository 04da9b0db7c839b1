"""A property that is changed while its replay runs: what is refused, what is noted (X10, O26, O27). No JVM."""

from __future__ import annotations

import pytest

from rewindow.errors import InputError, RangeError, RewindowError
from rewindow.launcher.readiness import check_tables
from rewindow.ledger import Ledger
from rewindow.planning import create_replay
from rewindow.planning.changing import change_log, set_property
from rewindow.planning.request import ReplayRequest
from rewindow.recovery import Plan
from tests.recovery.project import FIRST, WINDOWS, Project

LAST = FIRST + WINDOWS - 1


@pytest.fixture
def plan(project: Project) -> Plan:
    """A replay that has not begun."""
    return create_replay(project.config, ReplayRequest("changing", replay_id="one"))


def test_a_change_is_noted_with_its_window_and_who_made_it(project: Project, plan: Plan) -> None:
    """From the first window that is not begun, unless another one is said; the plan in the ledger has it, too."""
    made = [set_property(project.config, "one", "weighed.factor", "3")]
    change_log(project.config, plan).begin(FIRST, FIRST + 4)
    made.append(set_property(project.config, "one", "weighed.factor", 5))
    made.append(set_property(project.config, "one", "weighed.factor", 7, from_window=FIRST + 9))
    assert [one.from_window for one in made] == [FIRST, FIRST + 5, FIRST + 9]
    assert [one.value for one in made] == [3, 5, 7] and all(one.by for one in made)
    assert Ledger.open(project.config.ledger_url).replays.get("one").read_plan().changes == made
    again = create_replay(project.config, ReplayRequest("changing", replay_id="again", changes_from="one"))
    assert again.changes == made and again.configuration_digest == plan.configuration_digest
    assert (again.options or [])[-2:] == ["--changes-from", "one"]


def test_tables_and_ledger_still_hold_one_plan(project: Project, plan: Plan) -> None:
    """What was changed is no other plan: the replay can be resumed, and planned again under its id."""
    set_property(project.config, "one", "weighed.factor", 3)
    ledger = Ledger.open(project.config.ledger_url)
    noted = ledger.replays.get("one").read_plan()
    assert noted.changes and not plan.changes
    assert check_tables(project.config, ledger, noted)
    assert create_replay(project.config, ReplayRequest("changing", replay_id="one")).replay_id == "one"


@pytest.mark.parametrize(
    ("path", "value", "window", "kind", "words"),
    [
        ("weighd.factor", "3", None, InputError, 'no operator has the name "weighd" Hint: Did you mean "weighed"'),
        ("factor", "3", None, InputError, "does not say of which operator"),
        ("weighed.facto", "3", None, InputError, 'has no such property Hint: Did you mean "factor"'),
        ("weighed.start", "3", None, InputError, "while a replay runs Detail: Changeable of Weighed: factor."),
        ("weighed.factor", "0", None, InputError, '"weighed.factor" cannot be \'0\': it must be greater than'),
        ("weighed.factor", "many", None, InputError, "cannot be 'many'"),
        ("weighed.factor", "3", FIRST + 4, InputError, f"window {FIRST + 4} was begun with the value"),
        ("weighed.factor", "3", LAST + 1, RangeError, f"window {LAST + 1} is not of the replay"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(
    project: Project, plan: Plan, path: str, value: str, window: int | None, kind: type[RewindowError], words: str
) -> None:
    """With the names that there are, or the first window that may be changed."""
    log = change_log(project.config, plan)
    log.begin(FIRST, FIRST + 4)
    with pytest.raises(kind) as error:
        set_property(project.config, "one", path, value, from_window=window)
    assert words in " ".join(str(error.value).split())
    assert not log.changes()


def test_a_replay_that_has_ended_is_changed_no_more(project: Project, plan: Plan) -> None:
    """Nor one whose last window was begun."""
    change_log(project.config, plan).begin(LAST, LAST)
    with pytest.raises(RangeError, match="every window of the replay was begun"):
        set_property(project.config, "one", "weighed.factor", 3)
    ledger = Ledger.open(project.config.ledger_url)
    ledger.replays.abandon("one")
    with pytest.raises(InputError, match='replay "one" is abandoned') as error:
        set_property(project.config, "one", "weighed.factor", 3)
    assert "--set weighed.factor=VALUE" in str(error.value)
