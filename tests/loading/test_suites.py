"""Suites as data: canonical files, stable ids, and errors that say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewindow.errors import GateError
from rewindow.loading.suites import EVERY_OUTPUT, canonical, check_id, read_suite, suite_for, with_ids
from tests.quality.staging import PROJECT, expectation

FILES = sorted((PROJECT / "suites").glob("*.json"))
GOOD = expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])


def write(folder: Path, name: str, suite: Any) -> Path:
    """Writes a suite file and returns the expectations folder."""
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / f"{name}.json").write_text(suite if isinstance(suite, str) else json.dumps(suite))
    return folder


def rows_measured(**entry: Any) -> dict[str, Any]:
    """A suite with a measure over rows."""
    measure = {"sql": "select window_id, 1 as value from output group by window_id", **entry}
    return {"name": "mine", "expectations": [GOOD], "meta": {"row_measures": {"a": measure}}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_suite_file_is_canonical(path: Path) -> None:
    """A file is what its own content would be written as, ids included."""
    assert path.read_text() == canonical(json.loads(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_suite_file_has_the_ids_of_its_names(path: Path) -> None:
    """An id is the UUID of suite and slug, so that it survives every rewriting."""
    suite = json.loads(path.read_text())
    assert suite["id"] == check_id(path.stem, "")
    assert [entry["id"] for entry in suite["expectations"]] == [
        check_id(path.stem, entry["meta"]["check"]) for entry in suite["expectations"]
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_check_says_its_severity(path: Path) -> None:
    """What stops a publication is written, not left to a default."""
    assert all("severity" in entry for entry in json.loads(path.read_text())["expectations"])


def test_suite_of_an_output_begins_with_the_checks_of_every_output() -> None:
    """Nobody has to repeat what holds of any replay."""
    common, own = read_suite(PROJECT, EVERY_OUTPUT), read_suite(PROJECT, "ranks")
    assert list(suite_for(PROJECT, "ranks").checks) == [*common.checks, *own.checks]
    assert suite_for(PROJECT, None).checks == common.checks


def test_suites_of_ours_need_no_copy(tmp_path: Path) -> None:
    """A project's own file of the same name comes before ours."""
    assert suite_for(tmp_path, None).checks == suite_for(PROJECT, None).checks
    write(tmp_path, EVERY_OUTPUT, {"name": EVERY_OUTPUT, "expectations": [GOOD]})
    assert list(suite_for(tmp_path, None).checks) == [check_id(EVERY_OUTPUT, "no-loss")]


def test_ids_are_filled_in_for_a_suite_written_by_hand(tmp_path: Path) -> None:
    """A check needs no id in the file."""
    read = read_suite(write(tmp_path, "mine", {"name": "mine", "expectations": [GOOD]}), "mine")
    assert list(read.checks) == [check_id("mine", "no-loss")]
    assert with_ids({"name": "mine", "expectations": [GOOD]})["expectations"][0]["id"] == check_id("mine", "no-loss")


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        ("{", "is not JSON"),
        ({"name": "mine"}, "is not a suite"),
        ([1], "is not a suite"),
        ({"name": "other", "expectations": [GOOD]}, 'holds a suite of the name "other"'),
        ({"name": "mine", "expectations": []}, 'suite "mine" checks nothing'),
        ({"name": "mine", "expectations": [{**GOOD, "meta": {}}]}, "has no slug in meta.check"),
        ({"name": "mine", "expectations": [{**GOOD, "meta": {"check": "No Loss"}}]}, 'found "No Loss"'),
        (
            {"name": "mine", "expectations": [{**GOOD, "description": ""}]},
            'check "no-loss" of suite "mine" has no desc',
        ),
        ({"name": "mine", "expectations": [{**GOOD, "severity": "fatal"}]}, 'severity "fatal", allowed are critical'),
        ({"name": "mine", "expectations": [GOOD, GOOD]}, 'check "no-loss" is twice'),
        ({"name": "mine", "expectations": [GOOD], "meta": {"measures": {"a b": "1"}}}, 'measure "a b"'),
        ({"name": "mine", "expectations": [GOOD], "meta": {"measures": {"a": {}}}}, 'measure "a" .* has no SQL'),
        (rows_measured(windows="all"), 'needs "one" or "several" as "windows", not "all"'),
        (rows_measured(inputs="flights"), 'needs a list of streams as "inputs"'),
        (rows_measured(input=["flights"]), 'unknown key "input"'),
    ],
)
def test_suite_that_is_wrong_is_refused(tmp_path: Path, suite: Any, message: str) -> None:
    """Each way to write a wrong suite has its message."""
    with pytest.raises(GateError, match=message):
        read_suite(write(tmp_path, "mine", suite), "mine")


def test_missing_suite_names_those_that_are_there() -> None:
    """A misspelt suite is found by looking at the message."""
    with pytest.raises(GateError, match='suite "delay" has no file') as error:
        read_suite(PROJECT, "delay")
    assert "delays, every_output" in error.value.detail
