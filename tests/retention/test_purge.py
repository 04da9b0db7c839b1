"""Purge: deletes staged tables of replays, and nothing that is not one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rewindow.certificate.certificate import certify
from rewindow.config import Config
from rewindow.errors import InputError
from rewindow.ledger import Ledger, publish_app_id
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.ledger.replays import Replays
from rewindow.publication.prepare import prepare_tables
from rewindow.recovery import StartState
from rewindow.retention import purge as module
from rewindow.retention.purge import Purgeable, purge, purgeable
from rewindow.storage import Table
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import targets_of
from tests.publication.staging import simple

AT_ONCE = timedelta(0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a project with folders that are nobody else's."""
    folder = tmp_path / "project"
    for name in (".git", "jobs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("mine")
    monkeypatch.chdir(folder)
    return folder


def published(config: Config, replay_id: str) -> Ledger:
    """Stages a replay and publishes it as far as the ledger and the tables' log know, without rows."""
    plan = simple(config, replay_id, 100, 103).plan
    ledger = Ledger.open(config.ledger_url)
    publication = ledger.publications.open(replay_id, prepare_tables(config, plan), 100, 103)
    for target in targets_of(plan):
        table = open_published(config, target.name)
        table.commit_files(
            [], app_id=publish_app_id(target.name), version=publication.number, metadata=publication.commit_metadata()
        )
        ledger.publications.mark_done(publication.number, target.name, table.version)
    ledger.publications.close(publication.number)
    return ledger


def names(found: list[Purgeable]) -> set[str]:
    """Returns the folders as replay/table."""
    return {f"{entry.folder.parent.name}/{entry.folder.name}" for entry in found}


def test_a_published_replay_loses_its_tables_but_for_the_facts(config: Config, here: Path) -> None:
    """Facts stay, for `certify` and `why`; a second purge finds nothing more (W86)."""
    published(config, "one")
    assert names(purgeable(config, AT_ONCE)) == {"one/delays", "one/ranks", "one/checkpoints"}
    assert purge(config, AT_ONCE, delete=True).bytes > 0
    assert [path.name for path in config.replay_root("one").iterdir()] == ["facts"]
    assert purgeable(config, AT_ONCE) == []


def test_a_rebuilt_ledger_never_leads_purge_to_the_working_directory(config: Config, here: Path) -> None:
    """Publish, purge, lose the ledger, rebuild, purge again: the project is as it was."""
    published(config, "one").close()
    purge(config, AT_ONCE, delete=True)
    (config.state / "ledger.sqlite").unlink()
    assert rebuild_ledger(config).replays == 1
    assert purge(config, AT_ONCE, delete=True).deleted == []
    assert [path.read_text() for path in here.glob("*/file")] == ["mine", "mine"]


@pytest.mark.parametrize("forged", ["", ".", "..", "one/../..", "/"])
def test_an_id_that_leads_out_of_the_replays_is_refused(
    config: Config, here: Path, forged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as in a ledger that somebody has altered."""
    row = published(config, "one").replays.get("one")
    monkeypatch.setattr(Replays, "newest", lambda self, **more: [replace(row, replay_id=forged)])
    with pytest.raises(InputError, match="replay"):
        purgeable(config, AT_ONCE)


def test_a_replay_that_is_a_link_to_another_folder_is_left_alone(config: Config, here: Path) -> None:
    """Nothing is deleted but what lies below the folder of staged replays."""
    published(config, "one").close()
    root, elsewhere = config.replay_root("one"), here / "elsewhere"
    root.rename(elsewhere)
    root.symlink_to(elsewhere)
    assert list(root.glob("*/")), "there is something that could be deleted"
    assert purgeable(config, AT_ONCE) == []


def test_a_replay_without_a_plan_is_left_alone(config: Config, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of such a row only publications are known."""
    row = published(config, "one").replays.get("one")
    monkeypatch.setattr(Replays, "newest", lambda self, **more: [replace(row, plan={})])
    assert purgeable(config, AT_ONCE) == []


def test_a_replay_whose_plan_was_purged_is_refused_by_certify(config: Config, here: Path) -> None:
    """After purge and rebuild its digests are there, but not what they are of: an error for people."""
    published(config, "one").close()
    simple(config, "two", 100, 103, ledger=False)
    purge(config, AT_ONCE, delete=True)
    (config.state / "ledger.sqlite").unlink()
    rebuild_ledger(config)
    with pytest.raises(InputError, match='the plan of replay "one" was purged'):
        certify(config, "two", "one")


def test_tables_that_somebody_publishes_are_left_alone(config: Config, here: Path) -> None:
    """Purge takes the locks of the replay's publishers and does not wait for them; next time it deletes."""
    other = published(config, "one")
    with other.publications.publishing(["app.ranks"]):
        purged = purge(config, AT_ONCE, delete=True)
    assert (purged.deleted, purged.busy) == ([], ["one"])
    assert purgeable(config, AT_ONCE) != []
    assert names(purge(config, AT_ONCE, delete=True).deleted) == {"one/delays", "one/ranks", "one/checkpoints"}


def test_a_publication_that_begins_after_the_first_look_keeps_its_tables(
    config: Config, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the locks purge looks again."""
    ledger = published(config, "one")
    look = module.purgeable

    def look_then_publish(config: Config, older_than: timedelta) -> list[Purgeable]:
        found = look(config, older_than)
        ledger.publications.open("one", {"app.ranks": 1}, 100, 103)
        return found

    monkeypatch.setattr(module, "purgeable", look_then_publish)
    assert purge(config, AT_ONCE, delete=True).deleted == []
    assert Table.exists(config.replay_root("one") / "ranks")


def test_what_was_not_published_goes_only_when_it_is_old(config: Config, here: Path) -> None:
    """Ended, checked and undone replays; abandoned ones go at once."""
    simple(config, "one", 100, 103)
    simple(config, "two", 104, 107)
    Ledger.open(config.ledger_url).replays.abandon("two")
    assert {entry.replay_id for entry in purgeable(config, timedelta(days=1))} == {"two"}
    assert {entry.replay_id for entry in purgeable(config, AT_ONCE)} == {"one", "two"}


def test_a_checkpoint_from_which_an_open_replay_starts_is_kept(config: Config, here: Path) -> None:
    """W85: the start state of what is planned, running or failed; it goes once that replay has ended."""
    published(config, "one")
    taken_from = str(config.replay_root("one") / "checkpoints")
    start = StartState(source="replay", window=103, taken_from=taken_from, version=1)
    plan = simple(config, "two", 104, 107, start=start, ledger=False).plan
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create("two", "app", 104, 107, "exactly_once", plan.model_dump(mode="json"), "code-1")
    assert names(purge(config, AT_ONCE, delete=True).deleted) == {"one/delays", "one/ranks"}
    ledger.replays.abandon("two")
    left = names(purgeable(config, AT_ONCE))
    assert {name for name in left if name.startswith("one/")} == {"one/checkpoints"}
