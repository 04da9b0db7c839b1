"""Selects the outputs to compare: all outputs, the requested ones, or the outputs that two
applications share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.certificate.snapshots import Snapshot
from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.recovery import Plan
from rewindow.sequences import excluding, names_of


def are_two(a: Snapshot, b: Snapshot) -> bool:
    """Returns whether the two sides belong to different applications."""
    return a.description.application != b.description.application


def shared_outputs(a: Snapshot, b: Snapshot) -> tuple[tuple[Snapshot, Snapshot], list[str]]:
    """Restricts both sides to the outputs and error tables that both have.

    Returns the sides and notes about all others.

    Raises:
        InputError: they have none in common.

    Rules: O137
    """
    names = (set(names_of(a.outputs)), set(names_of(b.outputs)))
    shared = names[0] & names[1]
    if not shared:
        has = "; ".join(
            f'"{side.description.application}" has {", ".join(sorted(own))}'
            for side, own in zip((a, b), names, strict=True)
        )
        raise InputError(
            f'replays "{a.name}" and "{b.name}" have no output in common',
            detail=f"Outputs of two applications are matched by name: {has}.",
            hint="Use the same name for the output in both applications: app.output(NAME, ...).",
        )
    notes = [
        f'The sides belong to two applications, "{a.description.application}" and '
        f'"{b.description.application}". Only outputs that both have are compared: '
        f"{', '.join(sorted(shared))}."
    ]
    for side, own in zip((a, b), names, strict=True):
        if own - shared:
            rest = ", ".join(sorted(own - shared))
            notes.append(
                f'Not compared, because only "{side.description.application}" has these outputs: '
                f"{rest}."
            )
    return (_narrowed(a, shared), _narrowed(b, shared)), notes


def chosen_outputs(
    a: Snapshot,
    b: Snapshot,
    chosen: Sequence[str],
) -> tuple[tuple[Snapshot, Snapshot], list[str]]:
    """Restricts both sides to the chosen outputs and error tables.

    Returns the sides and a note about the choice.

    Raises:
        InputError: neither side has one of them.

    Rules: O137
    """
    known = names_of([*a.outputs, *b.outputs])
    unknown = excluding(chosen, known)
    if unknown:
        raise InputError(
            f'neither side has an output "{unknown[0]}"',
            hint=f"{did_you_mean(unknown[0], known)}Existing outputs: "
            f"{', '.join(dict.fromkeys(known))}.",
        )
    names = set(chosen)
    notes = [f"Only the chosen outputs are compared: {', '.join(dict.fromkeys(chosen))}."]
    return (_narrowed(a, names), _narrowed(b, names)), notes


def check_grids(a: Plan, b: Plan) -> None:
    """Checks that the windows of two sides cover the same periods.

    Raises:
        InputError: width or origin differ.
    """
    if a.grid == b.grid:
        return
    widths = " and ".join(f"{plan.width_ms:,} ms from {plan.origin_ms:,}" for plan in (a, b))
    raise InputError(
        f'windows of replays "{a.replay_id}" and "{b.replay_id}" cover different times: {widths}',
        hint="Use the same `window` in both applications.",
    )


def _narrowed(side: Snapshot, names: set[str]) -> Snapshot:
    return replace(
        side,
        seals=side.seals.filter(pc.is_in(side.seals["port"], pa.array(sorted(names)))),
        data={name: table for name, table in side.data.items() if name in names},
        outputs=[output for output in side.outputs if output.name in names],
    )
