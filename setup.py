"""Puts the Spark entry points of jobs/ and the folder expectations/ into the installed package."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithFiles(build_py):
    """Builds the package with our jobs and expectations in it; an editable install uses the folders of the checkout."""

    def run(self) -> None:
        """Copies entry points and expectations, not the example's applications."""
        super().run()
        if self.editable_mode:
            return
        checkout, package = Path(__file__).parent, Path(self.build_lib) / "rewindow"
        for folder, pattern in (("jobs", "*.py"), ("expectations", "*.yml"), ("expectations/suites", "*.json")):
            (package / folder).mkdir(parents=True, exist_ok=True)
            for file in sorted((checkout / folder).glob(pattern)):
                shutil.copyfile(file, package / folder / file.name)


setup(cmdclass={"build_py": BuildWithFiles})
