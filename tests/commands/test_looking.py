"""Commands that look at replays and streams, after purges and beside others of them; from tables
made by hand.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from sqlalchemy import update

from rewindow.application import GraphDescription, OperatorDescription, PropertyOverride
from rewindow.application.description import PropertyDescription
from rewindow.application.overrides import DEFAULT, FILE, OPTION
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.models import replays
from rewindow.ledger.replays import SAMPLE
from rewindow.pages.report_data import pages_folder
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.quality.findings import record_findings
from rewindow.quality.outcome import CheckOutcome, GateResult, OutputVerdict
from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.storage.streams import (
    QUARANTINE_SCHEMA,
    WINDOWS_SCHEMA,
    create_quarantine,
    stream_properties,
)
from rewindow.windows import WindowRange
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, lossy_and_full, simple
from tests.quality.staging import StagedReplay as JudgedReplay
from tests.quality.staging import ended
from tests.recovery.project import make_project

FIRST = 100
LAST = 109


@pytest.fixture
def replay(config: Config) -> StagedReplay:
    """An ended, checked replay `one` of the application `app`, and its input's sealed windows."""
    seal_windows(config, "flights", range(FIRST, LAST + 1))
    return simple(config, "one", FIRST, LAST)


def seal_windows(config: Config, stream: str, windows: range, width_ms: int = 3_600_000) -> None:
    """Seals windows of a stream, all empty."""
    properties = stream_properties({"width_ms": width_ms, "origin_ms": 0})
    table = create_table(config.windows_table(stream), WINDOWS_SCHEMA, properties)
    rows = [{"window_id": window, "tuples": 0} for window in windows]
    table.commit_arrow(pa.Table.from_pylist(rows, schema=WINDOWS_SCHEMA), app_id="test", version=1)


def test_why_command_explains_a_window_after_a_purge(
    command: Command, replay: StagedReplay
) -> None:
    assert "checkpoint at or before this window" in command("why", "one", FIRST + 1)[1]
    assert command("purge", "--older-than", 0, "--yes")[0] == 0
    code, text, errors = command("why", "one", FIRST + 1)
    assert (code, errors) == (0, "")
    assert "ranks" in text and "checkpoints" in text and "purged" in text
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])
    assert (found["checkpoint"], found["purged"]) == ([], ["checkpoints"])
    assert {fact["port"] for fact in found["facts"]} == {"delays", "ranks"}


def test_why_command_has_stable_json_keys(command: Command, config: Config) -> None:
    # Programs read these keys; a window that an input lacks has no seal columns.
    seal_windows(config, "flights", range(FIRST, LAST))
    simple(config, "one", FIRST, LAST)
    found, last = (
        json.loads(command("why", "one", window, "--json")[1]) for window in (FIRST, LAST)
    )
    assert set(found) == {
        "replay",
        "window",
        "from",
        "to",
        "state",
        "message",
        "inputs",
        "purged",
        "facts",
        "checkpoint",
        "checks",
        "quarantined",
        "publications",
        "attempts",
        "properties",
        "visible",
        "others",
    }
    assert set(found["inputs"][0]) == {"stream", "state", *WINDOWS_SCHEMA.names}
    assert (found["inputs"][0]["state"], last["inputs"]) == (
        "empty",
        [{"stream": "flights", "state": "missing"}],
    )
    assert set(found["facts"][0]) == set(FACTS_SCHEMA.names) - {"measures"}
    assert set(found["checkpoint"][0]) == {"operator", "window_id", "rows", "digest", "attempt"}
    assert found["attempts"][0]["epoch"] == 1 and found["window"] == FIRST


def test_why_command_shows_overridden_properties_with_their_source(
    command: Command,
    replay: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O28
    least = PropertyDescription(name="least", value=3, source=OPTION)
    label = PropertyDescription(name="label", value="x", source=DEFAULT)
    half = OperatorDescription(name="half", kind="Half", properties=[least, label])
    known = replay.plan.model_copy(
        update={
            "graph": GraphDescription(application="app", window="1 hour", operators=[half]),
            "given": [
                PropertyOverride(operator="", name="checkpoint_windows", value=9, source=FILE)
            ],
        }
    )
    monkeypatch.setattr(Replay, "read_plan", lambda row: known)
    text = " ".join(command("why", "one", FIRST + 1)[1].split())
    assert (
        "application checkpoint_windows 9 rewindow.toml half least 3 --set" in text
        and "label" not in text
    )
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])["properties"]
    assert {"operator": "half", "name": "label", "value": "x", "source": "default"} in found


