"""Reverts publications: the undo of a finished publication, and the withdrawal of an unfinished
one.

Both restore the tuples, seals and checkpoints that the range would have without that publication.
`rewindow.publication.history` finds the table versions with this content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewindow.crash import crash_point
from rewindow.errors import InputError, TableError
from rewindow.ledger import Ledger, Publication, Replay
from rewindow.ledger.publication_details import PublicationDetails, PutBack
from rewindow.ledger.publication_rows import UNDO, WITHDRAW, effective_publications
from rewindow.names import stream_of
from rewindow.publication.by_files import reason_to_put_back_with_spark
from rewindow.publication.commits import is_begun
from rewindow.publication.contents import check_states, files_of
from rewindow.publication.effects import related_acts, stale_ranges, states_in_effect
from rewindow.publication.finish import Publisher
from rewindow.publication.history import versions_without, without_windows
from rewindow.publication.orphans import exclusive_publisher
from rewindow.publication.result import PublicationResult, result_of
from rewindow.publication.steps import Crash, PublishStep
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.damage import (
    DamagedFile,
    damaged_error,
    damaged_now,
    find_damage,
    resolve_damage,
)
from rewindow.storage.names import open_published
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.storage.snapshots import snapshot_cache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_WITHDRAWN = "withdrawn on request"


@dataclass(frozen=True)
class DamagePolicy:
    """How an undo treats files that cannot be restored directly.

    Attributes:
        leave_out: whether to leave out the windows of damaged files.
        command: the command to repeat for leaving them out.
        spark_for: called with a table that needs Spark and the reason, before anything is changed.
    """

    leave_out: bool
    command: str
    spark_for: Callable[[str, str], object] = lambda table, reason: None


def undo(
    config: Config,
    replay_id: str,
    *,
    spark: SparkSession | None = None,
    leave_out_damaged: bool = False,
    crash: Crash = crash_point,
) -> PublicationResult:
    """Undoes a replay's publications. Its range then shows the content that it would have without
    them.

    A repeated call has no effect.

    Args:
        config: current settings.
        replay_id: the replay.
        spark: see publish.
        leave_out_damaged: whether windows of damaged files, in the current or the restored
            versions, may be missing afterwards.
        crash: called after each step.

    Raises:
        SparkNeeded: see publish.
        InputError: the replay is not published, or a later publication, which the message names,
            overlaps it.
        TableError: the earlier versions were removed by VACUUM or a log cleanup; a file is damaged
            (the message has its windows).
        OverlapError: another process publishes one of its tables, or another replay runs on its
            range.
    """
    ledger = Ledger.open(config.ledger_url)
    replay = ledger.replays.get(replay_id)
    newest_acts = ledger.publications.newest(replay_id, limit=1)
    tables = names_of(newest_acts[0].tables) if newest_acts else []
    with (
        snapshot_cache(),
        ledger.publications.publishing(tables) as unfinished,
        exclusive_publisher(config, replay.application, spark),
    ):
        publisher = Publisher(spark, config, ledger, crash=crash)
        rolled = publisher.roll_all_forward(unfinished)
        newest = newest_act(ledger, replay)
        if newest.kind == UNDO:
            return result_of(config, ledger, newest, already=True, rolled=rolled)
        spare = DamagePolicy(
            leave_out_damaged,
            f"rewindow undo {replay_id}",
            spark_for=publisher.spark_for,
        )
        publication = open_undo(
            config,
            ledger,
            newest,
            replay.application,
            spare,
            crash,
        )
        crash(PublishStep.OPENED, 1)
        return result_of(config, ledger, publisher.finish(publication), rolled=rolled)


def withdraw(
    config: Config,
    replay_id: str,
    *,
    spark: SparkSession | None = None,
    leave_out_damaged: bool = False,
    crash: Crash = crash_point,
) -> PublicationResult:
    """Withdraws an unfinished publication or undo of a replay. The tables then show their previous
    content.

    A repeated call has no effect. The staged tables are not needed.

    Args:
        config: current settings.
        replay_id: the replay.
        spark, leave_out_damaged, crash: see undo.

    Raises:
        InputError: the replay has no unfinished publication.
        TableError: the earlier versions were removed by VACUUM or a log cleanup; a file is damaged
            (the message has its windows).
        OverlapError: another process publishes one of its tables.
    """
    ledger = Ledger.open(config.ledger_url)
    replay = ledger.replays.get(replay_id)
    newest = next(iter(ledger.publications.newest(replay_id, limit=1)), None)
    names = names_of(newest.tables) if newest else []
    with (
        snapshot_cache(),
        ledger.publications.publishing(names) as unfinished,
        exclusive_publisher(config, replay.application, spark),
    ):
        publisher = Publisher(spark, config, ledger, crash=crash)
        mine = [act for act in unfinished if act.replay_id == replay_id and act.kind != WITHDRAW]
        rolled = publisher.roll_all_forward(excluding(unfinished, mine))
        if not mine:
            newest = next(iter(ledger.publications.newest(replay_id, limit=1)), None)
            if newest is not None and (newest.kind == WITHDRAW or newest.withdrawn is not None):
                return result_of(config, ledger, newest, already=True, rolled=rolled)
            raise InputError(
                f'replay "{replay_id}" has no unfinished publication',
                detail=f"Its state is: {replay.state}.",
                hint=f"Undo a finished publication with: rewindow undo {replay_id}",
            )
        (begun,) = mine
        crash(PublishStep.PREPARED, 1)
        if not any(is_begun(config, table.name, begun) for table in begun.tables):
            ledger.publications.withdraw(begun.number, _WITHDRAWN)
            return result_of(config, ledger, ledger.publications.get(begun.number), rolled=rolled)
        spare = DamagePolicy(
            leave_out_damaged,
            f"rewindow publish {replay_id} --withdraw",
            spark_for=publisher.spark_for,
        )
        publication = _open_withdrawal(
            config, ledger, begun, application=replay.application, spare=spare
        )
        crash(PublishStep.OPENED, 1)
        return result_of(config, ledger, publisher.finish(publication), rolled=rolled)


def open_undo(
    config: Config,
    ledger: Ledger,
    newest: Publication,
    application: str,
    spare: DamagePolicy,
    crash: Crash,
) -> Publication:
    """Checks that every file that an undo restores exists, then records the undo in the ledger."""
    names = names_of(newest.tables)
    acts = related_acts(ledger, application, names)
    left = [act for act in acts if act.replay_id != newest.replay_id]
    covered = ledger.publications.later_overlapping(newest.number)
    details = (
        PublicationDetails()
        if covered
        else _details(
            config,
            ledger,
            newest,
            application,
            acts,
            left,
            spare,
        )
    )
    ledger.leases.acquire(newest.replay_id, names, newest.first, last=newest.last)
    try:
        crash(PublishStep.PREPARED, 1)
        versions = {name: same_table(config, newest, name).version for name in names}
        return ledger.publications.open_undo(
            newest.number,
            versions,
            details,
        )  # Raises an error if a later publication covers the range.
    except Exception:
        ledger.leases.release(newest.replay_id)
        raise


def _open_withdrawal(
    config: Config,
    ledger: Ledger,
    begun: Publication,
    application: str,
    spare: DamagePolicy,
) -> Publication:
    """Checks that every file that a withdrawal restores exists, then records the withdrawal in the
    ledger.

    It keeps the leases of the unfinished publication.
    """
    names = [table.name for table in begun.tables if Table.exists(config.stream_table(table.name))]
    acts = related_acts(ledger, application, names)
    left = [act for act in acts if act.number != begun.number]
    details = _details(
        config,
        ledger,
        begun,
        application,
        acts,
        left,
        spare,
    )
    versions = {name: open_published(config, name).version for name in names}
    return ledger.publications.open_withdrawal(begun.number, _WITHDRAWN, versions, details=details)


def _details(
    config: Config,
    ledger: Ledger,
    taken: Publication,
    application: str,
    acts: list[Publication],
    left: list[Publication],
    spare: DamagePolicy,
) -> PublicationDetails:
    """Returns all values that are needed to finish an undo.

    These are the versions to restore, for tables that contain the undone publication, and the
    windows that are stale afterwards.

    Args:
        config: current settings.
        ledger: the ledger.
        taken: the publication or undo that is reverted.
        application: its application.
        acts: all related publications and undos, including `taken`.
        left: those of them that remain in effect.
        spare: what to do about damaged files.

    Raises:
        TableError: a version that is needed was removed, or a file of it is damaged.
    """
    names = names_of(taken.tables)
    holding = [name for name in names if taken.closed_at or is_begun(config, name, taken)]
    restored = find_put_back(config, taken, acts, left=left, names=holding)
    for name, pieces in restored.items():
        if kind_of(name) is Kind.DATA and (
            reason := reason_to_put_back_with_spark(config, name, taken.range, pieces=pieces)
        ):
            spare.spark_for(name, reason)
    stateful = taken.details.stateful
    stale = stale_ranges(
        ledger,
        application,
        names,
        stateful=stateful,
        acts=acts,
        in_effect=states_in_effect(left),
    )
    before, now = find_damaged(config, taken, restored)
    if before and not spare.leave_out:
        raise damaged_error(before, spare.command)
    resolve_damage(config, now, spare.leave_out, command=spare.command)
    for entry in before:
        logger.warning(
            f'{entry.table}: windows {entry.windows} of damaged file "{entry.file.name}" cannot be '
            "restored"
        )
    put_back = {name: tuple(pieces) for name, pieces in without_damaged(restored, before).items()}
    return PublicationDetails(
        application,
        put_back=put_back,
        stale=stale,
        stateful=stateful,
        table_ids={name: open_published(config, name).id for name in holding},
    )


def find_put_back(
    config: Config,
    taken: Publication,
    acts: list[Publication],
    left: list[Publication],
    names: Iterable[str],
) -> dict[str, list[PutBack]]:
    """Checks that the files of an undo exist, and returns the ranges and versions that it restores
    in the given tables.

    Changes nothing.

    Args:
        config: current settings.
        taken, acts, left: see _details.
        names: the tables.

    Raises:
        TableError: a version that is needed, or a file of it, was removed; a table was deleted and
            created again.
    """
    remaining = [act.number for act in effective_publications(left)]
    restored = {}
    for name in names:
        table_id = same_table(config, taken, name).id
        on_table = []
        for act in acts:
            # Publications to a deleted table of the same name do not affect the current one.
            is_here = act.details.table_ids.get(name, table_id) == table_id
            if is_here and act.withdrawn is None and name in set(names_of(act.tables)):
                on_table.append(act)
        restored[name] = versions_without(on_table, name, taken, left=remaining)
        for piece in restored[name]:
            files_of(config, name, piece)
            if kind_of(name) is Kind.CHECKPOINTS:
                check_states(config, name, piece)
    return restored


def find_damaged(
    config: Config,
    taken: Publication,
    put_back: Mapping[str, Sequence[PutBack]],
) -> tuple[list[DamagedFile], list[DamagedFile]]:
    """Returns the damaged files of the versions to restore and of the current tables.

    Changes nothing.
    """
    before: list[DamagedFile] = []
    for name, pieces in put_back.items():
        for piece in pieces:
            table = open_published(config, name, piece.version)
            before += find_damage(table, name, piece.windows)
    return before, damaged_now(config, put_back, taken.range)


def without_damaged(
    put_back: Mapping[str, list[PutBack]],
    damage: list[DamagedFile],
) -> dict[str, list[PutBack]]:
    """Removes the windows of damaged files from the pieces to restore.

    Such a window is left out of all tables of a stream.
    """
    intact = {}
    for name, pieces in put_back.items():
        damaged = [file.windows for file in damage if stream_of(file.table) == stream_of(name)]
        intact[name] = without_windows(pieces, damaged)
    return intact


def newest_act(ledger: Ledger, replay: Replay) -> Publication:
    """Returns the newest publication or undo of a replay.

    Withdrawals and withdrawn publications are ignored.

    Raises:
        InputError: there is none.
    """
    acts = ledger.publications.newest(replay.replay_id)
    if not acts:
        raise InputError(
            f'replay "{replay.replay_id}" is {replay.state} and was never published, so it cannot '
            "be undone"
        )
    for act in acts:
        if act.withdrawn is None and act.kind != WITHDRAW:
            return act
    raise InputError(
        f'replay "{replay.replay_id}" was never published: its publications were withdrawn'
    )


def same_table(config: Config, publication: Publication, name: str) -> Table:
    """Returns a published table if a publication was committed to that table; otherwise None.

    Raises:
        TableError: it was deleted and created again, so earlier versions cannot be restored.
    """
    table = open_published(config, name)
    before = publication.details.table_ids.get(name, table.id)
    if before != table.id:
        raise TableError(
            f'table "{name}" is another one than publication {publication.number} was committed to',
            detail=f"It was table {before} and is now table {table.id}: it was deleted and "
            "created again. Nothing was changed.",
            hint="Publish the content that it should have, such as: rewindow publish "
            f"{publication.replay_id}",
        )
    return table
