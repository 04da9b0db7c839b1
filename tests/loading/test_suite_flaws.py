"""What is wrong with a suite is found before a replay starts, all at once, and without Great
Expectations.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.loading.catalog import load_application
from rewindow.loading.stream_applications import heartbeat_application
from rewindow.loading.suite_flaws import suite_flaws
from rewindow.settings.config import Config
from rewindow.storage import Table, create_table
from tests.quality.planted_rows import DATA
from tests.quality.staging import PROJECT

Edit = Callable[[dict[str, Any]], object]
NO_PLUGIN = "class ExpectEvenNumbers(object):\n    pass\n"


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    shutil.copytree(PROJECT, tmp_path / "expectations")
    config = Config.load(PROJECT.parent / "rewindow.toml")
    return config.model_copy(
        update={"expectations": tmp_path / "expectations", "state": tmp_path / "state"}
    )


def flaws(config: Config) -> list[str]:
    found = suite_flaws(config, load_application(config, "flight_delays").app, _recorded(config))
    return sorted(map(str, found))


def _recorded(config: Config) -> dict[str, Table]:
    schemas = {
        name: pa.parquet.read_schema(DATA / f"{name}.parquet") for name in ("flights", "weather")
    }
    return {
        name: create_table(config.stream_table(name), schema) for name, schema in schemas.items()
    }


def edit(config: Config, name: str, change: Edit) -> None:
    path = config.expectations / "suites" / f"{name}.json"
    suite = json.loads(path.read_text())
    change(suite)
    path.write_text(json.dumps(suite))


def measure(name: str, sql: Any, section: str = "measures") -> Edit:
    return lambda suite: suite["meta"].setdefault(section, {}).update({name: sql})


def expect(**change: Any) -> Edit:
    return lambda suite: suite["expectations"][0].update(change)


def test_shipped_suites_are_valid(settings: Config) -> None:
    assert flaws(settings) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            expect(type="expect_column_pair_values_to_be_eqal"),
            'an unknown type, perhaps "expect_column_pair_values_to_be_',
        ),
        (
            expect(kwargs={"column_A": "fligths", "column_B": "tuples_in"}),
            'nor a measure, perhaps "flights" is meant',
        ),
        (
            expect(kwargs={"column": "flights", "max_value": {"$PARAMETER": "window"}}),
            'is not set, perhaps "windows"',
        ),
        (expect(severity="fatal"), 'not "fatal"'),
        (
            measure("flights", "sum(fligths)"),
            'measure "flights" of suite "delays" cannot be computed',
        ),
        (measure("flights", "sum(flights"), "ParserError"),
        (measure("flights", "sum({fligths})"), 'uses the value "fligths", which is not set'),
        (measure("more", {"sql": "select 1 as value from output"}, "row_measures"), "window_id"),
        (
            measure("more", {"sql": "select 1", "inputs": ["fights"]}, "row_measures"),
            "inputs are flights, weather",
        ),
    ],
)
def test_suite_validation_error_is_reported(settings: Config, change: Edit, words: str) -> None:
    edit(settings, "delays", change)
    (found,) = flaws(settings)
    assert found.startswith("delays: ") and words in found


def test_validation_errors_of_all_suites_are_reported_together(settings: Config) -> None:
    (settings.expectations / "suites" / "delays.json").write_text("{")
    edit(settings, "ranks", measure("carriers", "count(distinct carriers)"))
    edit(settings, "ranks", expect(type="expect_nothing"))
    edit(settings, "hourly_weather", lambda suite: suite.update(name="hourly"))
    assert [found.partition(":")[0] for found in flaws(settings)] == [
        "delays",
        "hourly_weather",
        "ranks",
        "ranks",
    ]


def test_plugin_expectation_class_is_recognized_without_importing_the_plugin(
    settings: Config,
) -> None:
    plugins = settings.expectations / "plugins"
    plugins.mkdir()
    edit(settings, "ranks", expect(type="expect_even_numbers"))
    assert "expect_even_numbers" in flaws(settings)[0]
    (plugins / "even.py").write_text(NO_PLUGIN)
    assert flaws(settings) == []
    (plugins / "odd.py").write_text("class (")
    assert "odd.py" in flaws(settings)[0]


def test_expectation_types_equal_those_registered_by_great_expectations() -> None:
    code = (
        "import great_expectations; from great_expectations.expectations.registry import "
        "list_registered_expectation_"
        "implementations as known; from rewindow.loading.suite_flaws import _library_types as "
        "ours; import sys;"
        "missing = {name for name in known() if name.startswith('expect_')} - ours(); "
        "sys.exit(str(missing or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1:] in ([], [""]), done.stderr


def test_heartbeat_suite_supports_streams_with_any_columns(settings: Config) -> None:
    time = pa.timestamp("us", tz="UTC")
    odd = [
        ("Sent At", time),
        ("in", pa.struct([("a", pa.int64())])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
    schema = pa.schema(
        [
            ("window_id", pa.int64()),
            ("offset", pa.int64()),
            ("arrived_at", time),
            *odd,
            ("l", pa.list_(pa.float64())),
        ]
    )
    stream = settings.stream("weather").model_copy(update={"event_at": "Sent At", "keys": []})
    app = heartbeat_application("Raw.clicks", stream, schema)
    recorded = {"Raw.clicks": create_table(settings.stream_table("Raw.clicks"), schema)}
    assert [str(flaw) for flaw in suite_flaws(settings, app, recorded)] == []