def test_window_ids_are_shown_in_the_format_accepted_as_input(
    command: Command, config: Config
) -> None:
    # Users copy them into the next command, so they have no thousands separators.
    seal_windows(config, "flights", range(37_300, 37_305))
    simple(config, "one", 37_300, 37_304)
    for words in (("why", "one", "37302"), ("status", "one"), ("list",)):
        code, text, errors = command(*words)
        assert (code, errors) == (0, ""), errors
        assert "3730" in text and "37,30" not in text, text


def test_why_command_for_an_application_ignores_abandoned_replays(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    verify = simple(config, "verify-1f2e3d4c", FIRST, LAST, checked=False)
    Ledger.open(config.ledger_url).replays.abandon("verify-1f2e3d4c", "plan --verify")
    assert "in replay one" in command("why", "app", FIRST + 1)[1]
    rmtree(verify.root)
    code, text, errors = command("why", "app", FIRST + 1)
    assert (code, errors) == (0, "") and "in replay one" in text
    code, text, errors = command("why", "verify-1f2e3d4c", FIRST + 1)
    assert (code, errors) == (0, "")
    assert "in replay verify-1f2e3d4c" in text and "facts" in text


def test_why_command_shows_the_visible_replay_and_lists_other_replays(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    simple(config, "first", FIRST, LAST, publishable=True)
    publish(config, "first")
    simple(config, "two", FIRST, LAST)
    code, text, errors = command("why", "app", FIRST + 1)
    assert (code, errors) == (0, "") and "in replay first, published" in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("two")] == [
        ["two", "checked"]
    ]
    found = json.loads(command("why", "app", FIRST + 1, "--json")[1])
    assert (found["replay"], found["visible"]) == ("first", "first")
    assert [(other["replay"], other["state"]) for other in found["others"]] == [
        ("two", "checked"),
        ("one", "checked"),
    ]
    assert (
        "readers see the output of replay first in this window"
        in command("why", "two", FIRST + 1)[1]
    )
    undo(config, "first")
    code, text, errors = command("why", "app", FIRST + 1)
    assert "in replay two" in text and "no replay of it is published" in text


def test_why_command_counts_only_quarantined_tuples_of_the_replay_inputs(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    rows = [
        {"window_id": FIRST + 1, "source": source, "reason": "late"}
        for source in ("flights", "other", "other")
    ]
    frame = pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)
    create_quarantine(config.quarantine_table).commit_arrow(frame, app_id="test", version=1)
    assert json.loads(command("why", "one", FIRST + 1, "--json")[1])["quarantined"] == 1


def test_why_command_lists_failed_checks_of_the_window_and_of_the_whole_range(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    here, there = (WindowRange(window, window) for window in (FIRST + 1, FIRST + 2))
    checks = (
        CheckOutcome("everything", "t", "c", "critical", "", "failed", observed="none at all"),
        CheckOutcome("here", "t", "c", "warning", "", "failed", (here,), 1),
        CheckOutcome("there", "t", "c", "warning", "", "failed", (there,), 1),
    )
    verdict = OutputVerdict("delays", "suite", 10, checks, Path(), Path(), Path(), pa.table({}))
    record_findings(
        config,
        replay.plan,
        GateResult(replay.plan, datetime.now(UTC), (verdict,), Path(), {}),
    )
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])["checks"]
    assert [(check["check"], check["windows"]) for check in found] == [
        ("everything", []),
        ("here", [[here.first, here.last]]),
    ]
    text = command("why", "one", FIRST + 1)[1]
    assert "everything" in text and "here" in text and "there" not in text


