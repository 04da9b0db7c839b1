"""`rewindow check`: runs the gate on a replay's output, or tests the expectations with planted
damages.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, JobScreen, ReplayId, out, print_json, print_rows
from rewindow.errors import GateError, InputError
from rewindow.loading.suites import HOW_TO
from rewindow.quality.strength import Strength
from rewindow.settings.config import Config

Output = Annotated[str | None, typer.Argument(help="Only this output, with --strength.")]
AskStrength = Annotated[
    bool,
    typer.Option(
        "--strength",
        help="Plant damages in a copy and show which of them nobody would be told of.",
    ),
]
Seed = Annotated[
    int, typer.Option(help="Decides where --strength plants; the same seed gives the same result.")
]


def check(
    replay_id: ReplayId,
    output: Output = None,
    strength: AskStrength = False,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Run the gate on a replay's staged output. Exit code 0 only when it passed.

    With --strength the gate itself is tried: damages are planted in a copy of some windows, each is
    judged by the output's suite, and those that pass unnoticed are listed by column. Exit code 0
    only when none does.

    Examples:

        rewindow check flight_delays-376949-385704-1f2e3d

        rewindow check flight_delays-376949-385704-1f2e3d --strength delays
    """
    config = load_project()
    if strength:
        _try_strength(config, replay_id, output, seed=seed, as_json=as_json)
    elif output is not None:
        raise InputError(
            "the gate judges all outputs of a replay together",
            hint=f"Only --strength takes one: {output} --strength",
        )
    else:
        _check(config, replay_id, as_json)


def _check(config: Config, replay_id: str, as_json: bool) -> None:
    from rewindow.pages.gate_pages import write_gate_pages
    from rewindow.quality import check as run_gate

    result = run_gate(config, replay_id, JobScreen())
    write_gate_pages(config, result)
    if as_json:
        print_json(result.to_dict() | {"folder": str(result.folder)})
    if result.verdict != "passed":
        raise GateError(
            f'gate of replay "{replay_id}" did not pass',
            detail="The range stays staged and unpublished.",
            hint=f"See {result.outputs[0].docs.parent}. Mend the application and replay; if it is "
            "meant to differ from "
            f"what its suite expects, mend the suite and check again; or publish it all the same: "
            f'rewindow publish {replay_id} --accept "REASON"',
        )
    if not as_json:
        out.print(f"gate [green]passed[/green]. Next: rewindow publish {escape(replay_id)}")


def _try_strength(
    config: Config,
    replay_id: str,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    from rewindow.pages.expectation_index import write_index
    from rewindow.quality import strength

    found = strength(config, replay_id, output, seed=seed)
    write_index(config)
    if as_json:
        print_json([one.to_dict() for one in found])
    else:
        for one in found:
            _show(one)
    holes = sum(len(one.holes) for one in found)
    if holes:
        raise GateError(
            f"{holes} of {sum(len(one.planted) for one in found)} planted damages would pass "
            "unnoticed",
            detail="The replay itself and its verdict are as they were.",
            hint=f"Add checks to the suites; how to write them: {HOW_TO}",
        )


def _show(found: Strength) -> None:
    """Prints the results for the planted damages of an output by column, the unnoticed first."""
    out.print(
        f"[bold]{escape(found.output)}[/bold], suite {escape(found.suite)}: of "
        f"{len(found.planted)} planted damages "
        f"{found.stopped} stop the publication, {found.noticed - found.stopped} are only shown, "
        f"{len(found.holes)} pass unnoticed (windows {found.windows}, seed {found.seed})"
    )
    words = {"unseen": "[red]unnoticed[/red]", "warning": "only a warning", "info": "only an info"}
    for level, word in words.items():
        rows: dict[str, list[str]] = {}
        for one in found.planted:
            if one.seen == level:
                rows.setdefault(one.damage.column or "(rows)", []).append(one.damage.kind)
        if rows:
            out.print(word)
            print_rows(
                "",
                ("column", "damage"),
                [(column, ", ".join(kinds)) for column, kinds in rows.items()],
            )
