"""The outbox: publications that changed what readers see, and whose asset events Airflow may not
have yet.

The transaction that closes a publication also puts it into the outbox, whichever process publishes.
A task of Airflow emits its events only when it succeeds, so it cannot record this itself. Instead
it records that it is the emitter; a later task asks Airflow for the events, and marks the
publication as done or emits again. So each publication is emitted at least once.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from sqlalchemy import select, update

from rewindow.ledger.connection import LedgerPart
from rewindow.ledger.models import outbox, publications
from rewindow.ledger.publication_rows import Publication, find_publications


@dataclass(frozen=True)
class Emitter:
    """A task instance of Airflow that emits the asset events of a publication when it succeeds.

    Attributes:
        map_index: index of a mapped task instance; -1 if the task is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class Outbox(LedgerPart):
    """The publications in the ledger whose asset events are not known to be emitted."""

    def waiting(self, count_max: int) -> list[tuple[Publication, Emitter | None]]:
        """Returns the oldest publications in the outbox with their emitters, oldest first.

        The emitter is None if no task has emitted the publication yet.
        """
        rows = select(outbox).where(outbox.c.done_at.is_(None)).order_by(outbox.c.number)
        with self.reading() as connection:
            emitters = {}
            for row in connection.execute(rows.limit(count_max)):
                values = (row.dag_id, row.run_id, row.task_id, row.map_index)
                emitters[row.number] = Emitter(*values) if row.dag_id is not None else None
            acts = find_publications(connection, publications.c.number.in_(emitters))
        return [(act, emitters[act.number]) for act in reversed(acts)]

    def take(self, number: int, emitter: Emitter, previous: Emitter | None) -> bool:
        """Records the emitter of a publication in place of the previous one.

        Returns False if another task was faster: the publication is done, or has another emitter.
        """
        columns = (outbox.c.dag_id, outbox.c.run_id, outbox.c.task_id, outbox.c.map_index)
        unchanged = (outbox.c.number == number) & outbox.c.done_at.is_(None)
        before = (None,) * len(columns) if previous is None else astuple(previous)
        for column, value in zip(columns, before, strict=True):
            unchanged &= column.is_not_distinct_from(value)
        values = dict(zip(columns, astuple(emitter), strict=True))
        with self.writing() as connection:
            step = update(outbox).where(unchanged).values(values).returning(outbox.c.number)
            return connection.execute(step).first() is not None

    def mark_done(self, number: int) -> None:
        """Records that the asset events of a publication are emitted."""
        undone = (outbox.c.number == number) & outbox.c.done_at.is_(None)
        with self.writing() as connection:
            connection.execute(update(outbox).where(undone).values(done_at=self.now))
