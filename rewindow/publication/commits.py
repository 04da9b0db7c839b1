"""Commits a publication or undo to one table, exactly once: with a transaction id, and retried
after a conflict with another writer.

The transaction version is the publication's number. A table that already has this number is not
changed. After the commit the table must have exactly this number. The ledger assigns no higher
number while the publication is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from rewindow.errors import FencedError, TableError
from rewindow.ledger import Publication, publish_app_id
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.failures import reading_table, reading_tables
from rewindow.storage.names import open_published
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES_MAX = 5


def commit_once(
    config: Config,
    name: str,
    publication: Publication,
    commit: Callable[[], None],
) -> int:
    """Ensures that a table contains a publication's commit.

    Returns the version of that commit.

    Args:
        config: current settings.
        name: name of the published table.
        publication: the publication or undo.
        commit: tries to commit on the newest snapshot; called again after a conflict.

    Raises:
        FencedError: the table has a later publication, or another one with this number, because the
            ledger is older than the table.
        TableError: other writers caused a conflict in each of several tries, or the commit lost its
            transaction id.
    """
    # Each try looks at the newest snapshot first. A conflict may come from another process that
    # has finished this same publication, which must not be repeated.
    for _ in range(TRIES_MAX):
        before = held(config, name)
        if before == publication.number:
            return _own_version(config, name, publication)
        _refuse_later(name, publication, before)
        try:
            commit()
        except Exception as error:
            if not is_conflict(error):
                raise
            continue
        after = held(config, name)
        if after < publication.number:
            raise TableError(
                f'commit to table "{name}" lost its transaction id {publication.number}',
                hint="Another program overwrites commits of other writers of this table; stop it "
                "and publish again.",
            )
        if after == publication.number:
            return _own_version(config, name, publication)
    if held(config, name) == publication.number:
        return version_of(config, name, publication.number)
    raise TableError(
        f'table "{name}" was changed {TRIES_MAX} times by other writers during the publication',
        detail=f"Publication {publication.number} remains open.",
        hint=f"Stop the other writer, then: rewindow publish {publication.replay_id}",
    )


def held(config: Config, name: str) -> int:
    """Returns the number of the newest publication in a table; -1 before the first publication."""
    return open_published(config, name).txn(publish_app_id(name))


def is_begun(config: Config, name: str, publication: Publication) -> bool:
    """Returns whether a table exists and contains the commit of a publication or of a later one."""
    return Table.exists(config.stream_table(name)) and held(config, name) >= publication.number


def version_of(config: Config, name: str, number: int) -> int:
    """Returns the version of a publication's commit, which is the first version with its number.

    Later versions can have the same number, for example if another program has compacted the table.
    """
    table = open_published(config, name)
    if _brings(table, number):
        return table.version  # Usually it is the newest commit.
    # Transaction ids only grow from version to version, so the first version that holds the number
    # is found by bisection: each step opens one version, and a table may have thousands.
    low = 0
    high = table.version
    while low < high:
        middle = (low + high) // 2
        if _holds(config, name, middle, number):
            high = middle
        else:
            low = middle + 1
    return high


def _brings(table: Table, number: int) -> bool:
    """Returns whether the newest commit of a table is the commit of a publication, according to the
    log.
    """
    commit = table.path / "_delta_log" / f"{table.version:020}.json"
    if not commit.exists():
        return False
    wanted = (publish_app_id(table.path.name), number)
    with reading_table(table.path):
        for line in commit.read_text().splitlines():
            if line.startswith('{"txn"'):
                txn = json.loads(line)["txn"]
                if (txn["appId"], txn["version"]) == wanted:
                    return True
    return False


def _holds(config: Config, name: str, version: int, number: int) -> bool:
    try:
        return Table.open(config.stream_table(name), version).txn(publish_app_id(name)) >= number
    except TableError:
        return False  # The log was cleaned of this version, so it is older than the commit.


def write_spark(config: Config, name: str, publication: Publication, frame: DataFrame) -> None:
    """Replaces a range of a published table with a frame in one Spark commit."""
    writer = frame.write.format("delta").mode("overwrite")
    options = {
        "replaceWhere": _predicate(publication.range),
        "txnAppId": publish_app_id(name),
        "txnVersion": str(publication.number),
        "userMetadata": json.dumps(publication.commit_metadata()),
    }
    writer.options(**options).save(str(config.stream_table(name)))


def write_arrow(config: Config, name: str, publication: Publication, rows: pa.Table) -> None:
    """Replaces a range of a small table (seals, checkpoints) with rows in one commit, without
    Spark.
    """
    table = open_published(config, name)
    if table.txn(publish_app_id(name)) >= publication.number:
        return
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(publication.commit_metadata())},
        app_transactions=[Transaction(publish_app_id(name), publication.number)],
        max_commit_retries=0,
    )
    # delta-rs reads files that contain other windows, too, and may find them damaged. A conflict is
    # not about a file, so its exception is passed on unchanged.
    with reading_tables({table.path: table.locations}, certain=False):
        write_deltalake(
            table.delta,
            rows,
            mode="overwrite",
            predicate=_predicate(publication.range),
            commit_properties=properties,
        )


def write_empty(config: Config, name: str, publication: Publication) -> None:
    """Commits a publication's number to a table without changing its content.

    A delayed commit of an older publication is then rejected.
    """
    open_published(config, name).commit_files(
        [],
        app_id=publish_app_id(name),
        version=publication.number,
        metadata=publication.commit_metadata(),
    )


def is_conflict(error: Exception) -> bool:
    """Returns whether an exception reports a conflict with another commit.

    If so, a retry can succeed.
    """
    if isinstance(error, CommitFailedError) or isinstance(error.__cause__, CommitFailedError):
        return True
    return any(
        "delta.exceptions" in base.__module__ and "Concurrent" in base.__name__
        for base in type(error).__mro__
    )


def _own_version(config: Config, name: str, publication: Publication) -> int:
    """Checks that a table's newest commit belongs to a publication, and returns the version of that
    commit.

    Raises:
        FencedError: another publication has the number, because the ledger is older than the table.
    """
    version = version_of(config, name, publication.number)
    newest = open_published(config, name)
    table = newest if newest.version == version else open_published(config, name, version)
    commit = table.history(1)[0]
    with reading_table(table.path):
        metadata = json.loads(commit.get("userMetadata") or "{}")
    holder = metadata.get("replay", publication.replay_id)
    kind = metadata.get("kind", publication.kind)
    if (holder, kind) == (publication.replay_id, publication.kind):
        return version
    raise FencedError(
        f'table "{name}" already has publication {publication.number} of replay "{holder}", but '
        f'the ledger assigned that number to replay "{publication.replay_id}"',
        detail="The ledger is older than the table, or belongs to other tables. Nothing was "
        "written.",
        hint="Restore the newest ledger; or move this one away and rebuild it from the tables: "
        "rewindow ledger rebuild",
    )


def _refuse_later(name: str, publication: Publication, there: int) -> None:
    if there > publication.number:
        raise FencedError(
            f'table "{name}" already has publication {there}, so {publication.number} is outdated',
            detail=f"Publication {publication.number} has stopped without writing.",
            hint="If the ledger is new, and therefore lacks that publication: rewindow ledger "
            "rebuild",
        )


def _predicate(windows: WindowRange) -> str:
    return f"window_id >= {windows.first} and window_id <= {windows.last}"
