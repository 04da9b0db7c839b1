"""Finishes a publication or an undo: commits to each of its tables, records stale windows, and
closes it. Can be repeated.

All steps are computed from the publication's entry in the ledger, so that another process can
finish a publication whose process was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rewindow.errors import CheckpointError, InputError, RewindowError, TableError
from rewindow.facts.readers import staged_seals
from rewindow.facts.seals import columns_text
from rewindow.ledger import Ledger, Publication
from rewindow.ledger.staleness import REOPENED
from rewindow.names import stream_of
from rewindow.progress.steps import counted, step
from rewindow.publication.by_files import (
    publish_files,
    put_back,
    reason_to_publish_with_spark,
    reason_to_put_back_with_spark,
    verify_links,
)
from rewindow.publication.commits import (
    commit_once,
    is_begun,
    is_conflict,
    write_arrow,
    write_empty,
    write_spark,
)
from rewindow.publication.contents import checkpoint_rows, files_of, published_seals, rows_before
from rewindow.publication.preview import TablePreview, table_preview
from rewindow.publication.spark_needed import SparkNeeded
from rewindow.publication.staged_files import StagedFiles, staged_files
from rewindow.publication.staged_output import StagedOutput
from rewindow.publication.steps import Crash, PublishStep
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage.damage import DamagedFile, damaged_error, damaged_now, find_damage
from rewindow.storage.delta import DataFile
from rewindow.storage.files import note_files, open_files
from rewindow.storage.layout import CHECKPOINTS, FACTS, event_columns, staged_contents, versions_of
from rewindow.storage.names import open_published
from rewindow.storage.new_files import NewFile
from rewindow.storage.published_tables import Kind, kind_of, targets_of
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange, without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass
class Publisher:
    """Finishes open publications and undos.

    Attributes:
        spark: session for tables that cannot be written without Spark; None: such a table raises
            SparkNeeded.

    Tables, rows and files are read once per publisher and cached: `_replays` has the replays of
    publications by their number, `_staged` staged outputs with their seals, `_checked` the result
    of comparing them with the seals, `_verified` the publications whose staged tables were compared
    with the checked ones, and `_taken` the checksums of linked files by table.
    """

    spark: SparkSession | None
    config: Config
    ledger: Ledger
    crash: Crash
    _taken: dict[str, dict[str, str]] = field(default_factory=dict)
    _verified: set[str] = field(default_factory=set)
    _replays: dict[int, StagedReplay] = field(default_factory=dict)
    _staged: dict[str, StagedOutput] = field(default_factory=dict)
    _checked: dict[str, StagedFiles] = field(default_factory=dict)

    def roll_forward(self, publication: Publication) -> Publication:
        """Finishes a publication that a killed publisher left open.

        If none of its commits was made and its source is missing, the publication is withdrawn
        instead.
        """
        logger.info(
            f"publication {publication.number} of replay {publication.replay_id} was left open: "
            "finishing it"
        )
        try:
            return self.finish(publication)
        except (TableError, CheckpointError, InputError) as error:
            if any(is_begun(self.config, table.name, publication) for table in publication.tables):
                raise _unfinishable(publication, error) from error
            logger.warning(f"publication {publication.number} is withdrawn: {error.primary}")
            self.ledger.publications.withdraw(publication.number, error.primary)
            return self.ledger.publications.get(publication.number)

    def roll_all_forward(self, unfinished: Iterable[Publication]) -> list[int]:
        """Finishes the publications that killed publishers left open, and returns their numbers."""
        return [self.roll_forward(publication).number for publication in unfinished]

    def finish(self, publication: Publication) -> Publication:
        """Commits to each table that lacks the publication, in order, then records stale windows
        and closes the publication.

        Raises:
            FencedError: a table has a later publication.
            TableError: the source of the publication or undo is missing or was changed.
        """
        versions = {table.name: table.version_after for table in publication.tables}
        for number, table in enumerate(publication.tables, start=1):
            if table.done:
                continue
            commit = partial(self._commit, publication, table.name, versions)
            version = commit_once(self.config, table.name, publication, commit=commit)
            versions[table.name] = version
            self._settle_files(publication, table.name)
            self.crash(PublishStep.TABLE_COMMITTED, number)
            self.ledger.publications.mark_done(publication.number, table.name, version)
            windows = self.ledger.replays.get(publication.replay_id).describe(publication.range)
            logger.info(f"{table.name}: windows {windows} replaced, version {version}")
            self.crash(PublishStep.TABLE_MARKED, number)
        self._mark_stale(publication)
        self.crash(PublishStep.SETTLED, 1)
        self.ledger.publications.close(publication.number)
        self.crash(PublishStep.CLOSED, 1)
        return self.ledger.publications.get(publication.number)

    def _settle_files(self, publication: Publication, name: str) -> None:
        """Checks the files that a commit has added to a table of tuples, and records their
        checksums.

        Only after that does the commit count as done.
        """
        if kind_of(name) is Kind.DATA:
            verify_links(
                self.config, publication, name, sources=lambda: self._sources(publication, name)
            )
            data = open_published(self.config, name)
            note_files(data, open_files(data.path), self._taken.get(name))

    def _sources(self, publication: Publication, name: str) -> list[DataFile]:
        """Returns the files that a commit to a table of tuples can have linked, whether they exist
        or not.
        """
        if publication.undoes is not None:
            files: list[DataFile] = []
            for piece in publication.details.put_back.get(name, ()):
                files += open_published(self.config, name, piece.version).files()
            return files
        replay = self._replay(publication)
        return replay.table(_staged_name(replay.plan, name)).files()

    def _replay(self, publication: Publication) -> StagedReplay:
        """Returns the replay of a publication, with its staged tables at the versions to
        publish.
        """
        if publication.number not in self._replays:
            plan = self.ledger.replays.get(publication.replay_id).read_plan()
            root = self.config.replay_root(plan.replay_id)
            versions = publication.details.staged_versions
            self._replays[publication.number] = StagedReplay(plan, root, versions)
        return self._replays[publication.number]

    def _commit(self, publication: Publication, name: str, versions: dict[str, int | None]) -> None:
        with self._naming_damage(lambda: self._damage(publication, name)):
            if publication.undoes is None:
                self._publish(publication, name, versions)
            else:
                self._put_back(publication, name)

    @contextmanager
    def _naming_damage(self, look: Callable[[], list[DamagedFile]]) -> Iterator[None]:
        """Turns a library's exception about an unreadable file into an error that names the
        file.
        """
        try:
            yield
        except (RewindowError, SparkNeeded):
            raise
        except Exception as error:
            damage = [] if is_conflict(error) else look()
            if not damage:
                raise
            raise damaged_error(damage, "") from error

    def _damage(self, publication: Publication, name: str) -> list[DamagedFile]:
        """Returns the damaged files that a commit to a table reads, both in the table and in its
        source.
        """
        damage = damaged_now(self.config, [name], publication.range)
        if publication.undoes is not None:
            for piece in publication.details.put_back.get(name, ()):
                damage += find_damage(
                    open_published(self.config, name, piece.version),
                    name,
                    piece.windows,
                )
            return damage
        replay = self._replay(publication)
        staged = _staged_name(replay.plan, name)
        of = f"{replay.plan.replay_id}/{staged}"
        return damage + find_damage(replay.table(staged), of, publication.range)

    def _publish(
        self,
        publication: Publication,
        name: str,
        versions: dict[str, int | None],
    ) -> None:
        replay = self._replay(publication)
        self._check_staged(publication, replay)
        kind = kind_of(name)
        if kind is Kind.CHECKPOINTS:
            rows = checkpoint_rows(replay.checkpoints, windows=publication.details.checkpoints)
            rows = stored.copy_states(
                rows,
                replay.checkpoints.path,
                self.config.stream_table(name),
                place=f"{publication.number}",
            )
            write_arrow(self.config, name, publication, rows=rows)
            return
        staged = self.staged(replay, _staged_name(replay.plan, name))
        if kind is Kind.WINDOWS:
            data_name = stream_of(name)
            data_version = versions[data_name]
            assert data_version is not None, "seals come after their tuples"
            columns = columns_text(event_columns(staged.table))
            rows = published_seals(
                self.config,
                data_name,
                staged.seals,
                columns=columns,
                sealed_at=publication.opened_at,
                data_version=data_version,
            )
            write_arrow(self.config, name, publication, rows=rows)
            return
        self._publish_tuples(publication, name, staged)

    def _check_staged(self, publication: Publication, replay: StagedReplay) -> None:
        """Checks, once per publication, that the staged tables have not changed since the gate
        checked them.
        """
        judged = publication.details.staged
        key = f"{publication.number}"
        if judged is None or key in self._verified:
            return
        now = staged_contents(replay.root, versions_of(judged))
        changed = sorted(name for name in judged if now[name] != judged[name])
        if changed:
            raise TableError(
                f'table "{changed[0]}" of replay "{publication.replay_id}" has changed since the '
                "gate checked it",
                detail="Its files were changed or damaged during the publication.",
                hint="Withdraw the unfinished publication: rewindow publish "
                f"{publication.replay_id} --withdraw",
            )
        self._verified.add(key)

    def _publish_tuples(
        self,
        publication: Publication,
        name: str,
        staged: StagedOutput,
    ) -> None:
        files = self.check(staged)
        reason = reason_to_publish_with_spark(self.config, name, publication.range)
        if not reason:
            self._tell_files(
                name,
                publish_files(self.config, publication, name, staged=files),
            )
            return
        from rewindow.publication.frames import as_stream_tuples

        frame = as_stream_tuples(self.spark_for(name, reason), staged)
        with step(f"{name}: Spark writes its rows"):
            write_spark(self.config, name, publication, frame=frame)

    def staged(self, replay: StagedReplay, output: str) -> StagedOutput:
        """Returns a staged output and its seals, at the versions to publish."""
        name = f"{replay.plan.replay_id}/{output}@{replay.versions[FACTS]}"
        if name not in self._staged:
            self._staged[name] = StagedOutput(
                replay.plan,
                next(plan for plan in replay.plan.staged if plan.name == output),
                replay.table(output),
                seals=staged_seals(replay.facts, output, replay.plan.range),
            )
        return self._staged[name]

    def expected(self, replay: StagedReplay) -> list[TablePreview]:
        """Checks all tables of tuples, and returns the effect of publishing on each; see
        `check`.
        """
        previews = []
        for target in targets_of(replay.plan):
            if target.kind is Kind.DATA:
                staged = self.staged(replay, _staged_name(replay.plan, target.name))
                previews.append(
                    table_preview(self.config, target.name, staged, files=self.check(staged))
                )
        return previews

    def check(self, staged: StagedOutput) -> StagedFiles:
        """Compares a staged output with its log and its seals, and returns the files that can be
        linked.

        Raises:
            TableError: a window differs from its seal, or a file is damaged.
        """
        windows = staged.plan.range
        name = f"{staged.plan.replay_id}/{staged.output.name}"
        if name not in self._checked:
            files = staged_files(staged)
            if files.unnoted:
                logger.info(
                    f"{name}: {files.unnoted} files have no recorded checksum, for example "
                    "because the log of their table was cleaned, so their rows are read and "
                    "compared with the seals"
                )
            with self._naming_damage(lambda: find_damage(staged.table, name, windows)):
                parts = list(files.doubtful.parts())
                for part in counted(
                    f"{name}: comparing rows with the seals",
                    parts,
                    len(parts),
                    "parts",
                ):
                    files.doubtful.check(files.doubtful.rows(part), part)
            self._checked[name] = files
        return self._checked[name]

    def spark_for(self, name: str, reason: str) -> SparkSession:
        """Returns the session for a table that needs Spark.

        Raises:
            SparkNeeded: this publisher has no session.
        """
        if self.spark is None:
            raise SparkNeeded(reason)
        logger.info(f"{name}: {reason}, so Spark writes its rows")
        return self.spark

    def _put_back(self, publication: Publication, name: str) -> None:
        pieces = publication.details.put_back.get(name, ())
        for piece in pieces:
            files_of(self.config, name, piece)
        if name not in publication.details.put_back:
            write_empty(self.config, name, publication)
        elif kind_of(name) is not Kind.DATA:
            write_arrow(self.config, name, publication, rows=rows_before(self.config, name, pieces))
        elif reason := reason_to_put_back_with_spark(
            self.config, name, publication.range, pieces=pieces
        ):
            from rewindow.publication.frames import frame_before

            frame = frame_before(self.spark_for(name, reason), self.config, name, pieces=pieces)
            with step(f"{name}: Spark writes its rows"):
                write_spark(self.config, name, publication, frame=frame)
        else:
            self._tell_files(name, put_back(self.config, publication, name, pieces=pieces))

    def _tell_files(self, name: str, files: Sequence[NewFile]) -> None:
        """Reports how many files a commit has linked or written, and stores the checksums of linked
        files.
        """
        linked = [file for file in files if file.source is not None]
        self._taken[name] = {file.path: file.checksum for file in linked if file.checksum}
        copied = sum(1 for file in linked if file.copied)
        rows = sum(file.rows for file in files if file.source is None)
        apart = f", {copied} of them copied from another file system" if copied else ""
        logger.info(f"{name}: {len(linked):,} files linked{apart}, {rows:,} rows written")

    def _mark_stale(self, publication: Publication) -> None:
        """Records the stale ranges that follow from this publication. Can be repeated.

        Ranges that are stale because an input window was reopened are kept, except in this
        publication's windows. If the publication covers the first window of such a range of an
        output with state, the whole range is removed. Whether its later windows are stale then
        depends on their states.
        """
        application = self.ledger.replays.get(publication.replay_id).application
        for row in self.ledger.stale.ranges(application):
            stays = row.since == REOPENED and not (
                row.first in publication.range and row.table_name in publication.details.stateful
            )
            its = publication.range if stays else WindowRange(row.first, row.last)
            self.ledger.stale.clear(application, row.table_name, its.first, its.last)
        opened: dict[str, list[WindowRange]] = {}
        for row in self.ledger.stale.ranges(
            application
        ):  # Ranges of reopened windows, which stay stale.
            opened.setdefault(row.table_name, []).append(WindowRange(row.first, row.last))
        for entry in publication.details.stale:
            for part in without(entry.windows, opened.get(entry.table, [])):
                self.ledger.stale.add(
                    application,
                    entry.table,
                    part.first,
                    part.last,
                    publication.number,
                )


def _unfinishable(publication: Publication, error: RewindowError) -> TableError:
    """Returns the error for a publication or undo that cannot be finished.

    It blocks all publishers until the publication or undo is withdrawn.
    """
    name = publication.replay_id
    return TableError(
        f'publication {publication.number} of replay "{name}" was started and cannot be finished: '
        f"{error.primary}",
        detail=f"{error.detail} Some of its tables already contain it. Until it is finished or "
        "withdrawn, nothing else can be published there.".strip(),
        hint=f"Withdraw the unfinished publication: rewindow publish {name} --withdraw",
    )


def _staged_name(plan: Plan, name: str) -> str:
    """Returns the staged table from which a published table is filled."""
    output = next(target.output for target in targets_of(plan) if target.name == name)
    return CHECKPOINTS if output is None else output.name
