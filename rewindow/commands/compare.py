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
            help="New code: a file, or a Git revision.",
            show_default="the code in the applications folder",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            help='Recorded output: a replay\'s id, or "published".',
            autocompletion=sides,
        ),
    ] = PUBLISHED,
    output: Annotated[
        list[str] | None, typer.Option(help="Compare only this output; repeatable.")
    ] = None,
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    windows: Annotated[
        int | None,
        typer.Option(
            help="Compare a sample: this number of windows, counted from the first of the range."
        ),
    ] = None,
    keys: Annotated[
        float | None,
        typer.Option(
            help="Compare a sample: this fraction of the keys, such as 0.01. Both versions of the "
            "code run on it."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Key column to sample by; repeatable.",
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
    """Run new code on the recorded input, and compare its output with the recorded output, window
    by window. The exit code is 0 if they are equal, 1 if they differ.

    The new code runs as a candidate: it writes to separate tables, does not disturb other replays,
    and cannot be published. If results differ, the command shows the first window that differs,
    with the operator, the port and up to 20 rows of each side.

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
        out.print("the results of the new code are equal")
