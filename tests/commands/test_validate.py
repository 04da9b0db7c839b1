"""The verb `validate`: everything at once, before anything is recorded, and the graph."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from rewindow.settings.config import Config
from tests.commands.conftest import Command
from tests.recovery.project import make_stream

APPLICATION = """
import pyarrow as pa
from pydantic import Field

from rewindow.application import Application, FrameOperator, InputPort, OutputPort

X = pa.schema([("x", pa.int64())])


class Half(FrameOperator):
    inputs = {"rows": InputPort(X)}
    outputs = {"out": OutputPort(X), "rejected": OutputPort(X, error=True)}
    least: int = Field(1, ge=1)


app = Application("halves", window="1 hour")
half = app.add("half", Half(), rows=app.input("clicks"))
app.output("halves", half, key=["x"])
"""
BROKEN = (
    APPLICATION.replace("Half()", "Half(least=0)").replace('key=["x"]', 'key=["y"]')
    + 'app.add("idle", Half())\n'
)
CLICKS = '[streams.clicks]\nsource = "clicks.csv"\narrived_at = "at"\nwidth = "1 hour"\n'


Write = Callable[..., None]


@pytest.fixture
def write(config: Config) -> Write:
    """Writes the application, and settings behind those of the project."""

    def call(source: str, settings: str = CLICKS) -> None:
        assert config.file is not None
        folder = config.file.parent / "jobs" / "applications"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "halves.py").write_text(source)
        with config.file.open("a") as file:
            file.write(settings)

    return call


def test_valid_application_passes_before_anything_is_recorded(
    write: Write,
    command: Command,
) -> None:
    # Checks that need a recording are warnings with a command; nothing is created.
    write(APPLICATION)
    code, text, errors = command("validate", "halves")
    assert (code, errors) == (0, "")
    assert "halves: no errors; 1 operator, 1 input stream\n" in text
    assert 'stream "clicks" is not recorded yet' in text and "rewindow record clicks" in text


def test_validate_compares_columns_of_settings_and_source_before_recording(
    write: Write,
    command: Command,
    config: Config,
) -> None:
    # Rules: O13
    source = config.root / "clicks.csv"
    source.write_text("x,at\n1,2026-01-01\n")
    settings = CLICKS.replace("clicks.csv", str(source))
    write(APPLICATION, settings)
    code, text, _ = command("validate", "halves")
    assert (
        code == 2
        and 'O13  half.rows: stream "clicks" has x string, but the port requires int64' in text
    )
    assert "the columns of its source were compared" in text and not config.state.exists()
    assert config.file is not None
    config.file.write_text(config.file.read_text() + 'select = { x = "cast(x as bigint)" }\n')
    assert command("validate", "halves")[0] == 0


def test_columns_and_windows_of_a_recorded_stream_take_precedence_over_settings(
    write: Write,
    command: Command,
    config: Config,
) -> None:
    # Rules: O13, W15
    rows = pa.table({"window_id": pa.array([5], pa.int64()), "x": pa.array([1], pa.int64())})
    write(APPLICATION)
    make_stream(config, "clicks", rows, {5: 1}, width_ms=3_600_000)
    assert command("validate", "halves")[:2] == (
        0,
        "halves: no errors; 1 operator, 1 input stream\n",
    )
    write(APPLICATION.replace("pa.int64", "pa.string").replace("1 hour", "1 minute"), "")
    code, text, _ = command("validate", "halves")
    assert (
        code == 2
        and 'O13  half.rows: stream "clicks" has x int64, but the port requires string' in text
    )
    assert (
        "W15  clicks: the stream has windows of 1 h, but the application has windows of 1 min"
        in text
    )


def test_validate_reports_all_violations_together_and_sets_the_exit_code(
    write: Write,
    command: Command,
    config: Config,
) -> None:
    write(BROKEN, CLICKS.replace("1 hour", "5 minutes"))
    code, text, _ = command("validate", "halves")
    assert code == 2 and "halves: 4 errors" in text
    assert "O14  idle.rows: input port needs a stream (rows)" in text and "optional=True" in text
    assert "O53  half: it must be greater than or equal to 1 (least = 0)" in text
    assert (
        "W15  clicks: the stream has windows of 5 min, but the application has windows of 1 h "
        "(clicks)" in text
    )
    assert not config.state.exists()
    code, text, _ = command("validate", "halves", "--json")
    found = json.loads(text)
    assert code == 2 and not found["valid"]
    assert [one["rule"] for one in found["violations"]] == ["W15", "O13", "O53", "O14"]
    assert all(one["advice"] for one in found["violations"])


def test_unknown_stream_is_a_violation_with_a_suggestion(write: Write, command: Command) -> None:
    write(APPLICATION.replace('app.input("clicks")', 'app.input("clikcs")'))
    code, text, _ = command("validate", "halves")
    assert code == 2 and "the stream does not exist" in text and 'Did you mean "clicks"' in text


def test_validate_also_checks_values_of_settings_and_options(
    write: Write, command: Command
) -> None:
    # Rules: O28, O53
    write(APPLICATION, f"{CLICKS}[applications.halves.operators.half]\nleast = 0\n")
    assert "(least = 0, from rewindow.toml)" in command("validate", "halves")[1]
    assert command("validate", "halves", "--set", "half.least=2")[0] == 0
    code, text, _ = command(
        "validate",
        "halves",
        "--set",
        "half.least=few",
        "--set",
        "hafl.least=1",
    )
    assert code == 2 and "(least = 'few', from --set)" in text and 'Did you mean "half"' in text
    assert (
        "least = 2 (--set)"
        in command("validate", "halves", "--set", "half.least=2", "--graph", "text")[1]
    )


def test_nondeterministic_code_is_a_warning_with_file_and_line(
    write: Write,
    command: Command,
) -> None:
    # Rules: R86, O61
    write("import random\n" + APPLICATION + "CHOSEN = random.choice([1, 2])\n")
    code, text, _ = command("validate", "halves")
    line = APPLICATION.count("\n") + 2
    assert (
        code == 0 and f"warning: halves.py:{line}: random.choice() differs between replays" in text
    )


def test_graph_is_printed_as_text_svg_and_json_even_with_violations(
    write: Write,
    command: Command,
) -> None:
    write(BROKEN)
    code, text, errors = command("validate", "halves", "--graph", "text")
    assert (code, " errors\n" in errors) == (2, True)
    assert "stream clicks -> half.rows" in text
    assert "rejected -> stored as error tuples" in text and "out -> output halves" in text
    code, drawn, _ = command("validate", "halves", "--graph", "svg")
    titles = [
        node.text
        for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")
    ]
    assert code == 2 and {"clicks to half.rows", "half.out to output halves", "half: Half"} <= set(
        titles
    )
    code, text, _ = command("validate", "halves", "--graph", "json")
    graph = json.loads(text)
    assert graph["outputs"] == {"halves": "half.out"}
    assert [one["feeds"] for one in graph["operators"]] == [{"rows": "clicks"}, {}]


def test_validation_imports_neither_spark_nor_great_expectations(
    write: Write,
    config: Config,
) -> None:
    write(APPLICATION)
    program = (
        "import sys; import rewindow; rewindow.Project().validate('halves');"
        "sys.exit(bool({'pyspark', 'great_expectations'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
