"""`rewindow operators`: lists the library of operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.screen import AsJson, out, print_json, print_rows
from rewindow.loading.library import EXAMPLES, OperatorPage, describe_operator


def operators(
    name: Annotated[
        str | None, typer.Argument(help="Show this operator, with an example in TOML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the operators of the library, which applications in rewindow.toml can use without code.

    Examples:

        rewindow operators

        rewindow operators TopN
    """
    names = sorted(EXAMPLES) if name is None else [name]
    pages = [describe_operator(one) for one in names]
    if as_json:
        print_json([asdict(page) for page in pages])
    elif name is None:
        print_rows(
            "",
            ("operator", ""),
            [(page.name, page.line) for page in pages],
        )
    else:
        _show(pages[0])


def _show(page: OperatorPage) -> None:
    out.print(f"[bold]{page.name}[/bold]: {escape(page.line)}")
    if page.about:
        out.print(escape(page.about))
    out.print(f"input ports: {', '.join(page.inputs)}; output ports: {', '.join(page.outputs)}")
    rows = []
    for one in page.properties:
        default = "required" if one.default is None else one.default
        rows.append((one.name, one.type, default, one.about))
    print_rows("", ("property", "type", "default", ""), rows)
    out.print(escape(page.example), soft_wrap=True)
