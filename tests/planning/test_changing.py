"""A property that is changed while its replay runs: what is refused, what is noted (X10, O26, O27).
No JVM.
"""

from __future__ import annotations

import pytest

from rewindow.errors import InputError, RangeError, RewindowError
from rewindow.launcher.readiness import check_tables
from rewindow.ledger import Ledger
from rewindow.planning import create_replay
from rewindow.planning.changing import change_log, limit_cores, set_property
from rewindow.planning.containers import plan_container
from rewindow.planning.request import ReplayRequest
from rewindow.recovery import Plan
from rewindow.state.changes import container_log
from tests.recovery.project import FIRST, WINDOWS, Project

LAST = FIRST + WINDOWS - 1


@pytest.fixture
def plan(project: Project) -> Plan:
    return create_replay(project.config, ReplayRequest("changing", replay_id="one"))


def test_property_change_is_recorded_with_its_window_and_user(project: Project, plan: Plan) -> None:
    # Rules: X10
    made = [set_property(project.config, "one", "weighed.factor", "3")]
    change_log(project.config, plan).begin(FIRST, FIRST + 4)
    made.append(set_property(project.config, "one", "weighed.factor", 5))
    made.append(set_property(project.config, "one", "weighed.factor", 7, from_window=FIRST + 9))
    assert [one.from_window for one in made] == [FIRST, FIRST + 5, FIRST + 9]
    assert [one.value for one in made] == [3, 5, 7] and all(one.by for one in made)
    assert Ledger.open(project.config.ledger_url).replays.get("one").read_plan().changes == made
    again = create_replay(
        project.config,
        ReplayRequest("changing", replay_id="again", changes_from="one"),
    )
    assert again.changes == made and again.configuration_digest == plan.configuration_digest
    assert (again.options or [])[-2:] == ["--changes-from", "one"]


def test_tables_and_ledger_contain_the_same_plan_after_a_property_change(
    project: Project,
    plan: Plan,
) -> None:
    set_property(project.config, "one", "weighed.factor", 3)
    ledger = Ledger.open(project.config.ledger_url)
    noted = ledger.replays.get("one").read_plan()
    assert noted.changes and not plan.changes
    assert check_tables(project.config, ledger, noted)
    assert (
        create_replay(project.config, ReplayRequest("changing", replay_id="one")).replay_id == "one"
    )


@pytest.mark.parametrize(
    ("path", "value", "window", "kind", "words"),
    [
        (
            "weighd.factor",
            "3",
            None,
            InputError,
            'no operator has the name "weighd" Hint: Did you mean "weighed"',
        ),
        ("factor", "3", None, InputError, "lacks the name of its operator"),
        (
            "weighed.facto",
            "3",
            None,
            InputError,
            'has no such property Hint: Did you mean "factor"',
        ),
        (
            "weighed.start",
            "3",
            None,
            InputError,
            "while a replay runs Detail: Changeable of Weighed: factor.",
        ),
        (
            "weighed.factor",
            "0",
            None,
            InputError,
            "cannot set property \"weighed.factor\" to '0': it must be greater than",
        ),
        ("weighed.factor", "many", None, InputError, "to 'many': it must be"),
        (
            "weighed.factor",
            "3",
            FIRST + 4,
            InputError,
            "has already started with the current value",
        ),
        (
            "weighed.factor",
            "3",
            LAST + 1,
            RangeError,
            f"window {LAST + 1} is not in the range of the replay",
        ),
    ],
)
def test_invalid_property_change_is_rejected_and_changes_nothing(
    project: Project,
    plan: Plan,
    path: str,
    value: str,
    window: int | None,
    kind: type[RewindowError],
    words: str,
) -> None:
    log = change_log(project.config, plan)
    log.begin(FIRST, FIRST + 4)
    with pytest.raises(kind) as error:
        set_property(project.config, "one", path, value, from_window=window)
    assert words in " ".join(str(error.value).split())
    assert not log.changes()


def test_property_change_of_an_ended_replay_is_rejected(project: Project, plan: Plan) -> None:
    change_log(project.config, plan).begin(LAST, LAST)
    with pytest.raises(RangeError, match="every window of the replay has started"):
        set_property(project.config, "one", "weighed.factor", 3)
    ledger = Ledger.open(project.config.ledger_url)
    ledger.replays.abandon("one")
    with pytest.raises(InputError, match='replay "one" is abandoned') as error:
        set_property(project.config, "one", "weighed.factor", 3)
    assert "--set weighed.factor=VALUE" in str(error.value)


def test_containers_can_apply_a_property_change_at_different_windows(project: Project) -> None:
    # Rules: X10, X53
    config = project.config
    plan = create_replay(config, ReplayRequest("changing_parts", replay_id="parts"))
    root = config.replay_root("parts")
    container_log(root, "c1").begin(FIRST, FIRST + 4)
    made = [
        set_property(config, "parts", "first.factor", 2),
        set_property(config, "parts", "second.factor", 3),
    ]
    assert [one.from_window for one in made] == [FIRST + 5, FIRST]
    assert change_log(config, plan).changes() == made
    assert Ledger.open(config.ledger_url).replays.get("parts").read_plan().changes == made
    container_log(root, "c1").begin(FIRST + 5, LAST)
    with pytest.raises(RangeError, match='every window of container "c1" has started'):
        set_property(config, "parts", "first.factor", 4)
    plan_container(config, plan, plan.containers[0])
    with pytest.raises(InputError, match='"parts@c1" is a container of replay "parts"'):
        set_property(config, "parts@c1", "first.factor", 4)
    reused = plan.containers[0].model_copy(update={"reused": "other@c1"})
    other = plan.model_copy(
        update={"replay_id": "other", "containers": [reused, plan.containers[1]]}
    )
    about = ("changing_parts", FIRST, LAST, "exactly_once", other.model_dump(mode="json"), "1")
    Ledger.open(config.ledger_url).replays.create("other", *about)
    with pytest.raises(InputError, match='container "c1" is reused from other@c1'):
        set_property(config, "other", "first.factor", 4)


def test_limit_of_cores_is_rejected_below_one_and_after_the_end(project: Project) -> None:
    project.plan("one", "exactly_once")
    with pytest.raises(InputError, match="cores_max must be at least 1, not 0"):
        limit_cores(project.config, "one", 0)
    ledger = Ledger.open(project.config.ledger_url)
    assert ledger.replays.get("one").read_plan().cores_max is None
    ledger.replays.abandon("one")
    with pytest.raises(InputError, match='replay "one" is abandoned'):
        limit_cores(project.config, "one", 1)
