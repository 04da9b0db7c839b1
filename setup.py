"""Puts the Spark entry points of jobs/, the folder expectations/ and the example DAGs into the
installed package.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = (
    ("jobs", "*.py", "jobs"),
    ("expectations", "*.yml", "expectations"),
    ("expectations", "README.md", "expectations"),
    ("expectations/suites", "*.json", "expectations/suites"),
    ("dags", "*.py", "example_dags"),
)
"""Folder of the checkout, its files, and their folder in the package. Airflow looks for examples in
`example_dags`."""


class BuildWithFiles(build_py):
    """Builds the package with files of other folders in it; an editable install uses the folders of
    the checkout.
    """

    def run(self) -> None:
        """Copies entry points, expectations and DAGs, not the example's applications."""
        super().run()
        if self.editable_mode:
            return
        checkout = Path(__file__).parent
        package = Path(self.build_lib) / "rewindow"
        for folder, pattern, target in FILES:
            (package / target).mkdir(parents=True, exist_ok=True)
            for file in sorted((checkout / folder).glob(pattern)):
                shutil.copyfile(file, package / target / file.name)


setup(cmdclass={"build_py": BuildWithFiles})
