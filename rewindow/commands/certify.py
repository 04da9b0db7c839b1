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
from rewindow.windows import Grid, WindowRange

DIFFERENT_CODE = 1


def certify(
    a: Annotated[
        str, typer.Argument(help='Reference: a replay\'s id, or "published".', autocompletion=sides)
    ],
    b: Annotated[
        str,
        typer.Argument(
            help='Compared with the reference: a replay\'s id, or "published".',
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
            help="Compare the rows of all attempts, not only those that readers see.",
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read all rows and compute their digests again; needs Spark."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report whether two ranges are equal, and where they differ. The exit code is 0 if they are
    equal, 1 if they differ.

    Windows are compared by the digests in their seals. Rows are read only for windows that differ,
    and for those whose published tables were changed by other programs. With --full, all rows are
    read and their digests are computed again. For replays of two applications, the outputs that
    have the same name in both are compared.

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
    grid = Grid(certificate.width_ms, certificate.origin_ms)
    windows = grid.describe(WindowRange(certificate.first, certificate.last))
    span = f"windows {windows} of {certificate.application}"
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
    page = certificate.page or "not written: the state folder is not writable"
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
        out.print(escape(f"in total: {certificate.missing_words()}"))
