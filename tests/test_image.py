"""The image's Dockerfile: what a step needs is there when it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_image_builds_the_class_archive_only_from_files_copied_earlier(tmp_path: Path) -> None:
    before, step, _ = (
        (ROOT / "Dockerfile").read_text().partition("python -m rewindow.spark.archive")
    )
    assert step
    for copied in re.findall(r"^COPY (rewindow/.*)$", before, re.MULTILINE):
        *sources, target = copied.split()
        (tmp_path / target).mkdir(parents=True, exist_ok=True)
        for source in sources:
            for path in ROOT.glob(source):
                shutil.copy(path, tmp_path / target)
    code = (
        "import sys; sys.meta_path = [finder for finder in sys.meta_path if 'editable' not in "
        "repr(finder)]; "
    )
    code += "import rewindow.spark.archive, rewindow; print(*rewindow.__path__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "rewindow"), "")
