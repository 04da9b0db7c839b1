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

Output = Annotated[str | None, typer.Argument(help="Test only this output; needs --strength.")]
AskStrength = Annotated[
    bool,
    typer.Option(
        "--strength",
        help="Test the suite: damage a copy of the output, and show which damages the suite does "
        "not detect.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seed for the places that --strength damages; the same seed yields the same result."
    ),
]


def check(
    replay_id: ReplayId,
    output: Output = None,
    strength: AskStrength = False,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Run the gate on a replay's staged output. The exit code is 0 only if it passed.

    With --strength, the suites are tested: the command damages a copy of some windows, runs the
    output's suite on each damaged copy, and lists by column the damages that the suite does not
    detect. The exit code is 0 only if the suites detect all of them.

    Examples:

        rewindow check flight_delays-376949-385704-1f2e3d

        rewindow check flight_delays-376949-385704-1f2e3d --strength delays
    """
    config = load_project()
    if strength:
        _try_strength(config, replay_id, output, seed=seed, as_json=as_json)
    elif output is not None:
        raise InputError(
            f'the gate checks all outputs of a replay together, so output "{output}" cannot be '
            "given",
            hint=f"Leave out the output, or test its suite: rewindow check {replay_id} {output} "
            "--strength",
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
            detail="The range stays staged and is not published.",
            hint=f"Open {result.outputs[0].docs.parent}. Fix the application and replay the "
            "range. If the suite is wrong, fix the suite and run the check again. To publish "
            f'anyway: rewindow publish {replay_id} --accept "REASON"',
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
            f"{holes} of {sum(len(one.planted) for one in found)} planted damages are not "
            "detected by the suites",
            detail="The damages were made in a copy: the replay and its verdict are unchanged.",
            hint=f"Add checks to the suites, as described in {HOW_TO}",
        )


def _show(found: Strength) -> None:
    """Prints the results for the planted damages of an output by column, the unnoticed first."""
    out.print(
        f"[bold]{escape(found.output)}[/bold], suite {escape(found.suite)}: of "
        f"{len(found.planted)} planted damages, {found.stopped} stop the publication, "
        f"{found.noticed - found.stopped} are only reported, {len(found.holes)} are not detected "
        f"(windows {found.windows}, seed {found.seed})"
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
