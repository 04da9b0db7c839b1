"""What status, list, certify, undo and check say once replays were published, covered and taken
back. No JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from rewindow.ledger import Ledger, ReplayState
from rewindow.pages.drawing import draw
from rewindow.pages.page import _acts
from rewindow.pages.report_data import read_acts, read_report
from rewindow.processes.identity import pid_place, process_identity
from rewindow.publication.publish import publish as begin
from rewindow.publication.steps import PublishStep
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange
from tests.commands.conftest import Command
from tests.publication.staging import simple, stage_lossy


@pytest.fixture
def replays(config: Config, command: Command) -> None:
    """`first` of 100 to 109 is published, then `second` over all of it and `part` over some
    windows.
    """
    for name, windows in {"first": (100, 109), "second": (100, 109), "part": (105, 107)}.items():
        simple(config, name, *windows, publishable=True)


def publish(command: Command, *names: str) -> None:
    for name in names:
        code, _, errors = command("publish", name, "--accept", "all were planned beforehand")
        assert code == 0, errors


@pytest.mark.usefixtures("replays")
def test_publish_dry_run_shows_the_effect_and_changes_nothing(
    config: Config,
    command: Command,
) -> None:
    code, text, errors = command("publish", "first", "--dry-run")
    assert code == 0, errors
    assert (
        "first would be published: 10 windows [100, 109] (1970-01-05T04:00:00Z to" in text
        and "app.ranks" in text
        and "links" in text
    )
    assert Ledger.open(config.ledger_url).publications.newest() == []
    told = json.loads(command("publish", "first", "--dry-run", "--json")[1])["expected"]
    assert [table["table"] for table in told["tables"]] == ["app.delays", "app.ranks"] and told[
        "seconds"
    ] > 0
    publish(command, "first")
    assert (
        "already published, as publication 1: nothing to do"
        in command("publish", "first", "--dry-run")[1]
    )
    assert command("publish", "first", "--dry-run", "--withdraw")[0] != 0


@pytest.mark.usefixtures("replays")
def test_undo_dry_run_shows_the_effect_and_changes_nothing(
    config: Config,
    command: Command,
) -> None:
    publish(command, "first", "part")
    code, text, errors = command("undo", "part", "--dry-run")
    assert code == 0, errors
    times = "(1970-01-05T09:00:00Z to 1970-01-05T12:00:00Z)"
    assert f"part would be undone: 3 windows [105, 107] {times}, about" in text
    assert "app.ranks" in text
    assert f"windows [105, 107] {times} would show the rows that replay first published" in text
    assert len(Ledger.open(config.ledger_url).publications.newest()) == 2
    told = json.loads(command("undo", "part", "--dry-run", "--json")[1])["expected"]
    assert (told["kind"], told["shows"]) == (
        "undo",
        [{"first": 105, "last": 107, "replay": "first"}],
    )
    assert {table["table"]: table["rows"] for table in told["tables"]} == {
        "app.delays": 6,
        "app.ranks": 6,
    }
    assert command("undo", "part")[0] == 0
    assert (
        "already undone, as publication 3: nothing to do" in command("undo", "part", "--dry-run")[1]
    )


@pytest.mark.usefixtures("replays")
def test_replay_is_shown_as_covered_until_the_later_publication_is_undone(
    config: Config,
    command: Command,
) -> None:
    publish(command, "first", "part")
    assert "published, partly covered by part" in command("status", "first")[1]
    publish(command, "second")
    text = command("status", "first")[1]
    assert (
        "published, covered by second, part" in text
        and "undo the newest publication first: rewindow undo second" in text
    )
    text = command("list")[1]
    assert (
        "published, covered  " in text
        and "first is covered by second, part, published later" in text
    )
    assert read_report(config, "first").state == "published, covered by second, part"
    assert json.loads(command("status", "first", "--json")[1])["covered_by"] == ["second", "part"]
    listed = {entry["replay"]: entry for entry in json.loads(command("list", "--json")[1])}
    assert [listed[name]["covered_by"] for name in ("first", "part", "second")] == [
        ["second", "part"],
        ["second"],
        [],
    ]
    for name in ("second", "part"):
        assert command("undo", name)[0] == 0
    assert json.loads(command("status", "first", "--json")[1])["covered_by"] == []
    assert "To undo the publication: rewindow undo first" in command("status", "first")[1]


@pytest.mark.usefixtures("replays")
def test_diff_against_published_is_an_error_with_a_hint_when_nothing_is_published(
    command: Command,
) -> None:
    errors = command("certify", "published", "first")[2]
    assert (
        'application "app" is not published' in errors
        and "such as: rewindow publish first" in errors
    )
    publish(command, "part")
    code, text, errors = command("certify", "published", "first", "--first", 100, "--last", 102)
    assert (code, text) == (2, "")
    assert errors == (
        'error: application "app" has no published windows in [100, 102]\n'
        "  Hint: Publish a replay of this range, such as: rewindow publish first\n"
    )
    assert command("undo", "part")[0] == 0
    code, text, errors = command("certify", "part", "published")
    assert (code, text) == (2, "")
    assert (
        'Detail: The undo of replay "part" took publication 1 back, as publication 2, 20' in errors
    )
    assert "rewindow publish part" in errors


@pytest.mark.usefixtures("replays")
def test_second_undo_reports_the_earlier_undo(command: Command) -> None:
    publish(command, "first")
    assert "already published, as publication 1; to undo" in command("publish", "first")[1]
    assert command("undo", "first")[1].startswith(
        "undone. To publish it again: rewindow publish first"
    )
    assert "already undone, as publication 2." in command("undo", "first")[1]


@pytest.mark.usefixtures("replays")
def test_finished_replay_cannot_be_restarted_with_the_same_id(command: Command) -> None:
    code, text, errors = command("replay", "app", "--id", "first")
    assert (
        code == 0
        and "it was computed before and is checked: nothing is left to do; for a new one use "
        "another"
        in errors
    )
    assert "replay first is checked. Next: rewindow publish first" in text
    code, text, errors = command("replay", "app", "--id", "first", "--mode", "at_least_once")
    assert (code, text) == (
        2,
        "",
    ) and "It is checked (rewindow status first). Use another --id for the new replay" in errors
    assert "rewindow replay --resume REPLAY" in command("replay")[2]


def test_check_rejects_an_unfinished_replay_and_names_the_next_step(
    config: Config,
    command: Command,
) -> None:
    simple(config, "other", 100, 109, ledger=False)
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create("one", "app", 100, 109, "exactly_once", {}, "code-1")
    errors = command("check", "one")[2]
    assert (
        'replay "one" is planned: it has not finished' in errors
        and "rewindow replay --resume one" in errors
    )
    epoch = ledger.attempts.next_epoch("one")
    ledger.attempts.begin("one", epoch, host="h", pid=1, process_group=1, process_identity="boot/0")
    assert (
        "if its process has ended, continue: rewindow replay --resume one"
        in command("check", "one")[2]
    )
    ledger.attempts.end("one", epoch, "failed", "no luck")
    assert "Hint: Resume it: rewindow replay --resume one" in command("check", "one")[2]
    ledger.replays.abandon("one", "no use")
    errors = command("check", "one")[2]
    assert "Replay its range again: rewindow replay app --first 100 --last 109" in errors
    assert "not finished" not in errors


@pytest.mark.usefixtures("replays")
@pytest.mark.parametrize(
    "words",
    [
        ("certify", "published", "firstt"), ("certify", "firstt", "second"), ("undo", "firstt"),
        ("publish", "firstt"),
        ("check", "firstt"), ("abandon", "firstt"), ("status", "firstt"),
        ("status", "firstt", "--page"),
        ("errors", "firstt"), ("replay", "--resume", "firstt"), ("publish", "firstt", "--withdraw"),
        ("check", "firstt", "--strength"), ("why", "firstt", "100"),
    ],
)  # fmt: skip
def test_every_command_suggests_the_closest_id_for_an_unknown_replay(
    command: Command,
    words: tuple[str],
) -> None:
    code, _, errors = command(*words)
    assert code == 2 and "firstt" in errors and 'Did you mean "first"?' in errors


def test_attempt_without_a_process_is_distinguished_from_a_running_attempt(
    config: Config,
    command: Command,
) -> None:
    # No end is recorded, so the process is looked up on the host that it ran on.
    replay = simple(config, "other", 100, 109, ledger=False)
    ledger = Ledger.open(config.ledger_url)
    plan = replay.plan.model_copy(update={"replay_id": "one"})
    ledger.replays.create(
        "one",
        "app",
        100,
        109,
        plan.mode.name,
        plan.model_dump(mode="json"),
        "code-1",
    )
    epoch = ledger.attempts.next_epoch("one")
    here = socket.gethostname()
    group = os.getpgid(0)
    ledger.attempts.begin(
        "one",
        epoch,
        host=here,
        pid=1,
        process_group=group,
        process_identity=process_identity(group),
    )
    text = command("status", "one")[1]
    assert "It is running" in text and "no outcome" not in text
    assert "its process" not in command("list")[1]
    ledger.attempts.next_epoch("one")
    ledger.attempts.begin(
        "one",
        2,
        host=here,
        pid=1,
        process_group=2**22 + 1,
        process_identity=f"{pid_place()}/1",
    )
    text = command("status", "one")[1]
    assert (
        "why it stopped" in text
        and "the attempt's process has ended, and no outcome was recorded" in text
        and "It runs" not in text
    )
    assert ledger.replays.get("one").state is ReplayState.RUNNING
    text = command("list")[1]
    assert "running, but its process is gone" in text and "Next: rewindow status one" in text
    assert [
        row["has_stopped"]
        for row in json.loads(command("list", "--json")[1])
        if row["replay"] == "one"
    ] == [True]
    text = command("status", "one")[1]
    assert (
        "app, running, but its process is gone" in text and text.count("its process is gone") == 2
    )
    words = plan.mode.name, replay.plan.model_dump(mode="json"), "code-1"
    ledger.replays.create("other", "app", 100, 109, *words)
    ledger.attempts.begin(
        "other",
        ledger.attempts.next_epoch("other"),
        host=here,
        pid=1,
        process_group=2**22 + 1,
        process_identity=f"{pid_place()}/1",
    )
    assert read_report(config, "other").state == "running, but its process is gone"
    found = json.loads(command("list", "--state", "failed", "--json")[1])
    assert {row["replay"] for row in found} == {"one", "other"}
    [newest] = json.loads(command("list", "--state", "failed", "--limit", "1", "--json")[1])
    assert newest["replay"] == "other"


@pytest.mark.usefixtures("replays")
def test_unfinished_abandoned_and_undone_actions_are_listed_with_their_outcome(
    config: Config,
    command: Command,
) -> None:
    def dies(step: str, number: int) -> None:
        if step == PublishStep.TABLE_COMMITTED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(config, "first", crash=dies)
    text = command("status", "first")[1]
    assert (
        "started, not finished" in text and "withdraw it: rewindow publish first --withdraw" in text
    )
    assert command("publish", "first", "--withdraw")[0] == 0
    assert "Next: rewindow publish first" in command("status", "first")[1]
    publish(command, "first")
    code, text, _ = command("undo", "first")
    assert code == 0 and "can be undone for" not in text
    found = json.loads(command("status", "first", "--json")[1])["publications"]
    assert [(act["number"], act["kind"], act["outcome"]) for act in found] == [
        (4, "undo", "undid publication 3"),
        (3, "publish", "undone by 4"),
        (2, "withdraw", "undid publication 1"),
        (1, "publish", "ended without effect: withdrawn on request"),
    ]
    assert "publish 3 of first: undone by 4" in command("why", "first", "100")[1]


@pytest.mark.usefixtures("replays")
def test_completing_a_killed_publication_is_not_reported_as_already_done(
    config: Config,
    command: Command,
) -> None:
    def dies(step: str, number: int) -> None:
        if step == PublishStep.TABLE_COMMITTED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(config, "first", crash=dies)
    assert command("publish", "first")[1].startswith("published; to undo")


@pytest.mark.usefixtures("replays")
def test_reason_of_an_abandoned_replay_is_stored_and_shown_by_every_command(
    command: Command,
) -> None:
    assert command("abandon", "first", "--reason", "wrong code")[0] == 0
    assert "is abandoned already" in command("abandon", "first")[1]
    assert "why abandoned  wrong code" in command("status", "first")[1]
    (entry,) = json.loads(command("list", "--state", "abandoned", "--json")[1])
    assert (entry["message"], entry["attempts"]) == ("wrong code", 1)
    text = command("why", "first", "100")[1]
    assert "why abandoned: wrong code" in text and "flights  no longer exists" in text
    page = command("status", "first", "--page")[1].strip()
    assert "Why it is abandoned: wrong code" in Path(page).read_text()
    errors = command("publish", "first")[2]
    assert "Hint: Replay its range again: rewindow replay app --first 100 --last 109" in errors


@pytest.mark.usefixtures("replays")
def test_hint_does_not_recommend_publishing_an_unpublishable_replay(
    config: Config,
    command: Command,
) -> None:
    publish(command, "first")
    shutil.rmtree(config.replay_root("first") / "checkpoints")
    assert "To undo the publication: rewindow undo first" in command("status", "first")[1]
    words = (
        "Its staged tables were purged. To publish its range, compute it again: rewindow "
        "replay app --first 100"
    )
    assert f"undone. {words}" in command("undo", "first")[1]
    assert words in command("status", "first")[1]
    Ledger.open(config.ledger_url).checks.record("second", "failed")
    text = command("status", "second")[1]
    assert "Its gate did not pass" in text and 'rewindow publish second --accept "REASON"' in text


def test_command_waits_for_an_attempt_that_is_starting(config: Config, command: Command) -> None:
    # A resume would end it: the JVM needs seconds before it reports its process.
    replay = simple(config, "other", 100, 109, ledger=False)
    ledger = Ledger.open(config.ledger_url)
    plan = replay.plan
    ledger.replays.create(
        "one",
        "app",
        100,
        109,
        plan.mode.name,
        plan.model_dump(mode="json"),
        "code-1",
    )
    ledger.attempts.next_epoch("one")
    text = command("status", "one")[1]
    assert (
        "Attempt 1 has been starting since" in text and "wait for it. If it does not start" in text
    )


def test_all_objections_accepted_by_a_publication_are_stored_and_shown(
    config: Config,
    command: Command,
) -> None:
    simple(config, "good", 100, 109, publishable=True, outputs=("ranks",))
    publish(command, "good")
    stage_lossy(config, "lossy", checked=False)
    code, text, _ = command("publish", "lossy", "--dry-run", "--accept", "known outage")
    flawed = "it replaces published windows by flawed ones"
    accepted = [
        "its gate was not run",
        f"{flawed}, lost: ranks, 2 windows: [105, 106]",
        f"{flawed}, affected: ranks, 3 windows: [107, 109]",
    ]
    assert code == 0 and "\nlost: ranks, 2 windows: [105, 106]\n" in text
    assert all(f"requires --accept: {line}" in text for line in accepted)
    code, text, _ = command("publish", "lossy", "--accept", "known outage", "--json")
    shown = json.loads(text)["publication"]
    assert (shown["accepted"], shown["overrides"]) == ("known outage", accepted)
    details = Ledger.open(config.ledger_url).publications.get(2).details
    assert (details.accepted, list(details.overrides)) == ("known outage", accepted)
    (act,) = json.loads(command("status", "lossy", "--json")[1])["publications"]
    assert (act["accepted"], act["overrides"]) == ("known outage", accepted)
    assert f"publication 2 accepted: {accepted[1]} (known outage)" in command("status", "lossy")[1]
    page = draw(
        "publications.html",
        acts=_acts(read_acts(config, "app", WindowRange(100, 109))),
        page={"grid": Grid(3_600_000)},
    )
    assert "lost: ranks, 2 windows: [105, 106]" in page and "Reason: known outage" in page
