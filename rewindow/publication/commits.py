"""One commit of a publication to one table: fenced by the table's transaction id, retried when a
writer came between.

The transaction version is the publication's number. A table that already holds it is left alone;
after the commit it must hold exactly this number, and while the publication is open no higher one
is given out.
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
    """Makes sure that a table holds a publication's commit, and returns the version that brought
    it.

    Raises:
        FencedError: the table holds a later publication, or another one of this number: the ledger
            is older than it.
        TableError: other writers came between again and again, or the table took no transaction id.
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
                f'commit to table "{name}" did not take transaction {publication.number}',
                hint="Another program writes to this table without regard to others; stop it and "
                "publish again.",
            )
        if after == publication.number:
            return _own_version(config, name, publication)
    if held(config, name) == publication.number:
        return version_of(config, name, publication.number)
    raise TableError(
        f'table "{name}" was written to by others {TRIES_MAX} times while it was being published',
        detail=f"Publication {publication.number} stays open.",
        hint=f"Stop the other writer, then: rewindow publish {publication.replay_id}",
    )


def held(config: Config, name: str) -> int:
    """Returns the number of the publication that a table holds, -1 before its first."""
    return open_published(config, name).txn(publish_app_id(name))


def is_begun(config: Config, name: str, publication: Publication) -> bool:
    """Returns whether a table is there and holds the commit of a publication or of a later one."""
    return Table.exists(config.stream_table(name)) and held(config, name) >= publication.number


def version_of(config: Config, name: str, number: int) -> int:
    """Returns the version that brought a publication's commit: the first one that holds its number.

    Versions later than it may hold it too: somebody may have compacted the table since.
    """
    table = open_published(config, name)
    if _brings(table, number):
        return table.version  # As a rule nothing has come after it.
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
    """Returns whether the newest commit of a table itself carries a publication's number, by its
    file in the log.
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
        return False  # This version's log is gone, so that it is older than the commit.


def write_spark(config: Config, name: str, publication: Publication, frame: DataFrame) -> None:
    """Replaces a range of a published table as a whole, by Spark, in one commit."""
    writer = frame.write.format("delta").mode("overwrite")
    options = {
        "replaceWhere": _predicate(publication.range),
        "txnAppId": publish_app_id(name),
        "txnVersion": str(publication.number),
        "userMetadata": json.dumps(publication.commit_metadata()),
    }
    writer.options(**options).save(str(config.stream_table(name)))


def write_arrow(config: Config, name: str, publication: Publication, rows: pa.Table) -> None:
    """Replaces a range of one of our own small tables as a whole, without Spark, in one commit."""
    table = open_published(config, name)
    if table.txn(publish_app_id(name)) >= publication.number:
        return
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(publication.commit_metadata())},
        app_transactions=[Transaction(publish_app_id(name), publication.number)],
        max_commit_retries=0,
    )
    # delta-rs reads the files that hold other windows too. A conflict is not about a file, so it
    # stays as it is.
    with reading_tables({table.path: table.locations}, certain=False):
        write_deltalake(
            table.delta,
            rows,
            mode="overwrite",
            predicate=_predicate(publication.range),
            commit_properties=properties,
        )


def write_empty(config: Config, name: str, publication: Publication) -> None:
    """Gives a table a publication's number and changes nothing in it: whoever is late with an older
    one is refused.
    """
    open_published(config, name).commit_files(
        [],
        app_id=publish_app_id(name),
        version=publication.number,
        metadata=publication.commit_metadata(),
    )


def is_conflict(error: Exception) -> bool:
    """Returns whether another commit came between, so that looking again helps."""
    if isinstance(error, CommitFailedError) or isinstance(error.__cause__, CommitFailedError):
        return True
    return any(
        "delta.exceptions" in base.__module__ and "Concurrent" in base.__name__
        for base in type(error).__mro__
    )


def _own_version(config: Config, name: str, publication: Publication) -> int:
    """Returns the version that brought a publication's commit, if it is this publication's.

    Raises:
        FencedError: another one has the number, since the ledger that gave it out is older than the
            table.
    """
    version = version_of(config, name, publication.number)
    newest = open_published(config, name)
    table = newest if newest.version == version else open_published(config, name, version)
    commit = table.history(1)[0]
    with reading_table(table.path):
        told = json.loads(commit.get("userMetadata") or "{}")
    holder = told.get("replay", publication.replay_id)
    if (holder, told.get("kind", publication.kind)) == (publication.replay_id, publication.kind):
        return version
    raise FencedError(
        f'table "{name}" holds publication {publication.number} of replay "{holder}" already, the '
        "ledger gave that "
        f'number to replay "{publication.replay_id}"',
        detail="The ledger is older than the table, or another one. Nothing was written.",
        hint="Put the newest ledger back; or move this one away and make it again from the tables: "
        "rewindow ledger rebuild",
    )


def _refuse_later(name: str, publication: Publication, there: int) -> None:
    if there > publication.number:
        raise FencedError(
            f'table "{name}" already holds publication {there}, {publication.number} is out of '
            "date",
            detail="It has stopped without writing.",
            hint="If the ledger is a new one, and so knows nothing of that publication: rewindow "
            "ledger rebuild",
        )


def _predicate(windows: WindowRange) -> str:
    return f"window_id >= {windows.first} and window_id <= {windows.last}"
