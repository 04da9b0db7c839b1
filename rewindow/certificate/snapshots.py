"""The two sides of a comparison.

They are staged or published outputs at fixed table versions. Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.certificate.description import Description, StartDescription
from rewindow.certificate.integrity import Doubt, count_doubts, doubts_of
from rewindow.certificate.published_states import differing_states
from rewindow.errors import InputError, RangeError
from rewindow.facts.losses import Losses, losses_of
from rewindow.facts.published_acts import newest_held
from rewindow.facts.readers import seen_rows
from rewindow.facts.seals import read_seals
from rewindow.ledger import Ledger, Publication, publish_app_id
from rewindow.names import PUBLISHED, windows_name
from rewindow.recovery import OutputPlan, Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, position, query
from rewindow.storage.files import noted_files, open_files
from rewindow.storage.formats import TableKind, check_format
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id, check_replay_format
from rewindow.storage.names import checkpoints_name, data_name, open_published
from rewindow.storage.queries import in_order
from rewindow.storage.staged_marks import plan_in
from rewindow.storage.streams import check_reaches
from rewindow.windows import WindowRange

ACTS_MAX = 1_000_000
SEALS_SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("port", pa.string()),
        ("tuples", pa.int64()),
        ("digest", pa.string()),
        ("float_digest", pa.string()),
        ("seals", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Snapshot:
    """One side of a comparison: tables at fixed versions, and the rows in them that readers see.

    Attributes:
        name: a replay's id, or "published".
        range: the requested windows.
        seals: tuples and digests that readers see, per window and output or error table; column
            `seals` is the number of times that the window was sealed.
        data: the tables of outputs and errors, pinned, without those that were purged.
        facts: the table of window facts, pinned; None for published tables.
        description: its entry in a certificate: mode, code version, inputs, attempts, table
            versions.
        losses: windows that at most once gave up.
        doubts: per output, reasons why seals may not match the table.
        states: windows whose published state differs from its digest in the ledger.
    """

    name: str
    range: WindowRange
    seals: pa.Table
    data: dict[str, Table]
    facts: Table | None
    outputs: list[OutputPlan]
    description: Description
    losses: Losses = field(default_factory=Losses)
    doubts: dict[str, list[Doubt]] = field(default_factory=dict)
    states: list[int] = field(default_factory=list)

    def output_seals(self, output: str) -> pa.Table:
        """Returns window_id, tuples, digest and float_digest of an output's sealed windows in
        ascending order.
        """
        mine = pc.equal(self.seals["port"], output)
        chosen = self.seals if pc.all(mine).as_py() else self.seals.filter(mine)
        return chosen.select(["window_id", "tuples", "digest", "float_digest"])

    def rows_sql(self, output: str, letter: str, columns: str, where: str, raw: bool) -> str:
        """Returns SQL for the visible rows of an output.

        With `raw`, returns SQL for the rows of all attempts.
        """
        if self.facts is None or raw:
            return f"select {columns} from {letter}_data as o where {where}"
        seen = seen_rows(f"{letter}_data", output, facts=f"{letter}_facts", columns=columns)
        return f"{seen} and {where}"

    def tables(self, output: str, letter: str) -> dict[str, Table]:
        """Returns the tables that the SQL of `rows_sql` refers to."""
        facts = {} if self.facts is None else {f"{letter}_facts": self.facts}
        return {f"{letter}_data": self.data[output], **facts}


def staged_plan(config: Config, replay_id: str) -> Plan:
    """Returns a replay's plan from its tables, or from the ledger if the tables were purged.

    Raises:
        InputError: the replay does not exist, or its tables and its plan were deleted.
    """
    path = config.replay_root(replay_id) / CHECKPOINTS
    if Table.exists(path):
        return plan_in(path.parent)
    if Table.exists(path.parent / FACTS):
        return Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    row = Ledger.open(config.ledger_url).replays.get(
        replay_id
    )  # If it does not exist, the error suggests a similar id.
    raise InputError(
        f'replay "{replay_id}" has no staged tables: they were purged',
        detail=f"Looked in {path.parent}.",
        hint=f"Compute the range again: rewindow replay {row.application} --first {row.first} "
        f"--last {row.last}",
    )


def _guarantees(plan: Plan) -> dict[str, dict[str, str]]:
    """Returns the field with the guarantee of each output, for a replay with several containers."""
    if not plan.is_divided:
        return {}
    promises = {}
    for output in plan.outputs:
        promises[output.name] = output.promise
    return {"guarantees": promises}


def staged_snapshot(config: Config, replay_id: str, windows: WindowRange | None = None) -> Snapshot:
    """Returns a replay's staged tables as readers see them.

    For every window, the newest sealed attempt counts.

    Raises:
        InputError: the replay does not exist, or has no window in the range.
        TableError: one of its tables is missing.
    """
    plan = staged_plan(config, replay_id)
    root = config.replay_root(replay_id)
    check_replay_format(root)
    data = {
        output.name: Table.open(root / output.name)
        for output in plan.staged
        if Table.exists(root / output.name)
    }
    facts = Table.open(root / FACTS)
    tables = {**data, FACTS: facts}
    checkpoints = Table.open(root / CHECKPOINTS) if Table.exists(root / CHECKPOINTS) else None
    asked = plan.range if windows is None else windows.overlap(plan.range)
    if asked is None:
        raise RangeError(
            f'replay "{replay_id}" does not contain windows {windows}: its range is '
            f"{plan.grid.describe(plan.range)}"
        )
    seals = _staged_seals(facts, asked)
    attempts = query("select distinct attempt from facts order by attempt", facts=facts)[
        "attempt"
    ].to_pylist()
    mark = position(facts, app_id(replay_id, FACTS)).mark
    description = Description(
        name=replay_id,
        application=plan.application,
        mode=", ".join(mode.name for mode in plan.modes),
        **_guarantees(plan),
        code_version=plan.code_version,
        configuration_digest=plan.configuration_digest,
        first=asked.first,
        last=asked.last,
        attempts=attempts,
        committed_windows=mark,
        ended=mark == len(plan.range),
        inputs={
            entry.stream: [entry.version, entry.windows_version, entry.table_id]
            for entry in plan.inputs
        },
        inputs_compared=_inputs_compared(plan),
        start_state=StartDescription(
            source=plan.start.source,
            window=plan.start.window,
            digest=plan.start.digest,
            lacking=plan.start.lacking,
            stale=plan.start.stale,
        ),
        table_versions={name: table.version for name, table in tables.items()},
        table_ids={name: table.id for name, table in tables.items()},
        windows_sealed_again=_sealed_again(seals),
        **({"candidate": plan.candidate.words} if plan.candidate else {}),
    )
    return Snapshot(
        replay_id,
        asked,
        seals,
        data=data,
        facts=facts,
        outputs=plan.staged,
        description=description,
        losses=losses_of(plan, facts, checkpoints, windows=asked),
    )


def _inputs_compared(plan: Plan) -> str:
    """Returns a text about how a replay's input files were compared with the properties recorded
    when they were written.
    """
    compared = "names, sizes and checksums" if plan.verify_inputs else "names and sizes"
    foreign = sum(entry.foreign_files for entry in plan.inputs)
    return compared + (f"; {foreign:,} files of other programs by size only" if foreign else "")


def published_snapshot(config: Config, plan: Plan, windows: WindowRange) -> Snapshot:
    """Returns the published tables of a plan's application in a window range.

    Raises:
        TableError: a table is damaged, or lacks commits that the ledger has recorded for it.
    """
    acts = Ledger.open(config.ledger_url).publications.newest(
        application=plan.application, limit=ACTS_MAX
    )
    compared = []
    data = {}
    parts = []
    versions = {}
    ids = {}
    doubts = {}
    outputs = _published_outputs(config, plan)
    for output in outputs:
        name = data_name(plan.application, output.name)
        table = check_format(Table.open(config.stream_table(name)), TableKind.STREAM)
        sealed = check_format(Table.open(config.windows_table(name)), TableKind.SEALS)
        for table_name, opened in ((name, table), (windows_name(name), sealed)):
            compared.append(_held_words(acts, opened))
            versions[table_name] = opened.version
            ids[table_name] = opened.id
        check_reaches(name, table, sealed)
        data[output.name] = table
        seals = read_seals(sealed, windows, table_id=table.id)
        parts.append(_published_seals(output.name, seals))
        doubts[output.name] = _published_doubts(table, name, seals, windows=windows)
        doubts[output.name] += count_doubts(table, sealed, windows)
        compared.append(f"{name}: rows in its log and in its seals")
    name = checkpoints_name(plan.application)
    checkpoints = open_published(config, name) if Table.exists(config.stream_table(name)) else None
    states: list[int] = []
    if checkpoints is None or newest_held(acts, checkpoints) is not None:
        states = differing_states(checkpoints, name, acts, windows)
        compared.append(
            f"{name}: table id, publication and digests of its states, as in the ledger"
        )
    description = Description(
        name=PUBLISHED,
        application=plan.application,
        first=windows.first,
        last=windows.last,
        table_versions=versions,
        table_ids=ids,
        compared=compared,
    )
    return Snapshot(
        PUBLISHED,
        windows,
        pa.concat_tables(parts),
        data=data,
        facts=None,
        outputs=outputs,
        description=description,
        doubts=doubts,
        states=states,
    )


def _held_words(acts: Sequence[Publication], table: Table) -> str:
    act = newest_held(acts, table)
    held = f"publication {act.number}" if act else "a publication that is not done in the ledger"
    return f"{table.path.name}: table id, and {held} at version {table.version}"


def _published_outputs(config: Config, plan: Plan) -> list[OutputPlan]:
    """Returns the outputs and error tables that are published.

    An output that was added later is not included and counts as a difference.

    Raises:
        InputError: no output is published.
    """
    there = [
        output
        for output in plan.staged
        if Table.exists(config.stream_table(data_name(plan.application, output.name)))
    ]
    if any(not output.errors for output in there):
        return there
    raise InputError(
        f'application "{plan.application}" is not published',
        detail="The published tables of its outputs do not exist.",
        hint=f"Publish a replay of the application, such as: rewindow publish {plan.replay_id}",
    )


def _published_doubts(
    table: Table,
    name: str,
    seals: pa.Table,
    windows: WindowRange,
) -> list[Doubt]:
    """Returns the reasons why the seals of a published output may be wrong.

    Changes from before a window was sealed are ignored.
    """
    if not seals.num_rows:
        return []
    written = {
        file: checksum for file, (_, checksum) in noted_files(open_files(table.path)).items()
    }
    found = doubts_of(
        table,
        publish_app_id(name),
        pc.min(seals["data_version"]).as_py(),
        windows=windows,
        written=written,
    )
    return [
        doubt for doubt in found if doubt.version is None or _concerns(doubt, doubt.version, seals)
    ]


def _concerns(doubt: Doubt, version: int, seals: pa.Table) -> bool:
    older = seals.filter(pc.less(seals["data_version"], version))["window_id"]
    if doubt.windows is None:
        return len(older) > 0
    inside = pc.and_(
        pc.greater_equal(older, doubt.windows.first),
        pc.less_equal(older, doubt.windows.last),
    )
    return pc.any(inside).as_py() is True


def both_snapshots(
    config: Config,
    a: str,
    b: str,
    windows: WindowRange | None,
) -> tuple[Snapshot, Snapshot]:
    """Returns the two sides of a comparison.

    Published tables are read in the range of the other side.

    Raises:
        InputError: both are "published", or nothing of the application is published.
    """
    if a == b == PUBLISHED:
        raise InputError(
            "the published output cannot be compared with itself",
            hint="Give a replay's id on one side.",
        )
    staged = {name: staged_snapshot(config, name, windows) for name in (a, b) if name != PUBLISHED}
    if PUBLISHED in (a, b):
        (other,) = staged.values()
        staged[PUBLISHED] = published_snapshot(
            config,
            staged_plan(config, other.name),
            other.range,
        )
    return staged[a], staged[b]


def check_comparable(config: Config, a: Snapshot, b: Snapshot) -> None:
    """Checks that at least one window can be compared.

    Raises:
        InputError: nothing is published in the range, or neither side has a sealed window; states
            the reason, and the progress of each side.
    """
    for side, other in ((a, b), (b, a)):
        if side.facts is None and not side.seals.num_rows:
            raise _unpublished(config, side, other.name)
    if a.seals.num_rows or b.seals.num_rows:
        return
    first = min(a.range.first, b.range.first)
    last = max(a.range.last, b.range.last)
    raise InputError(
        f"nothing to compare: neither side has a sealed window in {WindowRange(first, last)}",
        detail=" ".join(dict.fromkeys(map(_progress, (a, b)))),
        hint="To see the progress of a replay: rewindow status REPLAY. To resume it: rewindow "
        "replay --resume REPLAY",
    )


def _unpublished(config: Config, published: Snapshot, replay_id: str) -> InputError:
    """Returns the error for a range in which nothing is published.

    It names the action that undid the publication.
    """
    application = published.description.application
    acts = Ledger.open(config.ledger_url).publications.newest(application=application)
    taken_back = next(
        (act for act in acts if act.undoes is not None and act.range.overlap(published.range)), None
    )
    detail = ""
    if taken_back is not None:
        detail = (
            f'The {taken_back.kind} of replay "{taken_back.replay_id}" took publication '
            f"{taken_back.undoes} back, as "
            f"publication {taken_back.number}, {taken_back.opened_at:%Y-%m-%d %H:%M}."
        )
    return InputError(
        f'application "{application}" has no published windows in {published.range}',
        detail=detail,
        hint=f"Publish a replay of this range, such as: rewindow publish {replay_id}",
    )


def _progress(snapshot: Snapshot) -> str:
    done = snapshot.description.committed_windows
    return (
        f'Replay "{snapshot.name}" has '
        f"{f'committed its first {done:,} windows' if done else 'not run'}."
    )


def _staged_seals(facts: Table, windows: WindowRange) -> pa.Table:
    """Returns the newest seal of every window, by output and window."""
    rows = query(
        f"""select window_id, port, tuples, digest, float_digest, attempt from facts
            where direction in ('out', 'error') and not lost
            and window_id between {windows.first} and {windows.last}""",
        facts=facts,
    )
    ports = sorted(pc.unique(rows["port"]).to_pylist())
    # Each port is sorted separately, since its facts are usually in order already and then not
    # copied.
    parts = [rows.slice(0, 0)]
    for port in ports:
        part = rows.filter(pc.equal(rows["port"], port)) if len(ports) > 1 else rows
        parts.append(in_order(part, "window_id", "attempt"))
    rows = pa.concat_tables(parts)
    ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
    last = _differs_from_next(rows, ("port", "window_id"))
    # Without repeated windows, each row is the newest seal of its window.
    if last.all():
        return rows.drop_columns(["attempt"]).append_column("seals", ones).cast(SEALS_SCHEMA)
    attempts = rows.filter(pa.array(_differs_from_next(rows, ("port", "window_id", "attempt"))))
    last = _differs_from_next(attempts, ("port", "window_id"))
    ends = np.flatnonzero(last)
    counts = np.diff(ends, prepend=-1)
    newest = attempts.filter(pa.array(last)).drop_columns(["attempt"])
    return newest.append_column("seals", pa.array(counts, pa.int64())).cast(SEALS_SCHEMA)


def _differs_from_next(rows: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Returns, for each row, whether it is the last row of a run with equal values."""
    last = np.ones(rows.num_rows, dtype=np.bool_)
    if rows.num_rows > 1:
        last[:-1] = False
        for name in names:
            column = rows[name].combine_chunks()
            last[:-1] |= pc.not_equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
    return last


def _published_seals(output: str, seals: pa.Table) -> pa.Table:
    count = seals.num_rows
    return (
        seals.select(["window_id", "tuples", "digest", "float_digest"])
        .append_column("port", pa.repeat(output, count))
        .append_column("seals", pa.repeat(1, count))
        .select(SEALS_SCHEMA.names)
        .cast(SEALS_SCHEMA)
    )


def _sealed_again(seals: pa.Table) -> int:
    return int(pc.count_distinct(seals.filter(pc.greater(seals["seals"], 1))["window_id"]).as_py())
