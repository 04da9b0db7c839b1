"""Decides whether a stream is recorded as a copy or in place. Imports no PySpark, so that commands
that do not record start fast.
"""

from __future__ import annotations

from rewindow.errors import InputError
from rewindow.recording.sources.source import source_format
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.stream_settings import other_setting


def check_form(config: Config, name: str, *, start_over: bool = False) -> bool:
    """Returns whether a stream is recorded in place.

    Args:
        config: current settings.
        name: the stream.
        start_over: whether its form may differ from that of its recording, which is removed.

    Raises:
        InputError: it was recorded in the other form, or its source is not a Delta table.
    """
    stream = config.stream(name)
    folder = config.stream_table(name)
    if Table.exists(folder) and not start_over:
        was_copied = (folder / "_delta_log").is_dir()
        if was_copied != stream.copies:
            raise other_setting(name, "copy", stream.copies, recorded=was_copied)
    if stream.copies:
        return False
    kind = source_format(name, str(config.root / stream.source), stream.format)
    if kind != "delta":
        raise InputError(
            f'setting copy = false of stream "{name}" does not apply to a source of format {kind}',
            hint="Remove the setting: only a Delta table can be read where it is.",
        )
    return True