def test_existing_page_is_returned_after_a_purge(
    command: Command,
    config: Config,
    replay: StagedReplay,
) -> None:
    assert command("purge", "--older-than", 0, "--yes")[0] == 0
    code, text, errors = command("status", "one", "--page")
    assert (code, text) == (65, "")
    assert 'page of replay "one" cannot be drawn' in errors
    assert (
        "Purged: checkpoints, delays, ranks." in errors
        and "rewindow replay app --first 100 --last 109" in errors
    )
    page = pages_folder(config) / "one.html"
    page.parent.mkdir(parents=True)
    page.write_text("drawn before")
    code, text, errors = command("status", "one", "--page")
    assert (code, Path(text.strip())) == (0, page) and page.read_text() == "drawn before"
    assert "purged" in errors
    code, text, _ = command("status", "one", "--page", "--json")
    assert (code, json.loads(text)) == (0, {"page": str(page)})


def test_gaps_command_accepts_a_time_range_for_a_published_stream(
    command: Command, config: Config
) -> None:
    # The settings do not list a published stream; its grid is stored with it.
    seal_windows(config, "app.out", range(FIRST, LAST + 1))
    assert command("gaps", "app.out", "--format", "csv")[0] == 0
    code, text, errors = command(
        "gaps",
        "app.out",
        "--from",
        "1970-01-05T06:00Z",
        "--to",
        "1970-01-05T08:00Z",
        "--json",
    )
    assert (code, errors) == (0, "")
    found = json.loads(text)
    assert (found["first"], found["last"], found["windows_empty"]) == (102, 103, 2)


def test_window_width_changed_since_the_recording_is_rejected_by_every_command(
    command: Command,
    config: Config,
) -> None:
    seal_windows(config, "s", range(10), width_ms=10_000)
    assert config.file is not None
    config.file.write_text(
        'state = "state"\n[streams.s]\nsource = "s.csv"\narrived_at = "at"\nwidth = "5 s"\n'
    )
    for words in (("gaps", "s"), ("play", "s"), ("record", "s")):
        code, text, errors = command(*words)
        assert (code, text) == (2, "")
        assert 'width of stream "s" is 5 s, but it was recorded with 10 s' in errors
        assert 'Restore width = "10 s" in rewindow.toml' in " ".join(errors.split())


def test_gaps_command_rejects_a_range_after_the_last_seal(command: Command, config: Config) -> None:
    seal_windows(config, "app.out", range(FIRST, LAST + 1))
    for given in (("--first", 99999999), ("--from", "2015-01-01")):
        code, _, errors = command("gaps", "app.out", *given)
        assert code == 2 and "[100, 109]" in errors, errors


def test_certify_reports_missing_tuples_per_replay_in_either_argument_order(
    command: Command,
    config: Config,
) -> None:
    lossy_and_full(config)
    for sides in (("LOSSY", "FULL"), ("FULL", "LOSSY")):
        code, text, errors = command("certify", *sides)
        assert (code, errors) == (1, ""), errors
        assert "ranks: 3 tuples of FULL are missing in LOSSY; 0 are only in LOSSY" in text
        assert "in total: 7 tuples of FULL are missing in LOSSY; 0 are only in LOSSY" in text
        assert f"a is {sides[0]}, b is {sides[1]}" in text and "None" not in text


