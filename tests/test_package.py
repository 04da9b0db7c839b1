"""What the package says of itself, and what it asks of the place where it is installed."""

from __future__ import annotations

import hashlib
import pkgutil
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_license_file_matches_the_license_in_the_metadata() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


@pytest.mark.parametrize("extra", ["", "airflow"])
def test_requirements_are_version_ranges(extra: str) -> None:
    # An exact pin would conflict with other packages; the lock has the versions.
    asked = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    assert not [requirement for requirement in asked if "==" in requirement]


@pytest.mark.parametrize("package", ["rewindow", "plugins/rewindow_airflow"])
def test_every_package_has_a_py_typed_file(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_classifiers_equal_the_versions_of_requires_python() -> None:
    named = {line.rpartition(" :: 3.")[2] for line in PROJECT["classifiers"] if ":: 3." in line}
    assert named == {"11", "12", "13"} and PROJECT["requires-python"] == ">=3.11,<3.14"


@pytest.mark.parametrize("package", ["rewindow", "rewindow.operators"])
def test_no_exported_name_is_hidden_by_a_submodule(package: str) -> None:
    module = import_module(package)
    submodules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    assert not submodules & set(module.__all__)


def times(page: str, line: str) -> dict[str, str]:
    """Returns the time of each command of make that a page names with one."""
    return dict(re.findall(line, (ROOT / page).read_text(), re.MULTILINE))


def test_makefile_contributing_and_readme_state_the_same_durations() -> None:
    makefile = times("Makefile", r"^([a-z-]+):.*## .*\(((?:an?|\d+) (?:minute|hour)s?)\)")
    contributing = times("CONTRIBUTING.md", r"^\| `make ([a-z-]+)` \|.*\| ([^|]+) \|$")
    readme = times("README.md", r"^    make ([a-z-]+) +# .*\(((?:an?|\d+) (?:minute|hour)s?)\)")
    assert {"check", "test", "test-all", "test-fast"} <= set(contributing)
    assert {"demo", "test"} <= set(readme)
    assert contributing.items() | readme.items() == makefile.items()
