"""Publications: records of how the windows of a replay were made visible to readers, or hidden.

Every publication has a number n, higher than all before. A publisher follows these steps. It may be
killed at any point; the next publisher of one of its tables then completes its publication:

    # A table has one publisher at a time; the lock ends with the process.
    with ledger.publications.publishing(tables) as unfinished:
        # 1. Complete the publications that a crash interrupted, oldest first.
        for publication in unfinished:
            finish(publication)
        # 2. Lock the windows, so that no other replay computes them.
        ledger.leases.acquire(replay_id, tables, first, last)
        # 3. After step 1, so that the versions are current; an undo calls open_undo(n, before).
        before = {table: current version of table}
        publication = ledger.publications.open(replay_id, before, first, last, details)
        finish(publication)

    def finish(publication):
        # 4. In the order of the tables; those that are done are skipped.
        for table in publication.tables:
            txn = transaction version of publish_app_id(table.name) in the table
            if txn < n:
                commit with txnAppId = publish_app_id(table.name), txnVersion = n,
                    userMetadata = json.dumps(publication.commit_metadata())
            # Now txn must be exactly n: no higher number is issued while n is open.
            ledger.publications.mark_done(n, table.name, version with the commit)
        # 5. Both may be repeated.
        ledger.stale.clear / mark
        # 6. Sets the state of the replay and ends its leases.
        ledger.publications.close(n)

| killed | state after the crash | the next publisher |
| --- | --- | --- |
| before open | at most a lease of the replay | nothing; takes the lease over |
| after it, before a commit | an open row, no commit | commits n everywhere |
| between commit and mark | a commit that the ledger lacks | finds txn = n, marks without a commit |
| between two tables | one table new, one old | commits n to the rest (readers may pin versions) |
| before close | all done, row open | repeats step 5, closes |

A publication or undo that cannot be completed, because its source is damaged or missing, is
withdrawn: by `withdraw` if no table has its commit, otherwise by `open_withdrawal`. A withdrawal
has its own number, restores the tables, and is completed like any publication. The undo of a replay
reverts all of its publications, including those that later ones of the same replay cover.

Because any process may complete a publication, what it writes must follow from its row alone: the
staged tables of its replay, its range, its `details`, and for an undo the versions before the
publication that it reverts. `versions_before` are recorded when the publication is opened first;
if it is opened again, they are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, update

from rewindow.errors import InputError, OverlapError
from rewindow.ledger.connection import PUBLICATION_COUNTER, LedgerPart
from rewindow.ledger.models import counters, outbox, publication_tables, publications, replays
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.ledger.publication_rows import (
    EFFECTIVE,
    PUBLISH,
    UNDO,
    WITHDRAW,
    Publication,
    StandingRange,
    find_publications,
    later_over,
    of_tables,
    read_publication,
)
from rewindow.ledger.publishing import publisher_locks
from rewindow.ledger.replays import ReplayState, end_leases, read_replay
from rewindow.sequences import names_of
from rewindow.windows import WindowRange

NO_DETAILS = PublicationDetails()


class Publications(LedgerPart):
    """The publications in the ledger, with their numbers.

    The docstring of this module describes the protocol.
    """

    @contextmanager
    def publishing(self, tables: Iterable[str], wait_s: float = 5.0) -> Iterator[list[Publication]]:
        """Locks tables for publishing, and yields the open publications that must be completed
        first, oldest first.

        The tables of these publications are locked, too. If another publisher has a lock, the
        method waits.

        Args:
            tables: the tables to be published.
            wait_s: longest wait for locks, in seconds.

        Raises:
            OverlapError: another process publishes one of the tables.
        """
        wanted = set(tables)
        while True:
            with publisher_locks(
                self._database.place,
                self._database.engine,
                wanted,
                wait_s=wait_s,
            ) as refused:
                unfinished = self.unfinished(wanted)
                if refused is not None:
                    raise _being_published(refused, unfinished)
                more = {
                    table.name for publication in unfinished for table in publication.tables
                } - wanted
                if not more:
                    yield unfinished
                    return
            wanted |= more

    def open(
        self,
        replay_id: str,
        versions_before: Mapping[str, int | None],
        first: int,
        last: int,
        details: PublicationDetails = NO_DETAILS,
    ) -> Publication:
        """Records a publication before its first commit and returns it with its number.

        The tables are committed in the order in which they are given. An open publication of the
        same replay, range and tables is returned unchanged.

        Raises:
            InputError: the replay is neither checked nor accepted, or does not contain the range.
            OverlapError: another publication of one of the tables is open and must be completed
                first.
        """
        windows = WindowRange(first, last)
        with self.serialised() as connection:
            replay = read_replay(connection, replay_id)
            if replay.range.overlap(windows) != windows:
                raise InputError(
                    f'windows {windows} are not all in replay "{replay_id}", which has '
                    f"{replay.range}"
                )
            existing = _same_open(
                connection, replay_id, PUBLISH, tables=versions_before, windows=windows
            )
            if existing is not None:
                return existing
            if replay.state not in (ReplayState.CHECKED, ReplayState.PUBLISHED, ReplayState.UNDONE):
                raise InputError(
                    f'replay "{replay_id}" is {replay.state}, but only a checked one can be '
                    "published",
                    hint=f"Run its gate (rewindow check {replay_id}), or accept it with a reason.",
                )
            row = {
                "replay_id": replay_id,
                "kind": PUBLISH,
                "first": first,
                "last": last,
            }
            return self._open(connection, row, versions_before, details)

    def open_undo(
        self,
        number: int,
        versions_before: Mapping[str, int | None],
        details: PublicationDetails = NO_DETAILS,
    ) -> Publication:
        """Records the undo of a publication before its first commit, and returns it with a new
        number.

        Raises:
            InputError: the publication is open, is itself an undo, or is undone; a later one
                overlaps it (the error names it); the tables differ.
            OverlapError: another publication of one of the tables is open and must be completed
                first.
        """
        with self.serialised() as connection:
            undone = read_publication(connection, number)
            existing = _same_open(
                connection, undone.replay_id, UNDO, tables=versions_before, windows=undone.range
            )
            if existing is not None and existing.undoes == number:
                return existing
            _check_undoable(connection, undone)
            if set(versions_before) != set(names_of(undone.tables)):
                raise InputError(
                    f"publication {number} has other tables: {names_of(undone.tables)}"
                )
            row = {
                "replay_id": undone.replay_id,
                "kind": UNDO,
                "first": undone.first,
                "last": undone.last,
            }
            return self._open(connection, {**row, "undoes": number}, versions_before, details)

    def check_uncovered(self, number: int) -> None:
        """Checks that no later publication overlaps a publication.

        Only then can it be undone.

        Raises:
            InputError: names the later publications.
        """
        with self.reading() as connection:
            _check_uncovered(connection, read_publication(connection, number))

    def open_withdrawal(
        self,
        number: int,
        reason: str,
        versions_before: Mapping[str, int],
        details: PublicationDetails = NO_DETAILS,
    ) -> Publication:
        """Withdraws an open publication, and records the withdrawal that reverts its commits, with
        a new number.

        Raises:
            InputError: the publication is closed, or is itself a withdrawal.
        """
        with self.serialised() as connection:
            unfinished = read_publication(connection, number)
            if unfinished.closed_at is not None or unfinished.kind == WITHDRAW:
                what = "is closed" if unfinished.closed_at is not None else "is a withdrawal"
                raise InputError(f"publication {number} {what} and cannot be withdrawn")
            its = publications.c.number == number
            connection.execute(
                update(publications).where(its).values(closed_at=self.now, withdrawn=reason)
            )
            row = {
                "replay_id": unfinished.replay_id,
                "kind": WITHDRAW,
                "first": unfinished.first,
                "last": unfinished.last,
            }
            return self._open(
                connection,
                {**row, "undoes": number},
                versions_before,
                replace(details, reason=reason),
            )

    def _open(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        versions_before: Mapping[str, int | None],
        details: PublicationDetails,
    ) -> Publication:
        step = (
            update(counters)
            .where(counters.c.name == PUBLICATION_COUNTER)
            .values(value=counters.c.value + 1)
        )
        number = int(connection.execute(step.returning(counters.c.value)).scalar_one())
        values = {
            **row,
            "number": number,
            "details": details.to_json(),
            "opened_at": self.now,
        }
        connection.execute(insert(publications).values(**values))
        tables = [
            {
                "number": number,
                "table_name": name,
                "position": position,
                "version_before": version,
            }
            for position, (name, version) in enumerate(versions_before.items())
        ]
        assert tables, "a publication has a table"
        connection.execute(insert(publication_tables), tables)
        return read_publication(connection, number)

    def mark_done(self, number: int, table_name: str, version: int) -> None:
        """Records that a table has the publication's commit, and the version of that commit.

        Repeated calls change nothing.
        """
        c = publication_tables.c
        undone = (c.number == number) & (c.table_name == table_name) & c.done_at.is_(None)
        with self.writing() as connection:
            values = {"version_after": version, "done_at": self.now}
            connection.execute(update(publication_tables).where(undone).values(**values))

    def close(self, number: int) -> None:
        """Ends a publication whose tables are all done, puts it into the outbox, sets the state of
        its replay and ends the replay's leases.

        Repeated calls change nothing.
        """
        with self.serialised() as connection:
            publication = read_publication(connection, number)
            if publication.closed_at is not None:
                return
            missing = [table.name for table in publication.tables if not table.done]
            assert not missing, f"publication {number} is not done for {missing}"
            self._close(connection, publication)
            connection.execute(insert(outbox).values(number=number))
            if publication.kind == WITHDRAW:
                # The withdrawn publication had not changed the state of the replay yet.
                return
            replay_id = publication.replay_id
            remaining = find_publications(
                connection,
                EFFECTIVE & (publications.c.replay_id == replay_id),
                limit=1,
            )
            state = ReplayState.PUBLISHED if remaining else ReplayState.UNDONE
            values = {"state": state, "message": "", "changed_at": self.now}
            connection.execute(
                update(replays).where(replays.c.replay_id == replay_id).values(**values)
            )

    def withdraw(self, number: int, reason: str) -> None:
        """Withdraws an open publication that has no commits and cannot be completed, for example
        because its table was deleted.

        Raises:
            InputError: it is closed, or a table has its commit; then it must be completed and
                undone.
        """
        with self.serialised() as connection:
            publication = read_publication(connection, number)
            done = [table.name for table in publication.tables if table.done]
            if publication.closed_at is not None or done:
                what = f'has been committed to table "{done[0]}"' if done else "is closed"
                raise InputError(
                    f"publication {number} {what} and cannot be withdrawn",
                    hint=f"Complete it: rewindow publish {publication.replay_id}; to withdraw it, "
                    "add --withdraw.",
                )
            self._close(connection, publication, withdrawn=reason)

    def _close(self, connection: Connection, publication: Publication, **values: Any) -> None:
        its = publications.c.number == publication.number
        connection.execute(update(publications).where(its).values(closed_at=self.now, **values))
        end_leases(connection, publication.replay_id)

    def get(self, number: int) -> Publication:
        """Returns a publication.

        Raises:
            InputError: no publication has this number.
        """
        with self.reading() as connection:
            return read_publication(connection, number)

    def newest(
        self,
        replay_id: str | None = None,
        table_name: str | None = None,
        application: str | None = None,
        limit: int = 100,
    ) -> list[Publication]:
        """Returns publications, newest first; of all, or of one replay, table or application."""
        wanted: ColumnElement[bool] = publications.c.number > 0
        if replay_id is not None:
            wanted &= publications.c.replay_id == replay_id
        if table_name is not None:
            wanted &= of_tables([table_name])
        if application is not None:
            its = select(replays.c.replay_id).where(replays.c.application == application)
            wanted &= publications.c.replay_id.in_(its)
        with self.reading() as connection:
            return find_publications(connection, wanted, limit=limit)

    def unfinished(self, tables: Iterable[str] | None = None) -> list[Publication]:
        """Returns the open publications, which must be completed, oldest first; of all tables, or
        of the given ones.
        """
        wanted: ColumnElement[bool] = publications.c.closed_at.is_(None)
        if tables is not None:
            wanted &= of_tables(tables)
        with self.reading() as connection:
            return find_publications(connection, wanted)[::-1]

    def of_replays(self, replay_ids: Sequence[str]) -> dict[str, list[Publication]]:
        """Returns the publications of some replays, newest first. Replays without one are left
        out.
        """
        with self.reading() as connection:
            acts = find_publications(connection, publications.c.replay_id.in_(replay_ids))
        found: dict[str, list[Publication]] = {}
        for act in acts:
            found.setdefault(act.replay_id, []).append(act)
        return found

    def standing(self, table_names: Iterable[str]) -> dict[str, list[StandingRange]]:
        """Returns the ranges of the effective publications of some tables, by table, oldest first.

        A publication is effective if it was neither withdrawn nor undone. Only its range is read,
        so that thousands of publications take milliseconds.
        """
        c = publication_tables.c
        its = publications.c
        query = (
            select(c.table_name, its.number, its.replay_id, its.first, its.last)
            .join(publications, its.number == c.number)
            .where(EFFECTIVE, its.closed_at.is_not(None), c.table_name.in_(set(table_names)))
            .order_by(its.number)
        )
        found: dict[str, list[StandingRange]] = {}
        with self.reading() as connection:
            for table_name, number, replay_id, first, last in connection.execute(query):
                standing = StandingRange(number, replay_id, WindowRange(first, last))
                found.setdefault(table_name, []).append(standing)
        return found

    def later_overlapping(self, number: int) -> list[Publication]:
        """Returns the later effective publications that overlap this one in one of its tables,
        newest first.
        """
        with self.reading() as connection:
            return later_over(connection, read_publication(connection, number))


def _same_open(
    connection: Connection,
    replay_id: str,
    kind: str,
    tables: Iterable[str],
    windows: WindowRange,
) -> Publication | None:
    """Returns the open publication of the same replay, kind, range and tables; None if there is
    none.

    Raises:
        OverlapError: another publication of one of the tables is open.
    """
    names = set(tables)
    for act in find_publications(
        connection,
        publications.c.closed_at.is_(None) & of_tables(names),
    ):
        same = (act.replay_id, act.kind, act.range) == (replay_id, kind, windows)
        if not same or set(names_of(act.tables)) != names:
            raise OverlapError(
                f'publication {act.number} of replay "{act.replay_id}" is open and must be '
                "completed first",
                holder=act.replay_id,
                hint="Its publisher still runs, or was killed; if it was killed: rewindow publish "
                f"{act.replay_id}",
            )
        return act
    return None


def _check_undoable(connection: Connection, publication: Publication) -> None:
    number = publication.number
    if publication.kind != PUBLISH or publication.withdrawn is not None:
        raise InputError(
            f"publication {number} is an undo, or was withdrawn: there is nothing to undo"
        )
    if publication.closed_at is None:
        raise InputError(
            f"publication {number} is open",
            hint=f"First: rewindow publish {publication.replay_id}",
        )
    if not find_publications(connection, EFFECTIVE & (publications.c.number == number)):
        raise InputError(f"publication {number} is already undone")
    _check_uncovered(connection, publication)


def _check_uncovered(connection: Connection, publication: Publication) -> None:
    number = publication.number
    later = later_over(connection, publication)
    if later:
        names = ", ".join(
            f'{act.number} (replay "{act.replay_id}", windows {act.range})' for act in later
        )
        raise InputError(
            f"cannot undo publication {number}: later publications overlap it",
            detail=f"Later: {names}.",
            hint=f"Undo the newest first: rewindow undo {later[0].replay_id}",
        )


def _being_published(table_name: str, unfinished: list[Publication]) -> OverlapError:
    named = [act for act in unfinished if table_name in set(names_of(act.tables))]
    detail = (
        f'It is publication {named[0].number}, {named[0].kind} of replay "{named[0].replay_id}".'
        if named
        else ""
    )
    return OverlapError(
        f'table "{table_name}" is being published by another process',
        holder=named[0].replay_id if named else "",
        detail=detail,
        hint="Wait until it has ended and try again.",
    )
