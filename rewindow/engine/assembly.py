"""Assembles a replay from its containers: commits their outputs, facts and last states to the
tables of the replay, which gate, certificate, publication and undo read. A reused container is
assembled from a container of another replay in the same way.

Files are linked, not copied. The order is the same as in a commit group: outputs, then facts, and
the checkpoint last. Each table is committed under the fence of the attempt. Facts and states that
were committed before are skipped, and so are outputs whose facts were committed. So the process may
be killed at any point and started again.

Rules: X53
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.crash import Step
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.cut_streams import check_seals
from rewindow.facts.losses import unfed_windows
from rewindow.location import Location, location
from rewindow.names import container_id
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.state import checkpoints as stored
from rewindow.storage import DataFile, FencedTable, Table, data_files, fence
from rewindow.storage.checksums import with_noted
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA, app_id, state_folder
from rewindow.storage.new_files import sync_folders
from rewindow.storage.staged_marks import plan_in


def assemble(
    planned: PlannedAttempt,
    crash: Callable[[Step], None],
) -> None:
    """Commits the staged results of a replay's containers to the tables of the replay.

    Args:
        planned: a replay whose containers have all ended, or a container that is reused.
        crash: called at every step; may end the process.

    Raises:
        FencedError: a newer attempt has started.
        CheckpointError: a state is damaged.
        TableError: a table of a container is damaged.
        NotDeterministicError: a container has computed windows again, with another result than the
            one that another container has read.
    """
    plan = planned.plan
    root = planned.root
    epoch = planned.epoch
    mark = len(plan.range)

    def fenced(name: str) -> FencedTable:
        return fence(root / name, app_id(plan.replay_id, name), epoch)

    # All fences come first: from then on no older attempt can commit to any table.
    checkpoints = fenced(CHECKPOINTS)
    tables = {}
    for name in [*names_of(plan.staged), FACTS]:
        tables[name] = fenced(name)
    crash(Step.FENCED)
    facts = tables[FACTS]
    sources = _sources(plan, root)
    folders = list(dict.fromkeys(sources.values()))
    _check_streams(folders, state_folder(root))
    for number, output in enumerate(plan.staged):
        if facts.done < mark:
            source = Table.open(sources[output.operator] / output.name)
            _commit_files(tables[output.name], source, mark)
        if number == 0:
            crash(Step.AFTER_FIRST_OUTPUT)
    crash(Step.AFTER_OUTPUTS)
    if facts.done < mark:
        facts.commit(mark, _facts(plan, folders))
    crash(Step.AFTER_FACTS)
    if checkpoints.done < mark:
        provenance = stored.Provenance.of(plan, epoch)
        rows = [stored.SCHEMA.empty_table()]
        for folder in folders:
            rows.append(_states(plan, root, folder, provenance))
        states = pa.concat_tables(rows)
        # A checkpoint without states has one row, which marks its window as saved.
        if not states.num_rows:
            states = stored.encode(plan.last, mark, {}, versions={}, made=provenance)
        checkpoints.commit(mark, states)
    crash(Step.AFTER_CHECKPOINT)


def _sources(plan: Plan, root: Location) -> dict[str, Location]:
    """Returns, for each operator, the folder of the container that has computed it.

    Containers whose mode loses no window come first.
    """
    if plan.reused:
        folder = root.with_name(plan.reused)
        # The empty name stands for a container without outputs, whose states are linked too.
        folders = {"": folder}
        for output in plan.staged:
            folders[output.operator] = folder
        return folders
    folders = {}
    for container in sorted(plan.containers, key=lambda entry: entry.mode.may_lose):
        folder = root.with_name(container_id(root.name, container.name))
        folders.update(dict.fromkeys(container.operators, folder))
    return folders


def _check_streams(folders: Sequence[Location], state: Location) -> None:
    """Checks that the streams between containers are still those that their readers have read.

    A writer may have computed windows again after its reader had ended.
    """
    for folder in folders:
        plan = plan_in(folder)
        for entry in plan.inputs:
            if entry.container:
                check_seals(plan, entry, state)


def _commit_files(
    table: FencedTable,
    source: Table,
    mark: int,
) -> None:
    """Commits the files of a container's table, and replaces the files that an older attempt has
    committed.

    The container may have computed rows again since then, and the facts seal the newest rows.
    """
    files = _linked(source, table.path, f"{table.epoch}-{mark}")
    if table.done < mark:
        table.commit(mark, files, {"epoch": table.epoch, "mark": mark})
        return
    while not table.replace(files, table.table.files()):
        # Another program has written to the table, so its files are listed again.
        continue


def _linked(
    source: Table,
    target: Location,
    folder: str,
) -> list[DataFile]:
    """Links the files of a table into another table and returns them, with the checksums of the
    source.
    """
    checksums = {}
    for file in with_noted(source, source.files()):
        path = location(file.path)
        checksums[path.name] = file.checksum
        path.copy_to(target / folder / path.name)
    if not checksums:
        return []
    sync_folders(target, [folder])
    linked = []
    for file in data_files(target / folder):
        name = location(file.path).name
        linked.append(replace(file, checksum=checksums[name]))
    return linked


def _facts(plan: Plan, folders: Sequence[Location]) -> pa.Table:
    """Returns the facts of all containers, except facts about the streams between them.

    If several containers read a recorded stream, it is counted once, preferably from a container
    whose mode loses no window. `_sources` has that order. Outputs of windows that no input had are
    marked as lost. A reused container keeps the counts of all its inputs.
    """
    outputs = pa.array(names_of(plan.staged))
    state_directions = pa.array(["dropped", "state", "skipped"])
    parts = [FACTS_SCHEMA.empty_table()]
    counted: set[str] = set()
    for folder in folders:
        own = plan_in(folder)
        # A reused container is assembled alone, so it keeps the counts of all its inputs.
        entries = own.inputs if plan.reused else own.recorded
        streams = {entry.stream for entry in entries}
        inputs = pa.array(sorted(streams - counted), pa.string())
        counted |= streams
        lost = pa.array(unfed_windows(own) if plan.is_divided else [], pa.int64())
        table = Table.open(folder / FACTS)
        for file in table.files():
            rows = table.read(file, FACTS_SCHEMA.names).cast(FACTS_SCHEMA)
            is_input = pc.equal(rows["direction"], "in")
            is_counted = pc.is_in(rows["port"], inputs)
            is_output = pc.is_in(rows["port"], outputs)
            is_state = pc.is_in(rows["direction"], state_directions)
            wanted = pc.if_else(is_input, is_counted, pc.or_(is_state, is_output))
            rows = rows.filter(wanted)
            parts.append(_as_lost(rows, lost) if len(lost) else rows)
    return pa.concat_tables(parts)


def _as_lost(rows: pa.Table, windows: pa.Array) -> pa.Table:
    """Marks the outputs of the given windows as lost, because no input had them, and returns the
    facts.
    """
    is_output = pc.is_in(rows["direction"], pa.array(["out", "error"]))
    is_lost = pc.and_(is_output, pc.is_in(rows["window_id"], windows))
    values = {
        "tuples": 0,
        "digest": None,
        "float_digest": None,
        "measures": None,
        "lost": True,
    }
    for name, value in values.items():
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index)
        replacement = pa.scalar(value, field.type)
        column = pc.if_else(is_lost, replacement, rows[name])
        rows = rows.set_column(
            index,
            field,
            column,
        )
    return rows


def _states(
    plan: Plan,
    root: Location,
    folder: Location,
    made: stored.Provenance,
) -> pa.Table:
    """Returns the states of a container after its last window, as rows of the replay's table."""
    source = folder / CHECKPOINTS
    rows = stored.rows_at(Table.open(source), plan.last)
    # The row without an operator only marks the window as saved.
    rows = rows.filter(pc.not_equal(rows["operator"], ""))
    subfolder = f"{made.attempt}-{plan.last}"
    copied = stored.copy_states(
        rows,
        source,
        root / CHECKPOINTS,
        place=subfolder,
    )
    return stored.as_checkpoint(copied, made, mark=len(plan.range))
