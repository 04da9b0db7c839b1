"""What a recording has to read, by files alone."""

from __future__ import annotations

import os
from pathlib import Path

from rewindow.recording.sources.size import bytes_to_read
from rewindow.settings.config import Config, StreamConfig


def test_files_changed_since_the_last_recording_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    for number, name in enumerate(("a.csv", "b.csv", "below/c.csv"), 1):
        (folder / name).write_bytes(b"x" * 10**number)
    sources = {
        "all": folder,
        "some": folder / "*.csv",
        "one": folder / "a.csv",
        "none": folder / "no.csv",
    }
    streams = {
        name: StreamConfig(source=str(path), arrived_at="at", width="1 h")
        for name, path in sources.items()
    }
    config = Config(state=tmp_path / "state", streams=streams)
    assert {name: bytes_to_read(config, name) for name in sources} == {
        "all": 1110,
        "some": 110,
        "one": 10,
        "none": 0,
    }
    log = config.stream_table("all") / "_delta_log"
    log.make_folder()
    os.utime(folder / "b.csv", (1, 1))
    log.set_modified(2_000)
    assert bytes_to_read(config, "all") == 1010


def test_estimated_size_of_a_generator_increases_with_its_tuples(tmp_path: Path) -> None:
    sizes = []
    for windows in (10, 1000):
        stream = StreamConfig(
            source="sensors",
            format="generator",
            arrived_at="arrived_at",
            source_settings={"rate": 2000, "windows": windows, "parts": 4},
        )
        config = Config(state=tmp_path, streams={"s": stream})
        sizes.append(bytes_to_read(config, "s"))
    assert sizes == [2_000_000, 200_000_000]
