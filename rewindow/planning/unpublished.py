"""Finds the windows of an application that are sealed in its inputs but not published yet. Starts
no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain

from rewindow.application import Application
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_application
from rewindow.planning.inputs import (
    RecordedStream,
    check_grids,
    common_range,
    open_recorded_stream,
    sealed_parts,
)
from rewindow.settings.config import Config
from rewindow.storage.names import data_name
from rewindow.windows import WindowRange, without


def unpublished(
    config: Config,
    application: str,
    parameters: Mapping[str, str] | None = None,
) -> WindowRange | None:
    """Returns the windows of an application that are sealed and not yet published; None if all are
    published.

    It is one range, because states are carried through it. It starts at the first window that every
    input has sealed and some output lacks, and ends at the last sealed window. Published windows in
    between are published again. A window counts as published if a publication in effect covers it,
    even if that publication has given up the window (at most once).

    Args:
        config: current settings.
        application: its name.
        parameters: values of the application's parameters.

    Raises:
        InputError: the application or a stream is unknown, or a stream is not recorded.
        RangeError: the inputs have no sealed window in common.
    """
    app = load_application(config, application, dict(parameters or {})).app
    recorded = {name: open_recorded_stream(config, name) for name in app.streams}
    check_grids(app, recorded)
    sealed = common_range(recorded)
    for lack in _lacks(config, app, sealed):
        first = _first_sealed(recorded, lack)
        if first is not None:
            return WindowRange(first, sealed.last)
    return None


def _lacks(config: Config, app: Application, sealed: WindowRange) -> list[WindowRange]:
    """Returns the parts of a range that at least one output lacks, in ascending order."""
    names = [data_name(app.name, output) for output in app.outputs]
    published = Ledger.open(config.ledger_url).publications.standing(names)
    parts: set[WindowRange] = set()
    for name in names:
        parts.update(without(sealed, [act.range for act in published.get(name, [])]))
    return sorted(parts)


def _first_sealed(recorded: Mapping[str, RecordedStream], windows: WindowRange) -> int | None:
    """Returns the first window of a range that every input has sealed; None if there is none."""
    parts = [windows]
    for stream in recorded.values():
        parts = list(chain.from_iterable(map(partial(sealed_parts, stream), parts)))
    return parts[0].first if parts else None
