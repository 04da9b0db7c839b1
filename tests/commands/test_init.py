"""`rewindow init`: what it writes is a project that all verbs can read, and nothing that is there
is touched.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rewindow.loading.catalog import application_names, load_application
from rewindow.loading.suites import read_suite
from rewindow.settings.config import Config
from rewindow.storage import query
from tests.commands.conftest import Command

CLICKS = "id,clicked_at,page,amount,Room Name\n" + "".join(
    f"{n},2026-03-01T10:{n // 60:02}:{n % 60:02}Z,{'ab'[n % 2]},{n}.50,x\n" for n in range(300)
)
EVENTS = "".join(
    json.dumps(
        {
            "ts": 1772359200000 + 1000 * n,
            "user": f"u{n % 5}",
            "Paid": 7 * n,
            "event": {"type": "view", "n": n},
        }
    )
    + "\n"
    for n in range(200)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REWINDOW_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "arrived_at", "keys", "select"),
    [
        ("Web Clicks.csv", CLICKS, "clicked_at", ["page"], {"room_name": "`Room Name`"}),
        (
            "clicks.tsv",
            CLICKS.replace(",", "\t"),
            "clicked_at",
            ["page"],
            {"room_name": "`Room Name`"},
        ),
        ("events.jsonl", EVENTS, "timestamp_millis(ts)", ["user"], {"ts": "timestamp_millis(ts)"}),
        ("empty.csv", "meter,read_at\n", "read_at", [], {}),
    ],
)
def test_init_creates_a_consistent_project_from_a_file(
    run: Command,
    folder: Path,
    name: str,
    text: str,
    arrived_at: str,
    keys: list[str],
    select: dict[str, str],
) -> None:
    (folder / name).write_text(text)
    code, output, errors = run("init", name, "--yes")
    assert (code, errors) == (0, "")
    config = Config.load()
    [(stream, settings)] = config.streams.items()
    assert (settings.arrived_at, settings.keys, settings.select) == (arrived_at, keys, select)
    assert (
        f"rewindow record {stream} --end" in output
        and f"rewindow replay count_{stream} --id first" in output
    )
    assert f"count_{stream}" in application_names(config)
    app = load_application(config, f"count_{stream}").app
    assert app.grid.width_us == settings.width_us
    assert app.outputs["counts"].key == tuple(keys)
    suite = read_suite(config.expectations, app.outputs["counts"].suite or "")
    assert {entry["meta"]["check"] for entry in suite.expectations} == {
        "every-tuple-counted",
        "rows-as-recorded",
    }


@pytest.mark.parametrize("there", ["rewindow.toml", "applications/count_clicks.py"])
def test_init_writes_nothing_if_it_would_overwrite_a_file(
    run: Command,
    folder: Path,
    there: str,
) -> None:
    (folder / "clicks.csv").write_text(CLICKS)
    (folder / there).parent.mkdir(exist_ok=True)
    (folder / there).write_text("mine")
    before = sorted(folder.rglob("*"))
    code, _, errors = run("init", "clicks.csv", "--yes")
    assert code == 2 and "already exists" in errors and "Nothing was written." in errors
    assert (folder / there).read_text() == "mine" and sorted(folder.rglob("*")) == before


def test_init_without_a_terminal_requires_the_yes_option(run: Command, folder: Path) -> None:
    (folder / "clicks.csv").write_text(CLICKS)
    code, _, errors = run("init", "clicks.csv")
    assert code == 2 and "rewindow init clicks.csv --yes" in errors
    assert list(folder.iterdir()) == [folder / "clicks.csv"]


def test_init_writes_its_files_even_if_its_output_pipe_is_closed(
    folder: Path,
) -> None:
    (folder / "clicks.csv").write_text(CLICKS)
    code = "import os, sys; os.dup2(os.open(os.devnull, os.O_RDONLY), 1); "
    code += (
        "from rewindow.cli import main; sys.argv = ['rewindow', 'init', 'clicks.csv', '--yes']; "
    )
    code += "main()"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=False, capture_output=True)
    assert (folder / "rewindow.toml").exists()


def test_init_reads_answers_without_a_terminal(run: Command, folder: Path) -> None:
    lines = EVENTS.splitlines()
    rows = [json.loads(line) for line in lines]
    for n, row in enumerate(rows):
        row["device"] = {"id": f"d{n % 3}", "zone": "x" if n % 50 else None}
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for wrong, words in (
        ("arrival=ts", "Names: name, arrived_at"),
        ("key", "not in the form NAME=VALUE"),
        ("arrived_at=tss", 'Did you mean "ts"'),
    ):
        code, _, errors = run("init", "events.jsonl", "--set", wrong)
        assert code == 2 and words in errors, errors
        assert list(folder.iterdir()) == [folder / "events.jsonl"]
    answers = ("name=views", "arrived_at=ts", "key=device.zone", "width=1 minute", "interval=2 h")
    given = [part for answer in answers for part in ("--set", answer)]
    code, _, errors = run("init", "events.jsonl", *given)
    assert (code, errors) == (0, "")
    settings = Config.load().streams["views"]
    assert (settings.keys, settings.width_us) == (["device_zone"], 60_000_000)
    assert settings.interval_us == 7_200_000_000
    assert settings.select == {
        "ts": "timestamp_millis(ts)",
        "device_zone": "coalesce(device.zone, 'none')",
    }


def test_init_writes_answers_to_the_settings_and_asks_again_after_invalid_answers(
    run: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "clicks.csv").write_text(CLICKS)
    answers = iter(
        [
            "visits",
            "page",
            "clicked_at",
            "at",
            "clicked_at",
            "pages",
            "amount",
            "none",
            "20 seconds",
        ]
    )
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    code, _, errors = run("init", "clicks.csv")
    assert code == 0
    assert (
        'column "page" is not a time: STRING, text\n  Hint: Columns with times: clicked_at.'
        in errors
    )
    assert 'column "at" is not in the source\n  Hint: Columns with times: clicked_at.' in errors
    assert (
        'column "pages" is not in the source\n  Hint: Did you mean "page"? Columns that can be the '
        "key: id, page" in errors
    )
    assert (
        'column "amount" cannot be the key: its type is DECIMAL(18,2), and a key is text or a '
        "whole number" in errors
    )
    settings = Config.load().streams["visits"]
    assert (settings.keys, settings.width_us) == ([], 20_000_000)


def test_init_warns_when_environment_variable_names_another_project(
    run: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "clicks.csv").write_text(CLICKS)
    monkeypatch.setenv("REWINDOW_CONFIG", "/elsewhere/rewindow.toml")
    code, _, errors = run("init", "clicks.csv", "--yes")
    assert code == 2 and "unset REWINDOW_CONFIG" in errors


@pytest.mark.long
@pytest.mark.jvm
def test_commands_printed_by_init_can_be_executed(run: Command, folder: Path) -> None:
    (folder / "events.jsonl").write_text(EVENTS)
    output = run("init", "events.jsonl", "--yes")[1]
    steps = [line.split("#")[0] for line in output.splitlines() if line.startswith("    rewindow")]
    commands = [command.split() for step in steps for command in step.split("&&")]
    assert [command[1] for command in commands] == ["record", "replay", "check", "publish"]
    for command in commands:
        code, _, errors = run(*command[1:])
        assert code == 0, errors
    assert run("certify", "published", "first")[0] == 0
    code, output, errors = run("check", "first", "--strength")
    assert code == 0 and "0 are not detected" in output, errors
    config = Config.load()
    counts = query("select sum(tuples) as n from c", c=config.stream_table("count_events.counts"))
    assert counts["n"].to_pylist() == [200]
