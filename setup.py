"""Puts the Spark entry points of jobs/ and the suites of expectations/ into the installed package."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithFiles(build_py):
    """Builds the package with our jobs and suites in it; an editable install uses the folders of the checkout."""

    def run(self) -> None:
        """Copies the entry points and suites, not the example's applications."""
        super().run()
        if self.editable_mode:
            return
        checkout, package = Path(__file__).parent, Path(self.build_lib) / "rewindow"
        for folder, pattern, target in (("jobs", "*.py", "jobs"), ("expectations/suites", "*.json", "suites")):
            (package / target).mkdir(parents=True, exist_ok=True)
            for file in sorted((checkout / folder).glob(pattern)):
                shutil.copyfile(file, package / target / file.name)


setup(cmdclass={"build_py": BuildWithFiles})
