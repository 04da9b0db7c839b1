"""The form of replay_windows: what JSON Schema refuses at the trigger, what the first task refuses after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict

from rewindow.application.given import FILE, FORM, given_as
from rewindow.config import AirflowConfig, Config
from rewindow.errors import InputError
from rewindow.recovery import Plan
from rewindow_airflow.forms import applications, daily_params, default_application, parse_form, replay_params
from rewindow_airflow.replay_requests import refuse_other_wishes

FILLED = {
    "application": "flight_delays",
    "reason": "wrong late threshold",
    "range_as": "times",
    "from_time": "2013-01-01T05:00:00Z",
    "to_time": "2013-01-02T05:00:00Z",
}


def filled(**changes: Any) -> dict[str, Any]:
    """Returns a form as Airflow validates it at the trigger."""
    params = ParamsDict(replay_params(["flight_delays"], drills=True))
    params.update(FILLED | changes)
    return params.validate()


def test_filled_form_is_accepted() -> None:
    """What a person has to give is application, reason and range; the rest has defaults."""
    form = parse_form(filled(), drills=True)
    assert (form.mode, form.publish, form.from_time) == ("exactly_once", "approve", "2013-01-01T05:00:00Z")
    assert form.crash is None
    assert form.first is None


def test_properties_are_given_a_line_each() -> None:
    """O28: as `--set` takes them; spaces around them and empty lines count for nothing."""
    form = parse_form(filled(properties='half.least = 3\n\nhalf.keys=["a=b"]'), drills=True)
    assert form.properties == {"half.least": "3", "half.keys": '["a=b"]'}
    with pytest.raises(InputError, match='line "least 3" of the properties is not operator.property=value'):
        parse_form(filled(properties="least 3"), drills=True)


def test_a_run_that_asks_for_other_properties_than_it_has_planned_is_refused() -> None:
    """O28: those of its form; what rewindow.toml gave is no wish of the run."""
    given = [*given_as({"half.least": "3"}, FORM), *given_as({"half.keys": ["a"]}, FILE)]
    plan = cast(Plan, SimpleNamespace(replay_id="one", given=given))
    refuse_other_wishes(plan, {"properties": "half.least=3"})
    refuse_other_wishes(plan, {})
    with pytest.raises(InputError, match=r"has properties \{'half.least': '3'\}, asked for is \{'half.least': '4'\}"):
        refuse_other_wishes(plan, {"properties": "half.least=4"})


@pytest.mark.parametrize(
    "changes",
    [
        {"application": "unknown"},
        {"reason": "short"},
        {"mode": "twice"},
        {"from_time": "yesterday"},
        {"from_time": "2013-01-01T05:00:00"},
        {"first_window": -1},
        {"first_window": 1.5},
        {"group_windows": 0},
        {"publish": "maybe"},
        {"crash": "rm -rf /"},
        {"crash": "after_outputs:0@1"},
        {"crash": "after_lunch:1@1"},
        {"allow_missing": "yes"},
    ],
    ids=str,
)
def test_form_refuses_a_wrong_value_at_the_trigger(changes: dict[str, Any]) -> None:
    """Types, choices, formats and limits are checked before a run exists."""
    with pytest.raises(Exception, match=next(iter(changes))):
        filled(**changes)


def test_form_without_a_reason_is_refused() -> None:
    """A reason is kept with every replay, so it has to be given."""
    with pytest.raises(Exception, match="reason"):
        ParamsDict(replay_params(["flight_delays"], "flight_delays")).validate()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"to_time": None}, "range is not given"),
        ({"range_as": "windows"}, "range is not given"),
        ({"first_window": 5}, "range is given twice"),
        ({"range_as": "unpublished"}, "range is given twice: from_time must be empty"),
        (
            {"range_as": "unpublished", "from_time": None, "to_time": None, "last_window": 5},
            "last_window must be empty",
        ),
        ({"group_size": 5}, 'parameter "group_size" is unknown'),
    ],
)
def test_plan_refuses_what_the_schema_cannot_say(changes: dict[str, Any], words: str) -> None:
    """Half a range, two ranges and misspelt names are refused by the first task, in words."""
    with pytest.raises(InputError, match=words):
        parse_form(filled(**changes), drills=True)


def test_windows_may_be_given_in_place_of_times() -> None:
    """The range may be closed window ids."""
    windows = filled(range_as="windows", from_time=None, to_time=None, first_window=5, last_window=9)
    form = parse_form(windows, drills=True)
    assert (form.first, form.last) == (5, 9)


def test_all_that_is_not_yet_published_may_be_asked_for_in_place_of_a_range() -> None:
    """The form then has no other range; Airflow shows the choice in words."""
    form = parse_form(filled(range_as="unpublished", from_time=None, to_time=None), drills=True)
    assert (form.from_time, form.to_time, form.first, form.last) == (None, None, None, None)
    field = replay_params(["a"])["range_as"].dump()
    assert field["schema"]["values_display"]["unpublished"] == "all that is sealed and not yet published"
    with pytest.raises(Exception, match="range_as"):
        filled(range_as="published")


def test_daily_parameters_have_defaults_for_a_schedule() -> None:
    """A scheduled run needs no form."""
    ParamsDict(daily_params(["flight_delays"])).validate()


def test_form_offers_every_application_that_can_be_replayed(project: Config) -> None:
    """Own applications come first; then the heartbeat of each stream."""
    from rewindow.loading.catalog import application_names

    assert applications(project) == ["clicks_by_page", "heartbeat_clicks"]
    assert sorted(applications(project)) == application_names(project)
    settings = Config.load(Path(__file__).parents[2] / "rewindow.toml")
    assert sorted(applications(settings)) == application_names(settings)


def test_crash_point_is_a_field_only_where_drills_are_allowed() -> None:
    """In production nobody kills a job by a form; Airflow takes any key, so the first task refuses it."""
    assert "crash" not in replay_params(["a"])
    values = filled(crash="after_outputs:1@1")
    assert parse_form(values, drills=True).crash == "after_outputs:1@1"
    with pytest.raises(InputError, match="drills are not allowed here"):
        parse_form(values)
    assert not Config().airflow.drills


def test_application_has_a_default_only_while_there_is_one(tmp_path: Path) -> None:
    """A second file takes the default away, whatever its name; a setting puts it back, and must name one there is."""
    (tmp_path / "applications").mkdir()
    config = Config(applications=[tmp_path / "applications"])
    assert default_application(config) is None
    (tmp_path / "applications" / "mine.py").touch()
    assert default_application(config) == "mine"
    (tmp_path / "applications" / "a_new_one.py").touch()
    assert default_application(config) is None
    assert default_application(config.model_copy(update={"airflow": AirflowConfig(application="mine")})) == "mine"
    with pytest.raises(InputError, match='application "gone" of setting "airflow.application" is unknown'):
        default_application(config.model_copy(update={"airflow": AirflowConfig(application="gone")}))


def test_form_without_a_default_asks_for_the_application() -> None:
    """With two applications a person has to choose; a scheduled run has none, which its plan refuses."""
    names = ["a_new_one", "mine"]
    with pytest.raises(Exception, match="application"):
        ParamsDict(replay_params(names) | {"reason": Param("long enough", type="string")}).validate()
    assert ParamsDict(daily_params(names)).validate()["application"] is None
    assert ParamsDict(daily_params(names, "mine")).validate()["application"] == "mine"
    assert ParamsDict(daily_params(["mine"])).validate()["application"] == "mine"
