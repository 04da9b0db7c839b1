"""Commands that look at replays and streams, after purges and beside others of them; from tables made by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from sqlalchemy import update

from rewindow.application import Given, GraphDescription, OperatorDescription
from rewindow.application.description import PropertyDescription
from rewindow.application.given import DEFAULT, FILE, OPTION
from rewindow.config import Config
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.models import replays
from rewindow.ledger.replays import SAMPLE
from rewindow.pages.reading import pages_folder
from rewindow.quality.findings import record_findings
from rewindow.quality.outcome import CheckOutcome, GateResult, OutputVerdict
from rewindow.storage import create_table
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.storage.streams import QUARANTINE_SCHEMA, WINDOWS_SCHEMA, create_quarantine, stream_properties
from rewindow.windows import WindowRange
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, lossy_and_full, simple
from tests.quality.staging import StagedReplay as JudgedReplay
from tests.quality.staging import ended
from tests.recovery.project import make_project

FIRST, LAST = 100, 109


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


def test_why_tells_a_window_after_a_purge(command: Command, replay: StagedReplay) -> None:
    """Facts outlive a purge, checkpoints do not."""
    assert "checkpoint at or before it" in command("why", "one", FIRST + 1)[1]
    assert command("purge", "--older-than", 0, "--yes")[0] == 0
    code, text, errors = command("why", "one", FIRST + 1)
    assert (code, errors) == (0, "")
    assert "ranks" in text and "checkpoints" in text and "purged" in text
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])
    assert (found["checkpoint"], found["purged"]) == ([], ["checkpoints"])
    assert {fact["port"] for fact in found["facts"]} == {"delays", "ranks"}


def test_json_of_why_keeps_its_names(command: Command, config: Config) -> None:
    """Programs read these names; a window that an input lacks has no columns of a seal."""
    seal_windows(config, "flights", range(FIRST, LAST))
    simple(config, "one", FIRST, LAST)
    found, last = (json.loads(command("why", "one", window, "--json")[1]) for window in (FIRST, LAST))
    assert set(found) == {
        "replay", "window", "from", "to", "state", "message", "inputs", "purged", "facts", "checkpoint", "checks",
        "quarantined", "publications", "attempts", "properties",
    }  # fmt: skip
    assert set(found["inputs"][0]) == {"stream", "state", *WINDOWS_SCHEMA.names}
    assert (found["inputs"][0]["state"], last["inputs"]) == ("empty", [{"stream": "flights", "state": "missing"}])
    assert set(found["facts"][0]) == set(FACTS_SCHEMA.names) - {"measures"}
    assert set(found["checkpoint"][0]) == {"operator", "window_id", "rows", "digest", "attempt"}
    assert found["attempts"][0]["epoch"] == 1 and found["window"] == FIRST


def test_why_shows_properties_with_where_they_came_from(
    command: Command, replay: StagedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O28: those that were set anywhere; what is left as its class has it is in the JSON only."""
    least = PropertyDescription(name="least", value=3, source=OPTION)
    label = PropertyDescription(name="label", value="x", source=DEFAULT)
    half = OperatorDescription(name="half", kind="Half", properties=[least, label])
    known = replay.plan.model_copy(update={
        "graph": GraphDescription(application="app", window="1 hour", operators=[half]),
        "given": [Given(operator="", name="checkpoint_windows", value=9, source=FILE)],
    })  # fmt: skip
    monkeypatch.setattr(Replay, "read_plan", lambda row: known)
    text = " ".join(command("why", "one", FIRST + 1)[1].split())
    assert "application checkpoint_windows 9 rewindow.toml half least 3 --set" in text and "label" not in text
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])["properties"]
    assert {"operator": "half", "name": "label", "value": "x", "source": "default"} in found


def test_window_ids_are_shown_as_they_are_typed(command: Command, config: Config) -> None:
    """Of whatever size: they are copied into the next command."""
    seal_windows(config, "flights", range(37_300, 37_305))
    simple(config, "one", 37_300, 37_304)
    for words in (("why", "one", "37302"), ("status", "one"), ("list",)):
        code, text, errors = command(*words)
        assert (code, errors) == (0, ""), errors
        assert "3730" in text and "37,30" not in text, text


