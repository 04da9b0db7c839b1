"""What the package says of itself, and what it asks of the place where it is installed."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_license_is_the_text_that_the_metadata_name() -> None:
    """The file is the Apache License 2.0, word for word."""
    assert PROJECT["license"] == "Apache-2.0"
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


@pytest.mark.parametrize("extra", ["", "airflow"])
def test_requirements_are_ranges(extra: str) -> None:
    """An exact pin would keep the package out of an environment that has anything else; the lock has the versions."""
    asked = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    assert not [requirement for requirement in asked if "==" in requirement]


@pytest.mark.parametrize("package", ["rewindow", "plugins/rewindow_airflow"])
def test_packages_say_that_they_are_typed(package: str) -> None:
    """A type checker follows our annotations only where this file lies."""
    assert (ROOT / package / "py.typed").is_file()


def test_classifiers_are_the_versions_that_are_allowed() -> None:
    """`requires-python` and the classifiers, which people read, say the same."""
    named = {line.rpartition(" :: 3.")[2] for line in PROJECT["classifiers"] if ":: 3." in line}
    assert named == {"11", "12", "13"} and PROJECT["requires-python"] == ">=3.11,<3.14"
