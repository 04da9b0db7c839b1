"""Purge: deletes staged tables of replays, and nothing that is not one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rewindow.certificate.certificate import certify
from rewindow.errors import InputError
from rewindow.ledger import Ledger, publish_app_id
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.ledger.replays import Replays
from rewindow.recovery import StartState
from rewindow.retention import purge as module
from rewindow.retention.purge import Purgeable, purge, purgeable
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import targets_of
from tests.publication.staging import prepared, simple

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
    """Stages a replay and publishes it as far as the ledger and the tables' log know, without
    rows.
    """
    plan = simple(config, replay_id, 100, 103).plan
    ledger = Ledger.open(config.ledger_url)
    publication = ledger.publications.open(replay_id, prepared(config, plan), 100, 103)
    for target in targets_of(plan):
        table = open_published(config, target.name)
        table.commit_files(
            [],
            app_id=publish_app_id(target.name),
            version=publication.number,
            metadata=publication.commit_metadata(),
        )
        ledger.publications.mark_done(publication.number, target.name, table.version)
    ledger.publications.close(publication.number)
    return ledger


def names(found: list[Purgeable]) -> set[str]:
    """Returns the folders as replay/table."""
    return {f"{entry.folder.parent.name}/{entry.folder.name}" for entry in found}


def test_purge_deletes_the_tables_of_a_published_replay_except_the_facts(
    config: Config, here: Path
) -> None:
    # Rules: W86
    published(config, "one")
    assert names(purgeable(config, AT_ONCE)) == {"one/delays", "one/ranks", "one/checkpoints"}
    assert purge(config, AT_ONCE, delete=True).bytes > 0
    assert [path.name for path in config.replay_root("one").iterdir()] == ["facts"]
    assert purgeable(config, AT_ONCE) == []


def test_purge_after_a_rebuild_never_touches_the_working_directory(
    config: Config,
    here: Path,
) -> None:
    published(config, "one").close()
    purge(config, AT_ONCE, delete=True)
    (config.state / "ledger.sqlite").unlink()
    assert rebuild_ledger(config).replays == 1
    assert purge(config, AT_ONCE, delete=True).deleted == []
    assert [path.read_text() for path in here.glob("*/file")] == ["mine", "mine"]


@pytest.mark.parametrize("forged", ["", ".", "..", "one/../..", "/"])
def test_replay_id_with_a_path_outside_the_replays_folder_is_rejected(
    config: Config,
    here: Path,
    forged: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = published(config, "one").replays.get("one")
    monkeypatch.setattr(Replays, "newest", lambda self, **more: [replace(row, replay_id=forged)])
    with pytest.raises(InputError, match="replay"):
        purgeable(config, AT_ONCE)


def test_replay_that_is_a_link_to_another_folder_is_not_purged(config: Config, here: Path) -> None:
    published(config, "one").close()
    root = config.replay_root("one")
    elsewhere = here / "elsewhere"
    root.rename(elsewhere)
    root.symlink_to(elsewhere)
    assert list(root.glob("*/")), "there is something that could be deleted"
    assert purgeable(config, AT_ONCE) == []


def test_replay_without_a_plan_is_not_purged(
    config: Config,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = published(config, "one").replays.get("one")
    monkeypatch.setattr(Replays, "newest", lambda self, **more: [replace(row, plan={})])
    assert purgeable(config, AT_ONCE) == []


def test_certify_rejects_a_replay_whose_plan_was_purged(config: Config, here: Path) -> None:
    published(config, "one").close()
    simple(config, "two", 100, 103, ledger=False)
    purge(config, AT_ONCE, delete=True)
    (config.state / "ledger.sqlite").unlink()
    rebuild_ledger(config)
    with pytest.raises(InputError, match='the plan of replay "one" was purged'):
        certify(config, "two", "one")


def test_tables_of_a_running_publication_are_not_purged(config: Config, here: Path) -> None:
    other = published(config, "one")
    with other.publications.publishing(["app.ranks"]):
        purged = purge(config, AT_ONCE, delete=True)
    assert (purged.deleted, purged.busy) == ([], ["one"])
    assert purgeable(config, AT_ONCE) != []
    assert names(purge(config, AT_ONCE, delete=True).deleted) == {
        "one/delays",
        "one/ranks",
        "one/checkpoints",
    }


def test_publication_that_starts_during_a_purge_keeps_its_tables(
    config: Config,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = published(config, "one")
    look = module.purgeable

    def look_then_publish(config: Config, older_than: timedelta) -> list[Purgeable]:
        found = look(config, older_than)
        ledger.publications.open("one", {"app.ranks": 1}, 100, 103)
        return found

    monkeypatch.setattr(module, "purgeable", look_then_publish)
    assert purge(config, AT_ONCE, delete=True).deleted == []
    assert Table.exists(config.replay_root("one") / "ranks")


def test_unpublished_replays_are_purged_only_when_old_or_abandoned(
    config: Config,
    here: Path,
) -> None:
    simple(config, "one", 100, 103)
    simple(config, "two", 104, 107)
    Ledger.open(config.ledger_url).replays.abandon("two")
    assert {entry.replay_id for entry in purgeable(config, timedelta(days=1))} == {"two"}
    assert {entry.replay_id for entry in purgeable(config, AT_ONCE)} == {"one", "two"}


def test_start_checkpoint_of_an_open_replay_is_kept_until_its_end(
    config: Config,
    here: Path,
) -> None:
    # Rules: W85
    published(config, "one")
    taken_from = str(config.replay_root("one") / "checkpoints")
    start = StartState(source="replay", window=103, taken_from=taken_from, version=1)
    plan = simple(config, "two", 104, 107, start=start, ledger=False).plan
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create(
        "two",
        "app",
        104,
        107,
        "exactly_once",
        plan.model_dump(mode="json"),
        "code-1",
    )
    assert names(purge(config, AT_ONCE, delete=True).deleted) == {"one/delays", "one/ranks"}
    ledger.replays.abandon("two")
    left = names(purgeable(config, AT_ONCE))
    assert {name for name in left if name.startswith("one/")} == {"one/checkpoints"}
