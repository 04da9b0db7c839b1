"""Code blocks of README and docs: Python runs, commands name verbs and options that exist, settings
can be read.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from _pytest.mark import ParameterSet
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rewindow.cli import app
from rewindow.errors import RangeError
from rewindow.operators import GapSettings, gap_report
from rewindow.operators.heartbeat.function import HeartbeatSettings, heartbeat
from rewindow.settings.config import Config
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/decisions/*.md"),
        ROOT / "dags/README.md",
    }
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
AIRFLOW = re.compile(r"\b(import|from) (airflow|rewindow_airflow)\b")


def blocks(page: str, *languages: str) -> Iterator[Token]:
    """Yields the code blocks of a page in some languages; an indented block has none."""
    for token in MarkdownIt().parse((ROOT / page).read_text()):
        if token.type in ("fence", "code_block") and token.info.strip() in languages:
            yield token


def pages_with(*languages: str) -> list[str]:
    return [name for name in NAMES if any(blocks(name, *languages))]


def runnable() -> Iterator[ParameterSet]:
    """Yields each page that has Python: what needs Airflow by itself, with a mark."""
    for page in pages_with("python"):
        needs = {bool(AIRFLOW.search(block.content)) for block in blocks(page, "python")}
        for airflow in sorted(needs):
            yield pytest.param(page, airflow, marks=[pytest.mark.jvm] if airflow else [])


@pytest.mark.parametrize(("page", "airflow"), list(runnable()))
def test_python_blocks_of_the_docs_run(
    page: str,
    airflow: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "AIRFLOW_HOME" not in os.environ:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    run(page, airflow)


def run(page: str, airflow: bool) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page, "python"):
        if bool(AIRFLOW.search(block.content)) == airflow:
            line = (block.map or [0])[0] + 1
            code = compile("\n" * line + block.content, str(ROOT / page), "exec", dont_inherit=True)
            exec(code, namespace)
    return namespace


@pytest.mark.jvm
def test_event_time_sample_has_one_late_row_and_no_fired_window(spark: SparkSession) -> None:
    page = run("docs/event_time.md", airflow=False)
    late = page["late_clicks"](page["some_clicks"]()).collect()
    assert [(row["country"], row["price"], row["_rw_late_by_us"]) for row in late] == [
        ("AT", 1, 13_000_000)
    ]
    windows = run("docs/event_time_windows.md", airflow=False)
    assert (
        windows["clicks_by_country"](page["some_clicks"]()).count() == 0
    )  # Their windows wait for a watermark.


@pytest.mark.jvm
def test_picture_of_gaps_and_timers_shows_the_results_of_the_operators(spark: SparkSession) -> None:
    (block,) = blocks("docs/gaps_and_timers.md", "text")
    lines = block.content.splitlines()
    zero = lines[0].index("0")
    end = len(lines[1].rstrip()) - 1 - zero
    drawn: dict[str, dict[str, list[int]]] = {}
    places = {"tuples": "o", "silences": "<", "missing": "#", "ticks": "T"}
    for line in filter(None, lines[2:]):
        label = line[:zero].strip()
        if label.startswith("key "):
            key, label = label.removeprefix("key "), "tuples"
        marks = enumerate(line[zero:])
        drawn.setdefault(key, {})[label] = [at for at, mark in marks if mark == places[label]]
    rows = []
    for key, about in drawn.items():
        rows += [(key, second, offset) for offset, second in enumerate(about["tuples"])]
    times = ["timestamp_seconds(s) AS at", "timestamp_seconds(s) AS arrived_at"]
    frame = spark.createDataFrame(rows, "key STRING, s BIGINT, offset BIGINT")
    frame = frame.selectExpr("key", "offset", *times)
    settings = HeartbeatSettings(interval=10, event_at="at", key_by=("key",))
    beats = heartbeat(frame, settings, end_us=end * 1_000_000, end_included=False).tuples
    ticks = beats.where("_rw_is_timer").selectExpr("key", "unix_seconds(at) AS at").collect()
    expected = GapSettings(
        event_at="at",
        cadence=10,
        lull=10,
        from_time=0,
        to_time=end * 1_000_000,
        keys=("key",),
        arrived_at="arrived_at",
    )
    columns = ["key", "kind", "unix_seconds(`from`) AS first", "unix_seconds(`to`) AS end"]
    gaps = gap_report(frame, expected).gaps.selectExpr(*columns).collect()
    for key, about in drawn.items():
        own = [row for row in gaps if row["key"] == key]
        silences = [row["first"] for row in own if row["kind"] == "lull"]
        missing: list[int] = []
        for row in own:
            if row["kind"] != "lull":
                missing += range(row["first"], row["end"])
        found = [
            sorted(silences),
            sorted(missing),
            sorted(r["at"] for r in ticks if r["key"] == key),
        ]
        assert found == [about["silences"], about["missing"], about["ticks"]], key


def commands(page: str) -> Iterator[list[str]]:
    """Yields the words of each command line in a page's shell blocks: without comments, several
    lines joined.
    """
    for block in blocks(page, "", "bash", "sh", "console"):
        for line in block.content.replace("\\\n", " ").splitlines():
            line = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line.strip())
            words = (
                shlex.split(line, comments=True) if line.startswith(("rewindow ", "make ")) else []
            )
            if words:
                yield words[: words.index(">")] if ">" in words else words


@pytest.mark.parametrize("page", pages_with("", "bash", "sh", "console"))
def test_commands_in_the_docs_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, words
        else:
            parse(typer.main.get_command(app), words[1:])


def parse(command: Any, words: list[str]) -> None:
    """Parses a command line down to its verb.

    Raises:
        ClickException: a verb or an option is unknown, an argument is missing, too many, or of the
            wrong type.
    """
    context = command.make_context("rewindow", list(words), resilient_parsing=False)
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, found, rest = context.command.resolve_command(context, rest)
        context = found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", pages_with("toml"))
def test_settings_in_the_docs_are_valid(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "toml")):
        content = tomllib.loads(block.content)
        for stream in content.get("streams", {}).values():
            stream.setdefault("source", "clicks.csv")
            stream.setdefault("arrived_at", "at")
        Config.model_validate(content)
        assert content, (page, number)


def test_messages_on_the_errors_page_are_real_rewindow_messages() -> None:
    (block,) = blocks("docs/errors.md", "text")
    with pytest.raises(RangeError) as caught:
        WindowRange(57_150_730, 57_150_725)
    assert block.content.rstrip() == f"error: {caught.value}"


@pytest.mark.parametrize("page", [name for name in NAMES if name != "CHANGELOG.md"])
def test_documentation_pages_are_within_the_length_limit(page: str) -> None:
    lines_max = 120 if page == "README.md" else 250
    assert len((ROOT / page).read_text().splitlines()) <= lines_max


def test_readme_starts_with_twelve_runnable_lines() -> None:
    (block,) = blocks("README.md", "bash")
    assert len(block.content.splitlines()) == 12


@pytest.mark.jvm
@pytest.mark.long
def test_readme_example_of_twelve_lines_publishes_and_recovers(tmp_path: Path) -> None:
    (block,) = blocks("README.md", "bash")
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / ".rewindow").symlink_to(ROOT / ".rewindow")
    script = f"set -e\nshopt -s expand_aliases\n{block.content}"
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
    (shown,) = blocks("README.md", "text")
    for line in shown.content.splitlines():
        # The times at the end of lines differ, and so do the widths of columns.
        words = re.sub(r" in [\d.]+ s\b.*|[\d.]+ s$", "", line).split()
        pattern = r"\s+".join(map(re.escape, words))
        assert re.search(pattern, ended.stdout), f"{line}\n\n{ended.stdout}"


def test_wrong_command_in_the_docs_is_detected() -> None:
    command = typer.main.get_command(app)
    for words in (["replai", "x"], ["replay", "x", "--modus", "y"], ["status", "a", "b"]):
        with pytest.raises(Exception, match=r"unknown|No such|unexpected"):
            parse(command, words)


def test_tests_named_by_the_guarantees_exist() -> None:
    text = (ROOT / "docs/guarantees.md").read_text()
    named = re.findall(r"`([a-z_/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 50
    for path, test in named:
        file = ROOT / "tests" / path
        assert file.is_file(), path
        assert not test or f"def {test}(" in file.read_text(), test