def test_why_of_an_application_passes_over_replays_that_are_given_up(
    command: Command, config: Config, replay: StagedReplay
) -> None:
    """A newer replay that is abandoned, such as one of `plan --verify`, does not hide the one that counts."""
    verify = simple(config, "verify-1f2e3d4c", FIRST, LAST, checked=False)
    Ledger.open(config.ledger_url).replays.abandon("verify-1f2e3d4c", "plan --verify")
    assert "in replay one" in command("why", "app", FIRST + 1)[1]
    rmtree(verify.root)
    code, text, errors = command("why", "app", FIRST + 1)
    assert (code, errors) == (0, "") and "in replay one" in text
    code, text, errors = command("why", "verify-1f2e3d4c", FIRST + 1)
    assert (code, errors) == (0, "")
    assert "in replay verify-1f2e3d4c" in text and "facts" in text


def test_why_counts_the_quarantined_tuples_of_the_replays_own_inputs(
    command: Command, config: Config, replay: StagedReplay
) -> None:
    """Window ids of another stream may be of another grid: they say nothing of this window."""
    rows = [{"window_id": FIRST + 1, "source": source, "reason": "late"} for source in ("flights", "other", "other")]
    frame = pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)
    create_quarantine(config.quarantine_table).commit_arrow(frame, app_id="test", version=1)
    assert json.loads(command("why", "one", FIRST + 1, "--json")[1])["quarantined"] == 1


def test_why_names_checks_of_the_window_and_of_the_whole_range(
    command: Command, config: Config, replay: StagedReplay
) -> None:
    """A failed check of the whole range concerns each of its windows; one that fails in another window does not."""
    here, there = (WindowRange(window, window) for window in (FIRST + 1, FIRST + 2))
    checks = (
        CheckOutcome("everything", "t", "c", "critical", "", "failed", observed="none at all"),
        CheckOutcome("here", "t", "c", "warning", "", "failed", (here,), 1),
        CheckOutcome("there", "t", "c", "warning", "", "failed", (there,), 1),
    )
    verdict = OutputVerdict("delays", "suite", 10, checks, Path(), Path(), Path(), pa.table({}))
    record_findings(config, replay.plan, GateResult(replay.plan, datetime.now(UTC), (verdict,), Path(), {}))
    found = json.loads(command("why", "one", FIRST + 1, "--json")[1])["checks"]
    assert [(check["check"], check["windows"]) for check in found] == [
        ("everything", []),
        ("here", [[here.first, here.last]]),
    ]
    text = command("why", "one", FIRST + 1)[1]
    assert "everything" in text and "here" in text and "there" not in text


def test_a_page_that_was_drawn_outlives_a_purge(command: Command, config: Config, replay: StagedReplay) -> None:
    """With the tables gone the page that is there is the answer; without one the error says what to do."""
    assert command("purge", "--older-than", 0, "--yes")[0] == 0
    code, text, errors = command("status", "one", "--page")
    assert (code, text) == (65, "")
    assert 'page of replay "one" cannot be drawn' in errors
    assert "Purged: checkpoints, delays, ranks." in errors and "rewindow replay app --first 100 --last 109" in errors
    page = pages_folder(config) / "one.html"
    page.parent.mkdir(parents=True)
    page.write_text("drawn before")
    code, text, errors = command("status", "one", "--page")
    assert (code, Path(text.strip())) == (0, page) and page.read_text() == "drawn before"
    assert "purged" in errors
    code, text, _ = command("status", "one", "--page", "--json")
    assert (code, json.loads(text)) == (0, {"page": str(page)})


def test_gaps_of_a_published_stream_take_a_range_of_time(command: Command, config: Config) -> None:
    """A published stream is in no settings: its grid is stored with it."""
    seal_windows(config, "app.out", range(FIRST, LAST + 1))
    assert command("gaps", "app.out", "--format", "csv")[0] == 0
    code, text, errors = command(
        "gaps", "app.out", "--from", "1970-01-05T06:00Z", "--to", "1970-01-05T08:00Z", "--json"
    )
    assert (code, errors) == (0, "")
    found = json.loads(text)
    assert (found["first"], found["last"], found["windows_empty"]) == (102, 103, 2)


def test_gaps_count_times_on_the_grid_that_a_stream_was_recorded_on(command: Command, config: Config) -> None:
    """Settings that were changed after the recording do not move the range."""
    seal_windows(config, "s", range(10), width_ms=10_000)
    assert config.file is not None
    config.file.write_text('state = "state"\n[streams.s]\nsource = "s.csv"\narrived_at = "at"\nwidth = "5 s"\n')
    found = json.loads(command("gaps", "s", "--from", "1970-01-01T00:00:20Z", "--json")[1])
    assert (found["first"], found["last"]) == (2, 9)


