"""`rewindow compare`: compares new code with the recorded results of an application."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.candidates.comparison import compare as run
from rewindow.certificate import Certificate
from rewindow.commands.certify import DIFFERENT_CODE, show_certificate
from rewindow.commands.completion import sides
from rewindow.commands.plan import App
from rewindow.commands.project import load_project
from rewindow.commands.screen import (
    AsJson,
    First,
    From,
    JobScreen,
    Last,
    To,
    out,
    print_json,
    print_rows,
)
from rewindow.names import PUBLISHED
from rewindow.pages.certificate_page import write_certificate
from rewindow.sequences import excluding


def compare(
    application: App,
    code: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="FILE_OR_REVISION",
            help="The new code: a file, or a revision of git.",
            show_default="the code in the folders of applications",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            help='What was recorded: a replay\'s id, or "published".',
            autocompletion=sides,
        ),
    ] = PUBLISHED,
    output: Annotated[
        list[str] | None, typer.Option(help="Compare only this output; may be repeated.")
    ] = None,
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    windows: Annotated[
        int | None, typer.Option(help="A sample: so many windows, from the first of the range on.")
    ] = None,
    keys: Annotated[
        float | None,
        typer.Option(
            help="A sample: this part of the keys, such as 0.01. Both codes are computed on it."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the key to sample by; may be repeated.",
            show_default="keys of each stream",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Relative difference up to which floats are equal.",
            min=0,
            show_default="as declared",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run new code beside what was recorded, and compare window by window. Exit code 0 when it is
    equal, 1 when not.

    The new code runs as a candidate: into tables of its own, beside whatever else runs; it is never
    published. The first window that differs is shown, with its operator, port and up to 20 rows of
    each side.

    Examples:

        rewindow compare flight_delays --with new_delays.py

        rewindow compare flight_delays --with HEAD~1 --against first --windows 48

        rewindow compare flight_delays --with new_delays.py --keys 0.05 --key carrier
    """
    config = load_project()
    found = run(
        config,
        application,
        code=code,
        against=against,
        outputs=output or (),
        first=first,
        last=last,
        from_time=from_time,
        to_time=to_time,
        sample_windows=windows,
        keys=keys,
        key=key or (),
        tolerance=tolerance,
        listener=JobScreen(),
    )
    certificate = write_certificate(config, found)
    if as_json:
        print_json(certificate.model_dump(mode="json"))
    else:
        show_certificate(certificate)
        _show_rows(certificate)
    if not certificate.equal:
        raise typer.Exit(DIFFERENT_CODE)


def _show_rows(certificate: Certificate) -> None:
    """Prints the rows of each side that differ in the first differing window.

    Rules: O140
    """
    found = certificate.first_difference
    if found is None:
        return
    sides = (("a", certificate.a.name, found["rows_a"]), ("b", certificate.b.name, found["rows_b"]))
    for side, name, rows in sides:
        if rows:
            columns = excluding(rows[0], ["window_id"])
            shown = [list(map(row.__getitem__, columns)) for row in rows]
            print_rows(
                escape(f"\nonly in {side}, {name}, window {found['window']}"),
                columns,
                shown,
            )
    if certificate.equal:
        out.print("the new code does the same")
