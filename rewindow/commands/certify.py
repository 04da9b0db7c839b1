"""`rewindow certify`: compares two replays, or a replay with the published tables."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.certificate import Certificate
from rewindow.certificate import certify as compare
from rewindow.commands.completion import sides
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, First, Last, out, print_json, print_rows
from rewindow.errors import InputError
from rewindow.pages.certificate_page import write_certificate
from rewindow.windows import WindowRange

DIFFERENT_CODE = 1


def certify(
    a: Annotated[
        str, typer.Argument(help='Reference: a replay\'s id, or "published".', autocompletion=sides)
    ],
    b: Annotated[
        str,
        typer.Argument(
            help='What is compared with it: a replay\'s id, or "published".',
            autocompletion=sides,
        ),
    ],
    first: First = None,
    last: Last = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Relative difference up to which floats are equal.",
            min=0,
            show_default="as declared",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Look at the rows of all attempts, not only at what readers see.",
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read everything and digest it again; needs Spark.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether two ranges are equal, and where not. Exit code 0 when they are equal, 1 when they
    differ.

    Equal ranges are compared by the digests of their seals; only windows that differ are read, and
    those whose published tables were changed by others. With --full everything is read and digested
    again. Replays of two applications are compared by the outputs that both have by one name.

    Examples:

        rewindow certify published flight_delays-376954-385709-1f2e3d

        rewindow certify first second --raw
    """
    if (first is None) != (last is None):
        raise InputError("a range needs both --first and --last")
    windows = WindowRange(first, last) if first is not None and last is not None else None
    config = load_project()
    found = compare(config, a, b, tolerance=tolerance, raw=raw, full=full, windows=windows)
    certificate = write_certificate(config, found)
    if as_json:
        print_json(certificate.model_dump(mode="json"))
    else:
        show_certificate(certificate)
    if not certificate.equal:
        raise typer.Exit(DIFFERENT_CODE)


def show_certificate(certificate: Certificate) -> None:
    """Prints a certificate: verdict, outputs, numbers of missing tuples, notes, the first
    difference.
    """
    color = "green" if certificate.equal else "red"
    span = f"windows [{certificate.first}, {certificate.last}] of {certificate.application}"
    out.print(
        f"[{color}]{escape(certificate.verdict)}[/{color}]: {escape(span)}, in "
        f"{certificate.seconds} s"
    )
    found_classes = {"equal"}
    for output in certificate.outputs:
        found_classes |= {name for name, count in output.classes.items() if count}
    classes = sorted(found_classes)
    columns = (
        "output",
        "windows",
        *classes,
        "only in a",
        "only in b",
        "tuples repeated",
        "rows changed",
    )
    rows = []
    for output in certificate.outputs:
        counts = [output.classes.get(name, 0) for name in classes]
        only = output.only_in_tuples
        rows.append(
            (
                output.name,
                output.windows,
                *counts,
                only.a,
                only.b,
                output.repeated_tuples,
                output.rows_changed,
            )
        )
    print_rows("", columns, rows)
    _show_missing(certificate)
    out.print(f"contents: {certificate.contents_words}")
    for line in [*(certificate.a.compared or ()), *(certificate.b.compared or ())]:
        out.print(f"compared: {escape(line)}")
    for side in (certificate.a, certificate.b):
        for name, promise in (side.guarantees or {}).items():
            out.print(escape(f"{name} of {side.name}: {promise}"))
    for note in certificate.notes:
        out.print(f"note: {escape(note)}")
    found = certificate.first_difference
    if found is not None:
        plain = {
            name: value
            for name, value in found.items()
            if not isinstance(value, list | dict | None)
        }
        out.print(
            "first difference: "
            + ", ".join(f"{name} {escape(str(value))}" for name, value in plain.items())
        )
    page = certificate.page or "not written, since the state folder cannot be written to"
    out.print(f"page: {escape(page)}")


def _show_missing(certificate: Certificate) -> None:
    """Prints how many tuples each side lacks: for every output that differs, and in total if there
    are several.
    """
    if certificate.equal:
        return
    out.print(escape(f"a is {certificate.a.name}, b is {certificate.b.name}"))
    differing = [
        output
        for output in certificate.outputs
        if output.only_in_tuples.a or output.only_in_tuples.b
    ]
    for output in differing:
        out.print(escape(f"{output.name}: {certificate.missing_words(output.only_in_tuples)}"))
    if len(differing) != 1:
        out.print(escape(f"in all: {certificate.missing_words()}"))
