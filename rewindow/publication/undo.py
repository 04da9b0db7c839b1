"""Taking back: the undo of a publication, and the withdrawal of an act that was begun and cannot be
finished.

Both put tuples, seals and checkpoints of the range into the state in which they would be without
the act. Which versions of the tables show that follows from the acts over the range
(`rewindow.publication.history`).
"""

from __future__ import annotations

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

Say = Callable[[str], object]
_WITHDRAWN = "withdrawn on request"


@dataclass(frozen=True)
class DamagePolicy:
    """What to do about files that cannot simply be put back.

    Attributes:
        leave_out: leave the windows of damaged ones out.
        command: the command that would.
        say: told what is left out.
        spark_for: told a table that needs Spark and why, before anything is begun.
    """

    leave_out: bool
    command: str
    say: Say
    spark_for: Callable[[str, str], object] = lambda table, reason: None


def undo(
    config: Config,
    replay_id: str,
    *,
    spark: SparkSession | None = None,
    leave_out_damaged: bool = False,
    crash: Crash = crash_point,
    say: Say = lambda line: None,
) -> PublicationResult:
    """Takes a replay's publications back: its range again shows what it would show without them.

    Again it changes nothing.

    Args:
        spark: see publish.
        leave_out_damaged: windows whose files are damaged, now or in the versions before, are
            missing afterwards.
        crash: called after each step.
        say: told what is done, in lines for people.

    Raises:
        SparkNeeded: see publish.
        InputError: the replay is not published, or a later publication overlaps it (names that).
        TableError: the versions before were removed by VACUUM or log cleanup; a file is damaged
            (names its windows).
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
        publisher = Publisher(spark, config, ledger, crash=crash, say=say)
        rolled = publisher.roll_all_forward(unfinished)
        newest = newest_act(ledger, replay)
        if newest.kind == UNDO:
            return result_of(config, ledger, newest, already=True, rolled=rolled)
        spare = DamagePolicy(
            leave_out_damaged,
            f"rewindow undo {replay_id}",
            say,
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
    say: Say = lambda line: None,
) -> PublicationResult:
    """Gives up the publication or the undo of a replay that was begun; the tables show again what
    they showed before.

    The staged tables are not needed for it. Again it changes nothing.

    Args:
        spark, leave_out_damaged, crash, say: see undo.

    Raises:
        InputError: nothing of the replay was begun and left open.
        TableError: the versions before were removed by VACUUM or log cleanup; a file is damaged
            (names its windows).
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
        publisher = Publisher(spark, config, ledger, crash=crash, say=say)
        mine = [act for act in unfinished if act.replay_id == replay_id and act.kind != WITHDRAW]
        rolled = publisher.roll_all_forward(excluding(unfinished, mine))
        if not mine:
            newest = next(iter(ledger.publications.newest(replay_id, limit=1)), None)
            if newest is not None and (newest.kind == WITHDRAW or newest.withdrawn is not None):
                return result_of(config, ledger, newest, already=True, rolled=rolled)
            raise InputError(
                f'replay "{replay_id}" has no publication that was begun and left open',
                detail=f"It is {replay.state}.",
                hint=f"Take back a publication that was finished with: rewindow undo {replay_id}",
            )
        (begun,) = mine
        crash(PublishStep.PREPARED, 1)
        if not any(is_begun(config, table.name, begun) for table in begun.tables):
            ledger.publications.withdraw(begun.number, _WITHDRAWN)
            return result_of(config, ledger, ledger.publications.get(begun.number), rolled=rolled)
        spare = DamagePolicy(
            leave_out_damaged,
            f"rewindow publish {replay_id} --withdraw",
            say,
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
    """Enters an undo once it is sure that what it puts back is there."""
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
        )  # Refuses, by name, what later ones cover.
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
    """Enters a withdrawal once it is sure that what it puts back is there; its leases are those of
    the act.
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
    """Returns all that finishing needs: the versions to put back, of tables that hold the act, and
    what is stale then.

    Args:
        taken: the act that is taken back.
        acts: it and all that are related to it.
        left: those of them that then count.
        spare: what to do about damaged files.

    Raises:
        TableError: a version that is needed was removed, or a file of it is damaged.
    """
    names = names_of(taken.tables)
    holding = [name for name in names if taken.closed_at or is_begun(config, name, taken)]
    found = find_put_back(config, taken, acts, left=left, names=holding)
    for name, pieces in found.items():
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
    before, now = find_damaged(config, taken, found)
    if before and not spare.leave_out:
        raise damaged_error(before, spare.command)
    resolve_damage(config, now, spare.leave_out, command=spare.command, say=spare.say)
    for entry in before:
        spare.say(
            f'{entry.table}: windows {entry.windows} of damaged file "{entry.file.name}" cannot be '
            "put back"
        )
    put_back = {name: tuple(pieces) for name, pieces in without_damaged(found, before).items()}
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
    """Returns, for some tables of an act, what is put back when it is taken back, all of it there;
    changes nothing.

    Args:
        taken, acts, left: see _details.
        names: the tables.

    Raises:
        TableError: a version that is needed, or a file of it, was removed; a table was deleted and
            created again.
    """
    remaining = [act.number for act in effective_publications(left)]
    found = {}
    for name in names:
        table_id = same_table(config, taken, name).id
        on_table = []
        for act in acts:
            # Acts on a table of this name that was deleted have left nothing in the present one.
            is_here = act.details.table_ids.get(name, table_id) == table_id
            if is_here and act.withdrawn is None and name in set(names_of(act.tables)):
                on_table.append(act)
        found[name] = versions_without(on_table, name, taken, left=remaining)
        for piece in found[name]:
            files_of(config, name, piece)
            if kind_of(name) is Kind.CHECKPOINTS:
                check_states(config, name, piece)
    return found


def find_damaged(
    config: Config,
    taken: Publication,
    put_back: Mapping[str, Sequence[PutBack]],
) -> tuple[list[DamagedFile], list[DamagedFile]]:
    """Returns the damaged files of what is put back, and of what an act's tables hold now; changes
    nothing.
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
    """Returns what is put back without the windows of damaged files; a window is left out of a
    stream's every table.
    """
    whole = {}
    for name, pieces in put_back.items():
        gone = [file.windows for file in damage if stream_of(file.table) == stream_of(name)]
        whole[name] = without_windows(pieces, gone)
    return whole


def newest_act(ledger: Ledger, replay: Replay) -> Publication:
    """Returns what was done last for a replay, but for what was withdrawn and its withdrawal.

    Raises:
        InputError: nothing was.
    """
    acts = ledger.publications.newest(replay.replay_id)
    if not acts:
        raise InputError(
            f'replay "{replay.replay_id}" is {replay.state} and was never published: there is '
            "nothing to undo"
        )
    for act in acts:
        if act.withdrawn is None and act.kind != WITHDRAW:
            return act
    raise InputError(
        f'replay "{replay.replay_id}" was never published: its publications were given up'
    )


def same_table(config: Config, publication: Publication, name: str) -> Table:
    """Returns a published table, if it is the one that a publication was committed to.

    Raises:
        TableError: it was deleted and made anew since, so that nothing of before can be put back
            into it.
    """
    table = open_published(config, name)
    before = publication.details.table_ids.get(name, table.id)
    if before != table.id:
        raise TableError(
            f'table "{name}" is another one than publication {publication.number} was committed to',
            detail=f"It was table {before}, there is {table.id}: it was deleted and made anew. "
            "Nothing was changed.",
            hint="Publish what you want to see there, such as: rewindow publish "
            f"{publication.replay_id}",
        )
    return table