@pytest.mark.parametrize("verb", ["plan", "replay"])
def test_unpublished_option_rejects_other_ranges_and_succeeds_if_none_are_left(
    verb: str,
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_project(tmp_path).config
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    code, _, errors = run(verb, "totals", "--unpublished", "--first", "1000")
    assert (code, "--unpublished cannot be combined with" in errors) == (2, True)
    monkeypatch.setattr("rewindow.commands.replay_options.unpublished", lambda *_, **__: None)
    code, text, _ = run(verb, "totals", "--unpublished")
    assert (code, text) == (
        0,
        "nothing to replay: all sealed windows of the inputs of totals are published\n",
    )
    assert json.loads(run(verb, "totals", "--unpublished", "--json")[1])["windows"] == 0


def test_plan_contains_the_options_of_the_command_line(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_CONFIG", str(make_project(tmp_path).config.file))
    values = ["--mode", "at_least_once", "--group-windows", "2", "--checkpoint-windows", "5"]
    flags = ["--allow-missing", "--initial-state", "--allow-other-code", "--allow-affected"]
    words = [*values, *flags, "--no-verify-inputs"]
    code, text, errors = run("plan", "totals", *words, "--json")
    planned = json.loads(text)
    assert planned["options"] == words, (code, errors)


def test_plan_shows_the_unpublished_range(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_CONFIG", str(make_project(tmp_path).config.file))
    planned = json.loads(run("plan", "totals", "--unpublished", "--json")[1])
    assert (planned["first"], planned["windows"]) == (1000, 24)


def test_plan_shows_the_guarantee_of_each_target(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X54
    config = make_project(tmp_path).config
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    (tmp_path / "hook.py").write_text(
        "from rewindow.delivery import Target\nclass Hook(Target):\n    pass\n"
    )
    with config.file.open("a") as settings:
        settings.write('[targets.hook]\nformat = "python"\nsource = "hook.py:Hook"\n')
        settings.write('outputs = ["totals.sums", "other.sums"]\n[targets.files]\n')
        settings.write('format = "csv"\nfolder = "files"\noutputs = ["totals.sums"]\n')
    text = " ".join(run("plan", "totals")[1].split())
    promise = "totals.sums: rewindow deliver stores each published window"
    assert f"{promise} at least once at target hook" in text
    assert f"{promise} exactly once at target files" in text
    planned = json.loads(run("plan", "totals", "--json")[1])
    assert planned["deliveries"] == [
        {"output": "totals.sums", "target": "hook", "promise": "at least once"},
        {"output": "totals.sums", "target": "files", "promise": "exactly once"},
    ]


def test_list_command_shows_application_range_and_last_state_change(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = make_project(tmp_path)
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    project.plan("one", "exactly_once", first=1008, last=1010, initial_state=True)
    [listed] = json.loads(run("list", "--json")[1])
    assert (listed["application"], listed["from"], listed["to"]) == (
        "totals",
        "1970-02-12T00:00:00Z",
        "1970-02-12T03:00:00Z",
    )
    head, row = run("list")[1].splitlines()
    assert head.split() == [
        "replay",
        "application",
        "from",
        "to",
        "windows",
        "mode",
        "state",
        "done",
        "lost",
        "attempts",
        "planned",
        "since",
    ]
    assert row.split()[:6] == ["one", "totals", "1970-02-12", "1970-02-12", "03:00", "[1008,"]
    with Ledger.open(project.config.ledger_url).replays.serialised() as connection:
        connection.execute(update(replays).values(plan={}))
    assert json.loads(run("list", "--json")[1])[0]["from"] is None
    assert run("list")[0] == 0


def test_list_command_shows_verify_samples_only_on_request(
    config: Config, command: Command
) -> None:
    simple(config, "one", FIRST, LAST)
    simple(config, "sample", FIRST, LAST)
    Ledger.open(config.ledger_url).replays.abandon("sample", SAMPLE)
    assert [row["replay"] for row in json.loads(command("list", "--json")[1])] == ["one"]
    assert [
        row["replay"] for row in json.loads(command("list", "--state", "abandoned", "--json")[1])
    ] == ["sample"]


def test_check_strength_lists_undetected_corruptions_and_sets_the_gate_exit_code(
    command: Command,
    config: Config,
    tmp_path: Path,
) -> None:
    staged = JudgedReplay(tmp_path, windows=WindowRange(100, 139))
    ended(staged)
    code, text, errors = command("check", staged.replay_id, "made", "--strength")
    assert (code, "are not detected" in text, "seed 1" in text) == (65, True, True), errors
    assert "planted damages are not detected by the suites" in errors
    code, text, _ = command("check", staged.replay_id, "made", "--strength", "--seed", 7, "--json")
    (found,) = json.loads(text)
    assert (code, found["output"], found["seed"], found["planted"]) == (
        65,
        "made",
        7,
        len(found["damages"]),
    )
    code, _, errors = command("check", staged.replay_id, "made")
    assert (code, "--strength" in errors) == (2, True)