def test_gaps_behind_the_last_seal_are_bad_input(command: Command, config: Config) -> None:
    """A range that begins after everything sealed and has no end is refused, in windows and in times."""
    seal_windows(config, "app.out", range(FIRST, LAST + 1))
    for given in (("--first", 99999999), ("--from", "2015-01-01")):
        code, _, errors = command("gaps", "app.out", *given)
        assert code == 2 and "[100, 109]" in errors, errors


def test_certify_names_what_is_missing_on_which_side(command: Command, config: Config) -> None:
    """Whichever side is named first: of each output and in all, with the replays' ids instead of letters."""
    lossy_and_full(config)
    for sides in (("LOSSY", "FULL"), ("FULL", "LOSSY")):
        code, text, errors = command("certify", *sides)
        assert (code, errors) == (1, ""), errors
        assert "ranks: 3 tuples of FULL are missing in LOSSY; 0 are only in LOSSY" in text
        assert "in all: 7 tuples of FULL are missing in LOSSY; 0 are only in LOSSY" in text
        assert f"a is {sides[0]}, b is {sides[1]}" in text and "None" not in text


@pytest.mark.parametrize("verb", ["plan", "replay"])
def test_unpublished_is_a_range_like_another(
    verb: str, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given beside another range it is refused; when all is published, there is nothing to do, which is no error."""
    config = make_project(tmp_path).config
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    code, _, errors = run(verb, "totals", "--unpublished", "--first", "1000")
    assert (code, "given twice" in errors) == (2, True)
    monkeypatch.setattr("rewindow.commands.plan.unpublished_windows", lambda *_: None)
    code, text, _ = run(verb, "totals", "--unpublished")
    assert (code, text) == (0, "nothing to replay: all that the inputs of totals have sealed is published\n")
    assert json.loads(run(verb, "totals", "--unpublished", "--json")[1])["windows"] == 0


def test_plan_shows_the_unpublished_range(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first publication it is all that is sealed."""
    monkeypatch.setenv("REWINDOW_CONFIG", str(make_project(tmp_path).config.file))
    planned = json.loads(run("plan", "totals", "--unpublished", "--json")[1])
    assert (planned["first"], planned["windows"]) == (1000, 24)


def test_list_shows_what_a_replay_computes_and_since_when_it_is_in_its_state(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Application and range, as times and as windows; a purged plan of a rebuilt ledger has no times."""
    project = make_project(tmp_path)
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    project.plan("one", "exactly_once", first=1008, last=1010, initial_state=True)
    [listed] = json.loads(run("list", "--json")[1])
    assert (listed["application"], listed["from"], listed["to"]) == (
        "totals", "1970-02-12T00:00:00Z", "1970-02-12T03:00:00Z"
    )  # fmt: skip
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


def test_samples_of_verify_are_listed_only_where_they_are_asked_for(config: Config, command: Command) -> None:
    """There is nothing to look after; they count in no other way either."""
    simple(config, "one", FIRST, LAST)
    simple(config, "sample", FIRST, LAST)
    Ledger.open(config.ledger_url).replays.abandon("sample", SAMPLE)
    assert [row["replay"] for row in json.loads(command("list", "--json")[1])] == ["one"]
    assert [row["replay"] for row in json.loads(command("list", "--state", "abandoned", "--json")[1])] == ["sample"]


def test_check_tries_the_strength_of_a_suite(command: Command, config: Config, tmp_path: Path) -> None:
    """It lists what passes unnoticed and ends with the gate's exit code; an output goes with --strength only."""
    staged = JudgedReplay(tmp_path, windows=WindowRange(100, 139))
    ended(staged)
    code, text, errors = command("check", staged.replay_id, "made", "--strength")
    assert (code, "pass unnoticed" in text, "seed 1" in text) == (65, True, True), errors
    assert "planted damages would pass unnoticed" in errors
    code, text, _ = command("check", staged.replay_id, "made", "--strength", "--seed", 7, "--json")
    (found,) = json.loads(text)
    assert (code, found["output"], found["seed"], found["planted"]) == (65, "made", 7, len(found["damages"]))
    code, _, errors = command("check", staged.replay_id, "made")
    assert (code, "--strength" in errors) == (2, True)
