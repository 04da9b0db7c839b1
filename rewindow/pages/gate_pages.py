"""Writes the pages of a gate run: one for each output, and the page with results over time."""

from __future__ import annotations

from rewindow.pages.expectation_index import write_index
from rewindow.pages.output_page import output_page
from rewindow.quality.outcome import GateResult
from rewindow.settings.config import Config


def write_gate_pages(config: Config, result: GateResult) -> None:
    """Writes the pages of a gate run to the paths in its result."""
    for verdict in result.outputs:
        verdict.docs.write(output_page(result.plan, verdict, result.checked_at))
    write_index(config)
