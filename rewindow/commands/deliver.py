"""`rewindow deliver`: writes published windows to a target outside of Rewindow."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, err, out, print_json
from rewindow.delivery.deliver import DeliveryResult
from rewindow.delivery.targets import deliver_to
from rewindow.errors import InputError, RewindowError
from rewindow.sequences import quantity
from rewindow.settings.config import Config, Delivery


def deliver(
    output: Annotated[
        str, typer.Argument(help="Published output, as APPLICATION.OUTPUT; all outputs by default.")
    ] = "",
    target: Annotated[
        str,
        typer.Argument(
            help="Name of a section [targets.NAME] of rewindow.toml; by default all targets that "
            "list the output in `outputs`."
        ),
    ] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Create the table if it does not exist.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Write nothing; only count the windows that would be written."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the published windows of an output to a target. Windows that the target already has
    with the same rows are skipped.

    Without a target, the outputs listed in the `outputs` of each section [targets.NAME] are
    delivered. If a delivery fails, the remaining ones still run.

    Examples:

        rewindow deliver flight_delays.ranks warehouse --create

        rewindow deliver flight_delays.ranks files --dry-run

        rewindow deliver
    """
    config = load_project()
    deliveries = [Delivery(output, target)] if target else config.deliveries(output)
    if not deliveries:
        raise InputError(
            f"no target lists {output or 'an output'} in its `outputs`",
            hint="Add the output to `outputs` of a section [targets.NAME], or give the target: "
            "rewindow deliver OUTPUT TARGET",
        )
    results = []
    failures = []
    for delivery in deliveries:
        try:
            result = _deliver(
                config,
                delivery,
                create=create,
                dry_run=dry_run,
                is_quiet=as_json,
            )
        except RewindowError as error:
            failures.append(error)
            continue
        results.append(asdict(result))
        if not as_json:
            _show(result, dry_run)
    if as_json:
        print_json({"deliveries": results, "failures": list(map(str, failures))})
    if failures:
        *earlier, last = failures
        for failure in earlier:
            err.print(f"error: {escape(str(failure))}")
        raise last


def _deliver(
    config: Config,
    delivery: Delivery,
    *,
    create: bool,
    dry_run: bool,
    is_quiet: bool,
) -> DeliveryResult:
    with Progress(console=err, disable=is_quiet or not err.is_terminal, transient=True) as bar:
        task = bar.add_task(f"{delivery.output} to {delivery.target}", total=None)
        return deliver_to(
            config,
            delivery.output,
            delivery.target,
            create=create,
            dry_run=dry_run,
            report=lambda done, of: bar.update(task, completed=done, total=of),
        )


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
        out.print(
            escape(f"{quantity(result.rejected, 'row')} rejected by the target, for example:")
        )
    for one in result.examples[:5]:
        out.print(escape(f"  window {one.window_id}: {one.reason}; {dict(one.row)}"))
