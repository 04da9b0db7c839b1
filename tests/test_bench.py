"""The benchmarks run in a fresh clone."""

from __future__ import annotations

from pathlib import Path

from bench.whole import make_project, seconds_of


def test_benchmark_process_finds_its_module_from_a_project_folder(
    tmp_path: Path,
) -> None:
    make_project(tmp_path)
    assert seconds_of(["-m", "rewindow.cli", "validate", "totals"], tmp_path) > 0
