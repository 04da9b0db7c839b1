"""The form of replay_windows: what JSON Schema refuses at the trigger, what the first task refuses after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict

from rewindow.config import Config
from rewindow.errors import InputError
from rewindow_airflow.forms import applications, daily_params, parse_form, replay_params

FILLED = {
    "application": "flight_delays",
    "reason": "wrong late threshold",
    "range_as": "times",
    "from_time": "2013-01-01T05:00:00Z",
    "to_time": "2013-01-02T05:00:00Z",
}


def filled(**changes: Any) -> dict[str, Any]:
    """Returns a form as Airflow validates it at the trigger."""
    params = ParamsDict(replay_params(["flight_delays"]))
    params.update(FILLED | changes)
    return params.validate()


def test_filled_form_is_accepted() -> None:
    """What a person has to give is application, reason and range; the rest has defaults."""
    form = parse_form(filled())
    assert (form.mode, form.publish, form.from_time) == ("exactly_once", "approve", "2013-01-01T05:00:00Z")
    assert form.crash is None
    assert form.first is None


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
        ParamsDict(replay_params(["flight_delays"])).validate()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"to_time": None}, "range is not given"),
        ({"range_as": "windows"}, "range is not given"),
        ({"first_window": 5}, "range is given twice"),
        ({"group_size": 5}, 'parameter "group_size" is unknown'),
    ],
)
def test_plan_refuses_what_the_schema_cannot_say(changes: dict[str, Any], words: str) -> None:
    """Half a range, two ranges and misspelt names are refused by the first task, in words."""
    with pytest.raises(InputError, match=words):
        parse_form(filled(**changes))


def test_windows_may_be_given_in_place_of_times() -> None:
    """The range may be closed window ids."""
    form = parse_form(filled(range_as="windows", from_time=None, to_time=None, first_window=5, last_window=9))
    assert (form.first, form.last) == (5, 9)


def test_daily_parameters_have_defaults_for_a_schedule() -> None:
    """A scheduled run needs no form."""
    ParamsDict(daily_params(["flight_delays"])).validate()


def test_form_offers_every_application_that_can_be_replayed(project: Config) -> None:
    """Own applications come first, one of them is the default; then the heartbeat of each stream."""
    from rewindow.operators.catalog import application_names

    assert applications(project) == ["clicks_by_page", "heartbeat_clicks"]
    assert sorted(applications(project)) == application_names(project)
    settings = Config.load(Path(__file__).parents[2] / "rewindow.toml")
    assert sorted(applications(settings)) == application_names(settings)
