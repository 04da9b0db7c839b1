"""Applications that sections of rewindow.toml define without code; messages for wrong sections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.application import find_violations, validate
from rewindow.application.overrides import FILE, OPTION, overrides_from
from rewindow.errors import InputError
from rewindow.loading.catalog import application_names, load_application
from rewindow.loading.library import EXAMPLES
from rewindow.planning.validation import validate as find
from rewindow.settings.config import Config
from rewindow.storage import create_table

BUSIEST = """
[applications.busiest]
window = "1 second"
[applications.busiest.operators]
counts = { operator = "Aggregate", inputs = { rows = "sales" }, by = ["shop"], \
aggregates = { sales = "count(*)" }, application_windows = 3600 }
top = { operator = "TopN", inputs = { rows = "counts" }, by = ["sales"], top = 10 }
[applications.busiest.outputs]
top = { source = "top", key = ["shop"], tolerance = 0.5 }
"""
TIME = pa.timestamp("us", tz="UTC")
SALES = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", TIME),
        ("number", pa.int64()),
        ("shop", pa.string()),
        ("customer", pa.string()),
        ("price", pa.float64()),
        ("sold_at", TIME),
    ]
)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[str], Config]:
    """Returns what makes settings of a text, in a project with the streams `sales` and
    `returns`.
    """
    for stream in ("sales", "returns"):
        create_table(Config(state=tmp_path).stream_table(stream), SALES)

    def make(text: str) -> Config:
        file = tmp_path / "rewindow.toml"
        file.write_text(f'state = "."\n[applications]\nfolders = ["."]\n{text}')
        return Config.load(file)

    return make


def busiest(settings: Callable[[str], Config], old: str = "", new: str = "") -> Config:
    assert old in BUSIEST
    return settings(BUSIEST.replace(old, new))


def flaws_of(config: Config) -> str:
    app = load_application(config, "busiest").app
    return "; ".join(map(str, find_violations(app, recorded={"sales": SALES})))


def test_settings_section_with_a_window_defines_an_application(
    settings: Callable[[str], Config],
) -> None:
    # Rules: O125, O128
    config = busiest(settings)
    assert application_names(config) == ["busiest"]
    loaded = load_application(config, "busiest")
    validate(loaded.app, recorded={"sales": SALES})
    counts, top = loaded.app.nodes.values()
    assert counts.application_windows == 3600 and counts.operator.is_stateful
    assert top.feeds == {"rows": counts["out"]} and not top.operator.is_stateful
    output = loaded.app.outputs["top"]
    assert (output.key, output.tolerance) == (("shop",), 0.5)
    assert loaded.app.columns(output) == pa.schema([("shop", pa.string()), ("sales", pa.int64())])
    found = find(config, "busiest")
    assert {node.name for node in found.graph.operators} == {"counts", "top"}


def test_operator_versions_depend_on_the_configuration(
    settings: Callable[[str], Config],
) -> None:
    first = load_application(busiest(settings), "busiest")
    second = load_application(busiest(settings, "top = 10", "top = 11"), "busiest")
    assert first.code_version == second.code_version
    assert first.configuration_digest != second.configuration_digest
    one, other = first.versions(None), second.versions(None)
    assert one["counts"] == other["counts"] and one["top"] != other["top"]


def test_property_override_changes_the_downstream_columns(
    settings: Callable[[str], Config],
) -> None:
    given = overrides_from({"counts.by": '["customer"]', "top.by": '["customer"]'}, OPTION)
    loaded = load_application(
        busiest(settings, '["shop"], tol', '["customer"], tol'), "busiest", given=given
    )
    validate(loaded.app, recorded={"sales": SALES})
    assert loaded.app.nodes["top"].output_ports()["out"].schema.names == ["customer", "sales"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"TopN"', '"Topn"', '.operators.top] operator: operator "Topn" is not in the'),
        ('operator = "TopN", ', "", ".operators.top] operator: it needs an operator"),
        ("top = 10", "top = 0", ".operators.top] top: it must be greater than or equal to 1"),
        ("top = 10", "tap = 10", ".operators.top] top: Field required"),
        ('by = ["sales"]', 'by = ["sold"]', '.operators.top] by: the input has no column "sold"'),
        ('rows = "counts"', 'rows = ["sales", "counts"]', "inputs.rows: a port reads one stream"),
        ('rows = "counts"', 'row = "counts"', "inputs.row: there is no such port. It has: rows"),
        ('rows = "counts"', 'rows = "counts.on"', 'operator "counts" has no port "on". Write one'),
        ('rows = "counts"', 'rows = "cuonts"', 'inputs.rows: stream "cuonts" is not recorded'),
        ('rows = "sales"', 'rows = "top"', "operators read each other in a loop: counts <- top"),
        ('inputs = { rows = "sales" }, ', "", "counts] inputs: each port needs a stream"),
        ('source = "top", ', "", ".outputs.top] source: an output needs the operator"),
        ('source = "top"', 'source = "sales"', ".outputs.top] source: no operator has the name"),
        (
            '"count(*)"',
            '"quantile(price, 2)"',
            "aggregates.sales: the share of a quantile must be from 0 to 1",
        ),
    ],
)
def test_invalid_sections_are_reported_with_their_key(
    settings: Callable[[str], Config],
    old: str,
    new: str,
    message: str,
) -> None:
    with pytest.raises(InputError) as caught:
        load_application(busiest(settings, old, new), "busiest")
    assert message in caught.value.primary and caught.value.detail == ""
    assert "[applications.busiest." in caught.value.primary


def test_second_input_port_requires_a_stream_and_has_the_columns_of_the_stream(
    settings: Callable[[str], Config],
) -> None:
    # Rules: O123
    join = (
        'operator = "Join", inputs = { left = "counts", right = "counts" }, on = ["shop", "sales"]'
    )
    old = 'operator = "TopN", inputs = { rows = "counts" }, by = ["sales"], top = 10'
    operator = load_application(busiest(settings, old, join), "busiest").app.nodes["top"].operator
    assert operator.input_ports()["right"].schema.names == ["shop", "sales"]
    for wrong, message in (
        (join.replace(', right = "counts"', ""), "inputs.right: the port needs a stream"),
        (f"{join}, right_columns = 1", "right_columns: they follow from the inputs: leave it out"),
    ):
        with pytest.raises(InputError) as caught:
            load_application(busiest(settings, old, wrong), "busiest")
        assert message in caught.value.primary


def test_unknown_key_and_port_used_by_two_outputs_are_violations(
    settings: Callable[[str], Config],
) -> None:
    config = busiest(settings, "top = 10 }", 'top = 10, colour = "red" }')
    assert "TopN has no such property or attribute" in flaws_of(config)
    config = busiest(settings, "top = { source", 'more = { source = "top" }\ntop = { source')
    assert "a port belongs to one stream" in flaws_of(config)


def test_settings_section_without_a_window_defines_no_application(
    settings: Callable[[str], Config],
) -> None:
    config = busiest(settings, 'window = "1 second"', "strict_outputs = true")
    assert application_names(config) == []
    with pytest.raises(InputError) as caught:
        load_application(config, "busiest")
    assert "[applications.busiest] has no window" in caught.value.hint


def test_values_in_the_settings_section_are_property_overrides(
    settings: Callable[[str], Config],
) -> None:
    # Rules: O28
    app = load_application(busiest(settings), "busiest").app
    given = {one.path: (one.value, one.source) for one in app.given}
    assert given["top.top"] == (10, FILE)
    assert given["counts.application_windows"] == (3600, FILE)
    assert not {"top.operator", "top.inputs"} & set(given)
    planned = [*app.given, *overrides_from({"top.top": "3"}, OPTION)]
    again = load_application(busiest(settings, "top = 10", "top = 11"), "busiest", given=planned)
    assert again.app.nodes["top"].operator.top == 3


def test_settings_section_with_the_name_of_a_code_application_is_rejected(
    settings: Callable[[str], Config],
    tmp_path: Path,
) -> None:
    (tmp_path / "busiest.py").write_text("app = None")
    with pytest.raises(InputError, match='"busiest" is defined twice'):
        load_application(busiest(settings), "busiest")


@pytest.mark.parametrize("name", EXAMPLES)
def test_catalogue_examples_can_be_replayed(
    settings: Callable[[str], Config],
    name: str,
) -> None:
    config = settings(f'[applications.example]\nwindow = "1 s"\n{EXAMPLES[name]}')
    app = load_application(config, "example").app
    validate(app, recorded={"sales": SALES, "returns": SALES})
