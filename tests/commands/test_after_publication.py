"""What status, list, certify, undo and check say once replays were published, covered and taken back. No JVM."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from rewindow.config import Config
from rewindow.ledger import Ledger, State
from rewindow.pages.reading import read_story
from rewindow.process_identity import process_identity
from rewindow.publication.publish import publish as begin
from rewindow.publication.steps import PublishStep
from tests.commands.conftest import Command
from tests.publication.staging import simple


@pytest.fixture
def replays(config: Config, command: Command) -> None:
    """`first` of 100 to 109 is published, then `second` over all of it and `part` over some windows."""
    for name, windows in {"first": (100, 109), "second": (100, 109), "part": (105, 107)}.items():
        simple(config, name, *windows, publishable=True)


def publish(command: Command, *names: str) -> None:
    """Publishes replays, one after the other."""
    for name in names:
        code, _, errors = command("publish", name)
        assert code == 0, errors


@pytest.mark.usefixtures("replays")
def test_what_publishing_would_do_is_shown_without_doing_it(config: Config, command: Command) -> None:
    """A row a table, as JSON too; afterwards that it is done; --withdraw has no such answer."""
    code, text, errors = command("publish", "first", "--dry-run")
    assert code == 0, errors
    assert "first would be published: 10 windows [100, 109], about" in text and "app.ranks" in text and "links" in text
    assert Ledger.open(config.ledger_url).publications.newest() == []
    told = json.loads(command("publish", "first", "--dry-run", "--json")[1])["expected"]
    assert [table["table"] for table in told["tables"]] == ["app.delays", "app.ranks"] and told["seconds"] > 0
    publish(command, "first")
    assert "published already, as publication 1: nothing to do" in command("publish", "first", "--dry-run")[1]
    assert command("publish", "first", "--dry-run", "--withdraw")[0] != 0


@pytest.mark.usefixtures("replays")
def test_what_an_undo_would_do_is_shown_without_doing_it(config: Config, command: Command) -> None:
    """What the windows would show, a row a table, as JSON too; afterwards that it is done."""
    publish(command, "first", "part")
    code, text, errors = command("undo", "part", "--dry-run")
    assert code == 0, errors
    assert "part would be undone: 3 windows [105, 107], about" in text and "app.ranks" in text
    assert "windows [105, 107] would show what replay first published" in text
    assert len(Ledger.open(config.ledger_url).publications.newest()) == 2
    told = json.loads(command("undo", "part", "--dry-run", "--json")[1])["expected"]
    assert (told["kind"], told["shows"]) == ("undo", [{"first": 105, "last": 107, "replay": "first"}])
    assert {table["table"]: table["rows"] for table in told["tables"]} == {"app.delays": 6, "app.ranks": 6}
    assert command("undo", "part")[0] == 0
    assert "undone already, as publication 3: nothing to do" in command("undo", "part", "--dry-run")[1]


@pytest.mark.usefixtures("replays")
def test_a_replay_under_a_later_publication_is_shown_as_covered(config: Config, command: Command) -> None:
    """In list, status, JSON and page, by whom; an undo of what covers it uncovers it."""
    publish(command, "first", "part")
    assert "published, in part covered by part" in command("status", "first")[1]
    publish(command, "second")
    text = command("status", "first")[1]
    assert "published, covered by second, part" in text and "undo the newest first: rewindow undo second" in text
    text = command("list")[1]
    assert "published, covered  " in text and "first is covered by second, part, published later" in text
    assert read_story(config, "first").state == "published, covered by second, part"
    assert json.loads(command("status", "first", "--json")[1])["covered_by"] == ["second", "part"]
    listed = {entry["replay"]: entry for entry in json.loads(command("list", "--json")[1])}
    assert [listed[name]["covered_by"] for name in ("first", "part", "second")] == [["second", "part"], ["second"], []]
    for name in ("second", "part"):
        assert command("undo", name)[0] == 0
    assert json.loads(command("status", "first", "--json")[1])["covered_by"] == []
    assert "Take it back with: rewindow undo first" in command("status", "first")[1]


@pytest.mark.usefixtures("replays")
def test_nothing_published_is_no_difference_but_an_error_that_names_the_act(command: Command) -> None:
    """Before any publication, after an undo, and in a range where something else of the application is published."""
    errors = command("certify", "published", "first")[2]
    assert 'application "app" is not published' in errors and "such as: rewindow publish first" in errors
    publish(command, "part")
    code, text, errors = command("certify", "published", "first", "--first", 100, "--last", 102)
    assert (code, text) == (2, "")
    assert errors == (
        'error: nothing of application "app" is published in windows [100, 102]\n'
        "  Hint: Publish a replay of this range, such as: rewindow publish first\n"
    )
    assert command("undo", "part")[0] == 0
    code, text, errors = command("certify", "part", "published")
    assert (code, text) == (2, "")
    assert 'Detail: The undo of replay "part" took publication 1 back, as publication 2, 20' in errors
    assert "rewindow publish part" in errors


@pytest.mark.usefixtures("replays")
def test_a_second_undo_says_that_it_was_done_and_by_which_act(command: Command) -> None:
    """So does a second publication."""
    publish(command, "first")
    assert "it was published already, as publication 1; take it back with" in command("publish", "first")[1]
    assert command("undo", "first")[1].startswith("undone. Publish it again with: rewindow publish first")
    assert "it was undone already, as publication 2. Publish it again" in command("undo", "first")[1]


@pytest.mark.usefixtures("replays")
def test_a_replay_that_is_over_is_not_begun_again_under_its_id(command: Command) -> None:
    """The same wishes compute nothing and say what it is; other ones are refused, and another id is asked for."""
    code, text, errors = command("replay", "app", "--id", "first")
    assert (
        code == 0
        and "it was computed before and is checked: nothing is left to do; for a new one give another" in errors
    )
    assert "replay first is checked. Next: rewindow publish first" in text
    code, text, errors = command("replay", "app", "--id", "first", "--mode", "at_least_once")
    assert (code, text) == (
        2,
        "",
    ) and "It is checked (rewindow status first). Give the new replay another --id" in errors
    assert "rewindow replay --resume REPLAY" in command("replay")[2]


def test_an_unfinished_replay_is_not_checked_and_the_way_on_is_named(config: Config, command: Command) -> None:
    """For each state in which there is nothing to judge yet, or any more."""
    simple(config, "other", 100, 109, ledger=False)
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create("one", "app", 100, 109, "exactly_once", {}, "code-1")
    errors = command("check", "one")[2]
    assert 'replay "one" is planned: it has not finished' in errors and "rewindow replay --resume one" in errors
    epoch = ledger.attempts.next_epoch("one")
    ledger.attempts.begin("one", epoch, host="h", pid=1, process_group=1, process_identity="boot/0")
    assert "if its process is gone, go on: rewindow replay --resume one" in command("check", "one")[2]
    ledger.attempts.end("one", epoch, "failed", "no luck")
    assert "Hint: Resume it: rewindow replay --resume one" in command("check", "one")[2]
    ledger.replays.abandon("one", "no use")
    errors = command("check", "one")[2]
    assert "Replay its range anew: rewindow replay app --first 100 --last 109" in errors
    assert "not finished" not in errors


@pytest.mark.usefixtures("replays")
@pytest.mark.parametrize(
    "words",
    [
        ("certify", "published", "firstt"), ("certify", "firstt", "second"), ("undo", "firstt"), ("publish", "firstt"),
        ("check", "firstt"), ("abandon", "firstt"), ("status", "firstt"), ("status", "firstt", "--page"),
        ("errors", "firstt"), ("replay", "--resume", "firstt"), ("publish", "firstt", "--withdraw"),
        ("check", "firstt", "--strength"), ("why", "firstt", "100"),
    ],
)  # fmt: skip
def test_every_verb_answers_an_unknown_replay_with_the_one_that_was_meant(command: Command, words: tuple[str]) -> None:
    """One question to the ledger, one answer."""
    code, _, errors = command(*words)
    assert code == 2 and "firstt" in errors and 'Did you mean "first"?' in errors


def test_an_attempt_whose_process_is_gone_is_told_apart_from_one_that_runs(config: Config, command: Command) -> None:
    """Nobody has noted its end: the process is looked for, on the host that it ran on."""
    replay = simple(config, "other", 100, 109, ledger=False)
    ledger, plan = Ledger.open(config.ledger_url), replay.plan.model_copy(update={"replay_id": "one"})
    ledger.replays.create("one", "app", 100, 109, plan.mode.name, plan.model_dump(mode="json"), "code-1")
    epoch = ledger.attempts.next_epoch("one")
    here, group = socket.gethostname(), os.getpgid(0)
    ledger.attempts.begin("one", epoch, host=here, pid=1, process_group=group, process_identity=process_identity(group))
    text = command("status", "one")[1]
    assert "It runs" in text and "no outcome" not in text
    assert "its process" not in command("list")[1]
    ledger.attempts.next_epoch("one")
    ledger.attempts.begin("one", 2, host=here, pid=1, process_group=2**22 + 1, process_identity="boot/0")
    text = command("status", "one")[1]
    assert (
        "why it stopped" in text
        and "the attempt's process has ended, and no outcome was recorded" in text
        and "It runs" not in text
    )
    assert ledger.replays.get("one").state is State.RUNNING
    text = command("list")[1]
    assert "running, but its process is gone" in text and "see: rewindow status one" in text
    assert [row["has_stopped"] for row in json.loads(command("list", "--json")[1]) if row["replay"] == "one"] == [True]
    text = command("status", "one")[1]
    assert "app, running, but its process is gone" in text and text.count("its process is gone") == 2
    words = plan.mode.name, replay.plan.model_dump(mode="json"), "code-1"
    ledger.replays.create("other", "app", 100, 109, *words)
    ledger.attempts.begin(
        "other",
        ledger.attempts.next_epoch("other"),
        host=here,
        pid=1,
        process_group=2**22 + 1,
        process_identity="boot/0",
    )
    assert read_story(config, "other").state == "running, but its process is gone"


@pytest.mark.usefixtures("replays")
def test_what_was_begun_given_up_and_taken_back_is_listed_with_its_outcome(config: Config, command: Command) -> None:
    """In status, why and JSON; the next act for one that is open finishes it or gives it up."""

    def dies(step: str, number: int) -> None:
        if step == PublishStep.TABLE_COMMITTED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(config, "first", crash=dies)
    text = command("status", "first")[1]
    assert "begun, not finished" in text and "give it up: rewindow publish first --withdraw" in text
    assert command("publish", "first", "--withdraw")[0] == 0
    assert "Next: rewindow publish first" in command("status", "first")[1]
    publish(command, "first")
    code, text, _ = command("undo", "first")
    assert code == 0 and "can be undone for" not in text
    found = json.loads(command("status", "first", "--json")[1])["publications"]
    assert [(act["number"], act["kind"], act["outcome"]) for act in found] == [
        (4, "undo", "took publication 3 back"), (3, "publish", "taken back by 4"),
        (2, "withdraw", "took publication 1 back"), (1, "publish", "given up: withdrawn on request"),
    ]  # fmt: skip
    assert "publish 3 of first: taken back by 4" in command("why", "first", "100")[1]


@pytest.mark.usefixtures("replays")
def test_a_killed_publication_that_is_finished_was_not_done_before(config: Config, command: Command) -> None:
    """The second call has done the rest, so it does not say that all had been done."""

    def dies(step: str, number: int) -> None:
        if step == PublishStep.TABLE_COMMITTED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(config, "first", crash=dies)
    assert command("publish", "first")[1].startswith("published; take it back with")


@pytest.mark.usefixtures("replays")
def test_an_abandoned_replay_says_why_everywhere(command: Command) -> None:
    """In status, list, why and on its page, though its input is gone by now; giving it up again keeps the reason."""
    assert command("abandon", "first", "--reason", "wrong code")[0] == 0
    assert "is abandoned already" in command("abandon", "first")[1]
    assert "why abandoned  wrong code" in command("status", "first")[1]
    (entry,) = json.loads(command("list", "--state", "abandoned", "--json")[1])
    assert (entry["message"], entry["attempts"]) == ("wrong code", 1)
    text = command("why", "first", "100")[1]
    assert "why abandoned: wrong code" in text and "flights  not there any more" in text
    page = command("status", "first", "--page")[1].strip()
    assert "Why it is abandoned: wrong code" in Path(page).read_text()
    errors = command("publish", "first")[2]
    assert "Hint: Replay its range anew: rewindow replay app --first 100 --last 109" in errors


@pytest.mark.usefixtures("replays")
def test_what_cannot_be_published_any_more_is_not_recommended(config: Config, command: Command) -> None:
    """Staged tables that were purged are computed again, by a command; a gate that did not pass needs a reason."""
    publish(command, "first")
    shutil.rmtree(config.replay_root("first") / "checkpoints")
    assert "Take it back with: rewindow undo first" in command("status", "first")[1]
    words = "Its staged tables were purged. To publish its range, compute it again: rewindow replay app --first 100"
    assert f"undone. {words}" in command("undo", "first")[1]
    assert words in command("status", "first")[1]
    Ledger.open(config.ledger_url).checks.record("second", "failed")
    text = command("status", "second")[1]
    assert "Its gate did not pass" in text and 'rewindow publish second --accept "REASON"' in text


def test_an_attempt_that_starts_is_waited_for(config: Config, command: Command) -> None:
    """A resume would end it; the JVM takes some seconds until it tells its process."""
    replay = simple(config, "other", 100, 109, ledger=False)
    ledger, plan = Ledger.open(config.ledger_url), replay.plan
    ledger.replays.create("one", "app", 100, 109, plan.mode.name, plan.model_dump(mode="json"), "code-1")
    ledger.attempts.next_epoch("one")
    text = command("status", "one")[1]
    assert "Attempt 1 is starting since" in text and "wait for it. Should nothing come of it" in text
