"""`rewindow validate`: reports all errors of an application at once, and shows its graph."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rewindow.application.advice import ADVICE
from rewindow.commands.plan import App
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import with_replay_options
from rewindow.commands.screen import AsJson, err, out, print_json
from rewindow.errors import ValidationFailed
from rewindow.planning.request import ReplayOptions
from rewindow.planning.validation import Validation
from rewindow.planning.validation import validate as find
from rewindow.recording.column_preview import expected_columns


class GraphForm(StrEnum):
    """Output format of the graph."""

    TEXT = "text"
    SVG = "svg"
    JSON = "json"


@with_replay_options("mode", "parameters", "properties")
def validate(
    application: App,
    options: ReplayOptions,
    graph: Annotated[
        GraphForm | None, typer.Option(help="Print the application's graph in this format.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report all errors of an application, each with its rule and a hint. Starts no JVM and creates
    no files.

    The inputs need not be recorded yet. The exit code is 0 if there are no errors, so that the
    command can be used in CI.

    Examples:

        rewindow validate flight_delays

        rewindow validate flight_delays --graph text

        rewindow validate flight_delays --graph svg > flight_delays.svg
    """
    config = load_project()
    found = find(
        config,
        application,
        mode=options["mode"],
        parameters=options["parameters"],
        properties=options["properties"],
        columns_of=partial(expected_columns, config),
    )
    if graph is not None:
        _print_graph(found, graph)
        if not found.is_valid:
            _show(found, err)
    elif as_json:
        print_json(found.to_json())
    else:
        _show(found, out)
    if not found.is_valid:
        raise typer.Exit(ValidationFailed.exit_code)


def _show(found: Validation, screen: Console) -> None:
    name = escape(found.application)
    if found.is_valid:
        counts = {"operator": len(found.graph.operators), "input stream": len(found.graph.streams)}
        words = ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())
        screen.print(f"[bold]{name}[/bold]: no errors; {words}")
    else:
        many = "1 error" if len(found.violations) == 1 else f"{len(found.violations)} errors"
        screen.print(f"[bold]{name}[/bold]: {many}")
    for rule, ones in groupby(found.violations, lambda one: one.rule):
        screen.print()
        for one in ones:
            screen.print(f"[red]{rule}[/red]  {escape(str(one))}")
        if rule in ADVICE:
            screen.print(f"  {escape(ADVICE[rule])}")
    for warning in found.warnings:
        screen.print(f"[yellow]warning[/yellow]: {escape(warning)}")


def _print_graph(found: Validation, form: GraphForm) -> None:
    from rewindow.pages.application_graph import draw_graph, graph_text

    drawn = {
        GraphForm.TEXT: lambda: graph_text(found.graph),
        GraphForm.SVG: lambda: draw_graph(found.graph, alone=True),
        GraphForm.JSON: lambda: json.dumps(found.graph.model_dump(mode="json"), indent=2),
    }[form]()
    sys.stdout.write(drawn.rstrip("\n") + "\n")
