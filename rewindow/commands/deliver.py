"""`rewindow deliver`: write published windows to a target outside of Rewindow."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, err, out, print_json
from rewindow.delivery.deliver import DeliveryResult
from rewindow.delivery.deliver import deliver as deliver_windows
from rewindow.delivery.targets import target_of
from rewindow.sequences import quantity


def deliver(
    output: Annotated[str, typer.Argument(help="Published output, as APPLICATION.OUTPUT.")],
    target: Annotated[str, typer.Argument(help="Section [targets.NAME] of rewindow.toml.")],
    create: Annotated[
        bool, typer.Option("--create", help="Create the table if it does not exist.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the windows that would be written.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the published windows of an output to a target, if their rows differ there.

    Examples:

        rewindow deliver flight_delays.ranks warehouse --create

        rewindow deliver flight_delays.ranks files --dry-run
    """
    config = load_project()
    with Progress(console=err, disable=as_json or not err.is_terminal, transient=True) as bar:
        task = bar.add_task("windows", total=None)
        result = deliver_windows(
            config,
            output,
            target,
            target_of(config, target, create=create and not dry_run),
            at_least_once=config.targets[target].at_least_once,
            dry_run=dry_run,
            report=lambda done, of: bar.update(task, completed=done, total=of),
        )
    if as_json:
        print_json(asdict(result))
    else:
        _show(result, dry_run)


def _show(result: DeliveryResult, dry_run: bool) -> None:
    verb = "would be written" if dry_run else "written"
    out.print(
        escape(
            f"{result.stream} to {result.target}: {quantity(result.written, 'window')} {verb} "
            f"({quantity(result.tuples, 'row')}), {result.removed:,} removed, "
            f"{result.unchanged:,} unchanged; {result.promise}"
        )
    )
    for line in result.notes:
        out.print(escape(line))
    if result.rejected:
        out.print(escape(f"{quantity(result.rejected, 'row')} rejected by the target, such as:"))
    for one in result.examples[:5]:
        out.print(escape(f"  window {one.window_id}: {one.reason}; {dict(one.row)}"))
