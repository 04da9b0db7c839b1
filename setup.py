"""Puts the Spark entry points of jobs/ into the installed package, where the launcher looks for them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithJobs(build_py):
    """Builds the package with `rewindow/jobs`; an editable install uses the checkout's own folder."""

    def run(self) -> None:
        """Copies the entry points, not the example's applications."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "rewindow" / "jobs"
        target.mkdir(parents=True, exist_ok=True)
        for job in sorted((Path(__file__).parent / "jobs").glob("*.py")):
            shutil.copyfile(job, target / job.name)


setup(cmdclass={"build_py": BuildWithJobs})
