"""Renders a certificate as one self-contained page.

It can be read offline, with a light and a dark theme.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from rewindow.certificate.certificate import Certificate, OutputCertificate
from rewindow.pages.drawing import draw
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange, format_time

STRIP_WIDTH = 1000
_RECTANGLES_MAX = 2_000
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_MEANING = {
    "equal": "the same rows, in any order",
    "lost": "b lacks rows that a has",
    "repeated": "b has some rows of a twice",
    "changed": "different rows",
    "affected": "computed from a state that lacks lost windows or is stale",
    "not verifiable": "computed by an operator that reads outside systems, so not compared",
}


def certificate_page(certificate: Certificate, links: Mapping[str, str] | None = None) -> str:
    """Returns the page of a certificate as HTML.

    Args:
        certificate: the certificate.
        links: further pages: name to address.
    """
    grid = Grid(certificate.width_ms, certificate.origin_ms)
    return draw(
        "certificate.html",
        c=certificate,
        links=links or {},
        meaning=_MEANING,
        contents=certificate.contents_words,
        starts=lambda window: format_time(grid.start_us(window)),
        ends=format_time(grid.end_us(certificate.last)),
        strips={output.name: _strip(certificate, output) for output in certificate.outputs},
        strip_width=STRIP_WIDTH,
        compared=[row for row in _sides(certificate) if row[1] != "" or row[2] != ""],
    )


def _strip(certificate: Certificate, output: OutputCertificate) -> list[dict[str, Any]]:
    """Returns the rectangles of an output's strip.

    There is one for each run of windows of the same class.
    """
    windows = WindowRange(certificate.first, certificate.last)
    scale = STRIP_WIDTH / len(windows)
    rectangles: list[dict[str, Any]] = []
    for difference, ranges in output.ranges.items():
        for first, last in ranges:
            rectangles.append(
                {
                    "x": round((first - windows.first) * scale, 2),
                    "width": round(max((last - first + 1) * scale, 1.0), 2),
                    "kind": difference,
                    "label": f"{difference}: windows {first} to {last}",
                }
            )
    return rectangles[:_RECTANGLES_MAX]


def _sides(certificate: Certificate) -> list[tuple[str, str, str]]:
    a = certificate.a.model_dump()
    b = certificate.b.model_dump()
    compared = [("windows", f"{a['first']} to {a['last']}", f"{b['first']} to {b['last']}")]
    for name, label in (
        ("mode", "recovery mode"),
        ("guarantees", "guarantee of each output"),
        ("code_version", "code version"),
        ("attempts", "attempts"),
        ("windows_sealed_again", "windows computed and sealed by more than one attempt"),
        ("inputs", "inputs (stream: table and windows version, table id)"),
        ("inputs_compared", "input files compared by"),
        ("start_state", "start state"),
        ("table_versions", "table versions"),
        ("compared", "tables compared with ledger and seals"),
    ):
        compared.append((label, _text(a.get(name)), _text(b.get(name))))
    return compared


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(
            f"{name}: {_text(part)}" for name, part in value.items() if part not in (None, "")
        )
    return " / ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_certificate(config: Config, certificate: Certificate) -> Certificate:
    """Writes a certificate as JSON and as a page to the folder of results. Returns the certificate
    with the paths of these files.

    The same comparison writes the same files. If the state folder is read-only, nothing is written
    and the certificate has no path.
    """
    folder = config.results / "certificates"
    name = f"{certificate.a.name}--{certificate.b.name}-{certificate.digest[:8]}"
    path = folder / f"{name}.json"
    page = folder / f"{name}.html"
    drawn = certificate_page(certificate)
    try:
        path.write(certificate.to_json())
        page.write(drawn)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return certificate
    return certificate.model_copy(update={"path": str(path), "page": str(page)})
