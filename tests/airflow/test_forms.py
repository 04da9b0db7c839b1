"""The form of replay_windows: what JSON Schema refuses at the trigger, what the first task refuses
after it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict

from rewindow.application import Mode
from rewindow.application.overrides import FILE, FORM, overrides_from
from rewindow.errors import InputError
from rewindow.recovery import Plan
from rewindow.settings.config import AirflowConfig, Config
from rewindow_airflow.forms import (
    applications,
    daily_params,
    default_application,
    parse_form,
    replay_params,
)
from rewindow_airflow.replay_requests import reject_other_options

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


def test_form_with_application_reason_and_range_is_accepted() -> None:
    form = parse_form(filled(), drills=True)
    assert (form["mode"], form["from_time"]) == ("exactly_once", "2013-01-01T05:00:00Z")
    assert form["first"] is None


def test_properties_are_parsed_one_per_line_like_set_options() -> None:
    # Rules: O28
    form = parse_form(filled(properties='half.least = 3\n\nhalf.keys=["a=b"]'), drills=True)
    assert form["properties"] == {"half.least": "3", "half.keys": '["a=b"]'}
    with pytest.raises(
        InputError,
        match='line "least 3" of the properties is not operator.property=value',
    ):
        parse_form(filled(properties="least 3"), drills=True)


def test_run_with_properties_that_differ_from_its_plan_is_rejected() -> None:
    # Rules: O28
    # Values from rewindow.toml do not count as requested by the run.
    given = [
        *overrides_from({"half.least": "3"}, FORM),
        *overrides_from({"half.keys": ["a"]}, FILE),
    ]
    plan = cast(Plan, SimpleNamespace(replay_id="one", given=given))
    reject_other_options(plan, {"properties": "half.least=3"})
    reject_other_options(plan, {})
    with pytest.raises(
        InputError,
        match=r"has properties \{'half.least': '3'\}, but the run requests \{'half.least': '4'\}",
    ):
        reject_other_options(plan, {"properties": "half.least=4"})


def test_run_with_a_mode_that_differs_from_its_plan_is_rejected() -> None:
    mode = Mode.AT_LEAST_ONCE
    plan = cast(Plan, SimpleNamespace(replay_id="one", given=[], asked_mode=mode))
    reject_other_options(plan, {"mode": "at_least_once"})
    with pytest.raises(
        InputError, match="has mode at_least_once, but the run requests exactly_once"
    ):
        reject_other_options(plan, {"mode": "exactly_once"})


@pytest.mark.parametrize(
    "changes",
    [
        {"application": "unknown"},
        {"reason": "short"},
        {"reason": " " * 10},
        {"reason": "  short\n   "},
        {"mode": "twice"},
        {"from_time": "yesterday"},
        {"from_time": "2013-01-01T05:00:00"},
        {"first_window": -1},
        {"first_window": 1.5},
        {"first_window": 2**64},
        {"group_windows": 0},
        {"publish": "maybe"},
        {"crash": "rm -rf /"},
        {"crash": "after_outputs:0@1"},
        {"crash": "after_lunch:1@1"},
        {"allow_missing": "yes"},
    ],
    ids=str,
)
def test_form_rejects_an_invalid_value_when_the_run_is_triggered(changes: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(changes))):
        filled(**changes)


@pytest.mark.parametrize("reason", ["a reason", "wrong\nthreshold", " 8 blanks "])
def test_form_accepts_a_reason_of_eight_characters(reason: str) -> None:
    assert parse_form(filled(reason=reason), drills=True)["reason"] == reason.strip()


def test_form_accepts_a_parameter_that_the_dag_file_adds() -> None:
    values = filled() | {"team": "a"}
    parse_form(values, drills=True, known=values)
    with pytest.raises(InputError, match='parameter "team" is unknown'):
        parse_form(values, drills=True)


def test_form_rejects_a_missing_reason() -> None:
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
def test_plan_rejects_incomplete_ranges_two_ranges_and_misspelt_names(
    changes: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(InputError, match=words):
        parse_form(filled(**changes), drills=True)


def test_form_accepts_window_ids_instead_of_times() -> None:
    windows = filled(
        range_as="windows",
        from_time=None,
        to_time=None,
        first_window=5,
        last_window=9,
    )
    form = parse_form(windows, drills=True)
    assert (form["first"], form["last"]) == (5, 9)


def test_form_accepts_all_unpublished_windows_instead_of_a_range() -> None:
    form = parse_form(filled(range_as="unpublished", from_time=None, to_time=None), drills=True)
    for name in ("from_time", "to_time", "first", "last"):
        assert form[name] is None  # type: ignore[literal-required]
    field = replay_params(["a"])["range_as"].dump()
    assert (
        field["schema"]["values_display"]["unpublished"]
        == "all sealed windows that are not published"
    )
    with pytest.raises(Exception, match="range_as"):
        filled(range_as="published")


def test_daily_parameters_have_defaults_for_a_scheduled_run() -> None:
    ParamsDict(daily_params(["flight_delays"])).validate()


def test_form_lists_project_applications_before_the_heartbeat_of_each_stream(
    project: Config,
) -> None:
    from rewindow.loading.catalog import application_names

    assert applications(project) == ["clicks_by_page", "heartbeat_clicks"]
    assert sorted(applications(project)) == application_names(project)
    settings = Config.load(Path(__file__).parents[2] / "rewindow.toml")
    assert sorted(applications(settings)) == application_names(settings)


def test_form_has_a_crash_point_field_only_if_drills_are_allowed() -> None:
    # Airflow accepts any key, so the first task rejects the parameter.
    assert "crash" not in replay_params(["a"])
    values = filled(crash="after_outputs:1@1")
    assert parse_form(values, drills=True) == parse_form(filled(), drills=True)
    with pytest.raises(InputError, match="drills are not enabled in this project"):
        parse_form(values)
    assert not Config().replay.drills


def test_default_application_is_the_only_existing_one_or_the_configured_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "applications").mkdir()
    config = Config(applications=[tmp_path / "applications"])
    assert default_application(config) is None
    (tmp_path / "applications" / "mine.py").touch()
    assert default_application(config) == "mine"
    (tmp_path / "applications" / "a_new_one.py").touch()
    assert default_application(config) is None
    assert (
        default_application(
            config.model_copy(update={"airflow": AirflowConfig(application="mine")})
        )
        == "mine"
    )
    with pytest.raises(
        InputError,
        match='application "gone" of setting "airflow.application" is unknown',
    ):
        default_application(
            config.model_copy(update={"airflow": AirflowConfig(application="gone")})
        )


def test_form_without_a_default_requires_the_application() -> None:
    names = ["a_new_one", "mine"]
    with pytest.raises(Exception, match="application"):
        ParamsDict(
            replay_params(names) | {"reason": Param("long enough", type="string")}
        ).validate()
    assert ParamsDict(daily_params(names)).validate()["application"] is None
    assert ParamsDict(daily_params(names, "mine")).validate()["application"] == "mine"
    assert ParamsDict(daily_params(["mine"])).validate()["application"] == "mine"
