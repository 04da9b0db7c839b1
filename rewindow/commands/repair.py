"""`rewindow repair`: shows and repairs windows that were published from inputs that have changed
since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, JobScreen, err, out, print_json, print_rows
from rewindow.repairs.find import Repairs, find_repairs
from rewindow.repairs.run import repair as put_right


def repair(
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Run the repairs: record late tuples in their windows, replay, check and publish.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the windows that must be replayed because their inputs changed: late tuples arrived, or
    an input was published again.

    Without --run, the command changes nothing and starts no JVM. The ranges are as short as can be
    known in advance, also for applications that read published outputs of other applications, and
    the reason for the length of each range is shown. If an application has a state, a range ends at
    a published state: if the new state is equal to it, later windows stay as they are; otherwise
    they are replayed too.

    Examples:

        rewindow repair

        rewindow repair --run
    """
    config = load_project()
    if not run:
        found = find_repairs(config)
        return print_json(found.to_dict()) if as_json else show_repairs(found)
    done = put_right(config, JobScreen())
    commands = [step.command for step in done.steps]
    if as_json:
        return print_json(
            {
                "exit_code": 0,
                "reopened": list(done.streams),
                "repaired": commands,
                "unknown": list(done.unknown),
            }
        )
    _show_unknown(done.unknown)
    if done.streams:
        out.print(escape(f"late tuples were moved to their windows: {', '.join(done.streams)}"))
    for step in done.steps:
        out.print(escape(f"published again: {step.application} {step.windows}"))
    if not done.streams and not done.steps:
        out.print("nothing to repair")


def _show_unknown(unknown: Sequence[str]) -> None:
    for text in unknown:
        err.print(f"unknown: {text}", style="yellow", markup=False)


def show_repairs(found: Repairs) -> None:
    """Prints the necessary repairs, and why each range has its length."""
    _show_unknown(found.unknown)
    if not found.late and not found.steps:
        known = "" if found.unknown else ": published windows match the current inputs"
        out.print(f"nothing to repair{known}")
        return
    if found.late:
        rows = [(one.stream, str(one.windows), one.tuples) for one in found.late]
        print_rows("late tuples in quarantine", ("stream", "windows", "tuples"), rows)
    if found.steps:
        print_rows(
            "must be replayed, in this order",
            ("application", "windows", "why"),
            [
                (step.application, str(step.windows), "\n".join(step.reasons))
                for step in found.steps
            ],
            whole=2,
        )
    out.print(escape("To run all repairs: rewindow repair --run (publications can be undone)"))
