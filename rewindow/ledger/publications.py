"""Publications: the recorded act of making a replay's windows visible, and of taking that back.

Every publication has a number n, higher than any before. A publisher follows these steps; it may be
killed at any point, and the next publisher of one of its tables, whoever that is, goes on from
there:

    # One publisher a table; the lock ends with the process.
    with ledger.publications.publishing(tables) as unfinished:
        # 1. Roll forward what a crash left, oldest first.
        for publication in unfinished:
            finish(publication)
        # 2. No replay works on the same windows.
        ledger.leases.acquire(replay_id, tables, first, last)
        # 3. Under the lock, after rolling forward; an undo calls open_undo(n, before).
        before = {table: version now of table}
        publication = ledger.publications.open(replay_id, before, first, last, details)
        finish(publication)

    def finish(publication):
        # 4. In the order of the tables; skip those that are done.
        for table in publication.tables:
            txn = transaction version of publish_app_id(table.name) in the table
            if txn < n:
                commit with txnAppId = publish_app_id(table.name), txnVersion = n,
                    userMetadata = json.dumps(publication.commit_metadata())
            # Now txn must be exactly n: no higher number is issued while n is open.
            ledger.publications.mark_done(n, table.name, version that holds n)
        # 5. Both may be repeated.
        ledger.stale.clear / mark
        # 6. State of the replay, end of its leases.
        ledger.publications.close(n)

| killed | what is there | the next publisher |
| --- | --- | --- |
| before open_publication | a lease of the replay at most | nothing; takes the lease over |
| after it, before a commit | an open row, no commit | commits n everywhere |
| between commit and mark | a commit the ledger misses | sees txn = n, commits nothing, marks |
| between two tables | one table new, one old | commits n to the rest (readers may pin versions) |
| before close_publication | all done, row open | repeats step 5, closes |

A publication or undo that cannot be finished, since its source is damaged or gone, is given up:
`withdraw` if no table has it; otherwise `open_withdrawal`, an act with a separate number that
restores the tables and is finished like any other. A replay has at most one publication
that stands: the undo of a replay takes back all of its publications, also those that lie below
others.

What a publication writes must therefore follow from its row alone: the staged tables of its replay,
its range, its `details`, and for an undo the versions before of the publication that it takes back.
`versions_before` are those of the first opening; opening again returns them unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import starmap
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, update

from rewindow.errors import InputError, OverlapError
from rewindow.ledger.connection import PUBLICATION_COUNTER, LedgerPart
from rewindow.ledger.models import counters, publication_tables, publications, replays
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.ledger.publication_rows import (
    EFFECTIVE,
    PUBLISH,
    UNDO,
    WITHDRAW,
    Publication,
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
    """The part of the ledger that numbers and keeps publications; the protocol is in this module's
    docstring.
    """

    @contextmanager
    def publishing(self, tables: Iterable[str], wait_s: float = 5.0) -> Iterator[list[Publication]]:
        """Makes this process the one publisher of tables; gives the publications to be rolled
        forward first.

        Tables of those publications are locked too. Another publisher's lock is waited for a
        moment.

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
        """Enters a publication before its first commit and returns it with its number.

        The tables are committed in the order in which they are given. An open publication of the
        same replay, range and tables is returned as it was entered.

        Raises:
            InputError: the replay is neither checked nor accepted, or the range is not inside its
                own.
            OverlapError: another publication of one of the tables is open and must be rolled
                forward first.
        """
        windows = WindowRange(first, last)
        with self.serialised() as connection:
            replay = read_replay(connection, replay_id)
            if replay.range.overlap(windows) != windows:
                raise InputError(
                    f'windows {windows} are not all of replay "{replay_id}", which has '
                    f"{replay.range}"
                )
            there = _same_open(
                connection, replay_id, PUBLISH, tables=versions_before, windows=windows
            )
            if there is not None:
                return there
            if replay.state not in (ReplayState.CHECKED, ReplayState.PUBLISHED, ReplayState.UNDONE):
                raise InputError(
                    f'replay "{replay_id}" is {replay.state}, only a checked one can be published',
                    hint=f"Run its gate (rewindow check {replay_id}), or accept it as it is, with "
                    "a reason.",
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
        """Enters the undo of a publication before its first commit and returns it with a number of
        its own.

        Raises:
            InputError: it is open, an undo itself, or undone; a later one overlaps it (names that);
                other tables.
            OverlapError: another publication of one of the tables is open and must be rolled
                forward first.
        """
        with self.serialised() as connection:
            undone = read_publication(connection, number)
            there = _same_open(
                connection, undone.replay_id, UNDO, tables=versions_before, windows=undone.range
            )
            if there is not None and there.undoes == number:
                return there
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
        """Refuses a publication that cannot be undone yet, as later ones stand over windows of it.

        Raises:
            InputError: names them.
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
        """Gives up an act that was begun and enters the one that takes its commits back, with a
        number of its own.

        Raises:
            InputError: it is closed, or a withdrawal itself.
        """
        with self.serialised() as connection:
            begun = read_publication(connection, number)
            if begun.closed_at is not None or begun.kind == WITHDRAW:
                what = "is closed" if begun.closed_at is not None else "is a withdrawal"
                raise InputError(f"publication {number} {what} and cannot be withdrawn")
            its = publications.c.number == number
            connection.execute(
                update(publications).where(its).values(closed_at=self.now, withdrawn=reason)
            )
            row = {
                "replay_id": begun.replay_id,
                "kind": WITHDRAW,
                "first": begun.first,
                "last": begun.last,
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
        """Enters that a table holds the publication's commit, at a version; again changes
        nothing.
        """
        c = publication_tables.c
        undone = (c.number == number) & (c.table_name == table_name) & c.done_at.is_(None)
        with self.writing() as connection:
            values = {"version_after": version, "done_at": self.now}
            connection.execute(update(publication_tables).where(undone).values(**values))

    def close(self, number: int) -> None:
        """Ends a publication whose tables are all done, sets its replay's state and ends its
        leases; idempotent.
        """
        with self.serialised() as connection:
            publication = read_publication(connection, number)
            if publication.closed_at is not None:
                return
            missing = [table.name for table in publication.tables if not table.done]
            assert not missing, f"publication {number} is not done for {missing}"
            self._close(connection, publication)
            if publication.kind == WITHDRAW:
                # The replay is in the state in which it was before the act that was withdrawn.
                return
            replay_id = publication.replay_id
            still_there = find_publications(
                connection,
                EFFECTIVE & (publications.c.replay_id == replay_id),
                limit=1,
            )
            state = ReplayState.PUBLISHED if still_there else ReplayState.UNDONE
            values = {"state": state, "message": "", "changed_at": self.now}
            connection.execute(
                update(replays).where(replays.c.replay_id == replay_id).values(**values)
            )

    def withdraw(self, number: int, reason: str) -> None:
        """Gives up an open publication that cannot be rolled forward, such as when its table was
        dropped.

        Raises:
            InputError: it is closed, or a table of it is done; then it can only be rolled forward
                and undone.
        """
        with self.serialised() as connection:
            publication = read_publication(connection, number)
            done = [table.name for table in publication.tables if table.done]
            if publication.closed_at is not None or done:
                what = f'has been committed to table "{done[0]}"' if done else "is closed"
                raise InputError(
                    f"publication {number} {what} and cannot be withdrawn",
                    hint=f"Roll it forward: rewindow publish {publication.replay_id}; to take it "
                    "back add --withdraw.",
                )
            self._close(connection, publication, withdrawn=reason)

    def _close(self, connection: Connection, publication: Publication, **values: Any) -> None:
        its = publications.c.number == publication.number
        connection.execute(update(publications).where(its).values(closed_at=self.now, **values))
        end_leases(connection, publication.replay_id)

    def get(self, number: int) -> Publication:
        """Returns a publication.

        Raises:
            InputError: there is none of this number.
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
        """Returns publications, newest first; of one replay, one table or one application if so
        asked.
        """
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
        """Returns the publications that must be rolled forward, oldest first; of some tables if so
        asked.
        """
        wanted: ColumnElement[bool] = publications.c.closed_at.is_(None)
        if tables is not None:
            wanted &= of_tables(tables)
        with self.reading() as connection:
            return find_publications(connection, wanted)[::-1]

    def standing_ranges(self, table_name: str) -> list[WindowRange]:
        """Returns the ranges of the publications that stand in a table, oldest first; undone ones
        do not.
        """
        wanted = EFFECTIVE & publications.c.closed_at.is_not(None) & of_tables([table_name])
        query = (
            select(publications.c.first, publications.c.last)
            .where(wanted)
            .order_by(publications.c.number)
        )
        with self.reading() as connection:
            return list(starmap(WindowRange, connection.execute(query)))

    def later_overlapping(self, number: int) -> list[Publication]:
        """Returns the later publications that stand over windows of this one in one of its tables,
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
    """Returns the open publication that is asked for again.

    Raises:
        OverlapError: another one of its tables is open.
    """
    names = set(tables)
    for there in find_publications(
        connection,
        publications.c.closed_at.is_(None) & of_tables(names),
    ):
        same = (there.replay_id, there.kind, there.range) == (replay_id, kind, windows)
        if not same or set(names_of(there.tables)) != names:
            raise OverlapError(
                f'publication {there.number} of replay "{there.replay_id}" is open and must be '
                "rolled forward first",
                holder=there.replay_id,
                hint="Its publisher still works, or was killed; then: rewindow publish "
                f"{there.replay_id}",
            )
        return there
    return None


def _check_undoable(connection: Connection, publication: Publication) -> None:
    number = publication.number
    if publication.kind != PUBLISH or publication.withdrawn is not None:
        raise InputError(
            f"publication {number} is no publication that stands: there is nothing to undo"
        )
    if publication.closed_at is None:
        raise InputError(
            f"publication {number} is open",
            hint=f"First: rewindow publish {publication.replay_id}",
        )
    if not find_publications(connection, EFFECTIVE & (publications.c.number == number)):
        raise InputError(f"publication {number} is undone already")
    _check_uncovered(connection, publication)


def _check_uncovered(connection: Connection, publication: Publication) -> None:
    number = publication.number
    later = later_over(connection, publication)
    if later:
        names = ", ".join(
            f'{one.number} (replay "{one.replay_id}", windows {one.range})' for one in later
        )
        raise InputError(
            f"publication {number} cannot be undone before later ones that overlap it",
            detail=f"Later: {names}.",
            hint=f"Undo the newest first: rewindow undo {later[0].replay_id}",
        )


def _being_published(table_name: str, unfinished: list[Publication]) -> OverlapError:
    named = [one for one in unfinished if table_name in set(names_of(one.tables))]
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
