"""Suites as data: canonical files, stable ids, and errors that say what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rewindow.errors import GateError
from rewindow.loading.suites import (
    COLUMNS,
    EVERY_OUTPUT,
    canonical,
    check_id,
    read_suite,
    suite_for,
    with_ids,
)
from tests.quality.staging import PROJECT, expectation

FILES = sorted((PROJECT / "suites").glob("*.json"))
GOOD = expectation("no-loss", "expect_column_values_to_be_in_set", column="lost", value_set=[0])


def write(folder: Path, name: str, suite: Any) -> Path:
    """Writes a suite file and returns the expectations folder."""
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / f"{name}.json").write_text(
        suite if isinstance(suite, str) else json.dumps(suite)
    )
    return folder


def rows_measured(**entry: Any) -> dict[str, Any]:
    measure = {"sql": "select window_id, 1 as value from output group by window_id", **entry}
    return {"name": "mine", "expectations": [GOOD], "meta": {"row_measures": {"a": measure}}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_suite_files_are_in_canonical_format(path: Path) -> None:
    assert path.read_text() == canonical(json.loads(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_suite_file_ids_are_uuids_of_suite_and_slug(path: Path) -> None:
    suite = json.loads(path.read_text())
    assert suite["id"] == check_id(path.stem, "")
    assert [entry["id"] for entry in suite["expectations"]] == [
        check_id(path.stem, entry["meta"]["check"]) for entry in suite["expectations"]
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_check_declares_its_severity(path: Path) -> None:
    assert all("severity" in entry for entry in json.loads(path.read_text())["expectations"])


def test_every_output_suite_starts_with_the_common_checks() -> None:
    common = read_suite(PROJECT, EVERY_OUTPUT)
    own = read_suite(PROJECT, "ranks")
    assert list(suite_for(PROJECT, "ranks").checks) == [*common.checks, *own.checks]
    assert suite_for(PROJECT, None).checks == common.checks


def test_project_suite_overrides_the_shipped_suite_of_the_same_name(tmp_path: Path) -> None:
    assert suite_for(tmp_path, None).checks == suite_for(PROJECT, None).checks
    write(tmp_path, EVERY_OUTPUT, {"name": EVERY_OUTPUT, "expectations": [GOOD]})
    assert list(suite_for(tmp_path, None).checks) == [check_id(EVERY_OUTPUT, "no-loss")]


def test_missing_ids_are_generated_for_a_hand_written_suite(tmp_path: Path) -> None:
    read = read_suite(write(tmp_path, "mine", {"name": "mine", "expectations": [GOOD]}), "mine")
    assert list(read.checks) == [check_id("mine", "no-loss")]
    assert with_ids({"name": "mine", "expectations": [GOOD]})["expectations"][0]["id"] == check_id(
        "mine",
        "no-loss",
    )


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        ("{", "is not JSON"),
        ({"name": "mine"}, "is not a suite"),
        ([1], "is not a suite"),
        (
            {"name": "other", "expectations": [GOOD]},
            'must have the same name, not "other"',
        ),
        ({"name": "mine", "expectations": []}, 'suite "mine" checks nothing'),
        ({"name": "mine", "expectations": [{**GOOD, "meta": {}}]}, "needs a slug in meta.check"),
        (
            {"name": "mine", "expectations": [{**GOOD, "meta": {"check": "No Loss"}}]},
            'meta.check, not "No Loss"',
        ),
        (
            {"name": "mine", "expectations": [{**GOOD, "description": ""}]},
            'check "no-loss" of suite "mine" has no desc',
        ),
        (
            {"name": "mine", "expectations": [{**GOOD, "severity": "fatal"}]},
            'severity of check "no-loss" of suite "mine" must be one of critical',
        ),
        ({"name": "mine", "expectations": [GOOD, GOOD]}, 'check "no-loss" is twice'),
        (
            {"name": "mine", "expectations": [GOOD], "meta": {"measures": {"a b": "1"}}},
            'measure "a b"',
        ),
        (
            {"name": "mine", "expectations": [GOOD], "meta": {"measures": {"lost": "1"}}},
            'measure "lost" of suite "mine" has the name of a column of the window report',
        ),
        (
            {"name": "mine", "expectations": [GOOD], "meta": {"measures": {"a": {}}}},
            'measure "a" .* has no SQL',
        ),
        (rows_measured(windows="all"), 'needs "one" or "several" as "windows", not "all"'),
        (rows_measured(inputs="flights"), 'needs a list of streams as "inputs"'),
        (rows_measured(input=["flights"]), 'unknown key "input"'),
    ],
)
def test_invalid_suite_is_rejected(tmp_path: Path, suite: Any, message: str) -> None:
    with pytest.raises(GateError, match=message):
        read_suite(write(tmp_path, "mine", suite), "mine")


def test_missing_suite_error_lists_the_existing_ones() -> None:
    with pytest.raises(GateError, match='suite "delay" has no file') as error:
        read_suite(PROJECT, "delay")
    assert "delays, every_output" in error.value.detail


def test_readme_lists_the_columns_of_the_window_report() -> None:
    text = (PROJECT / "README.md").read_text().partition("Expectations use the columns of the")[2]
    listed = re.findall(r"`([a-z_]+)`", text.partition("If a column does not apply")[0])
    assert sorted(listed) == sorted(COLUMNS)
