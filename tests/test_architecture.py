"""Files, modules and symbols that docs/architecture.md and the pages next to it name exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/architecture.md").read_text()
TABLES = (ROOT / "docs/tables.md").read_text()
ADDING = (ROOT / "docs/where_to_add.md").read_text()
MODULE = re.compile(r"[a-z_]+(?:\.[A-Za-z_]+)+")
SYMBOL = re.compile(r"[a-z_]+(?:\.[a-z_]+)*\.[A-Z][A-Za-z]+")
PLACES = ("NAME", "VERB", "ID", "FORMAT")
"""What stands for a name that is to be chosen."""


def named() -> list[str]:
    """Returns the code in the rows of the table that says where to add something."""
    rows = [line for line in ADDING.splitlines() if line.startswith("| ")]
    return sorted({code for row in rows for code in re.findall(r"`([^`]+)`", row)})


def paths() -> list[str]:
    return [code for code in named() if "/" in code or code.endswith(".py")]


def test_architecture_page_contains_the_table_of_packages() -> None:
    # Without it, the other tests would check nothing.
    assert len(paths()) > 15, paths()


@pytest.mark.parametrize("path", paths())
def test_extension_points_in_the_architecture_table_exist(path: str) -> None:
    name, _, symbol = path.partition(":")
    parts = name.rstrip("/").split("/")
    while any(place in parts[-1] for place in PLACES):
        parts.pop()
    found = [
        root / Path(*parts) for root in (ROOT, ROOT / "rewindow") if (root / Path(*parts)).exists()
    ]
    assert found, f"{path} is not there"
    if symbol:
        assert re.search(rf"\b{symbol}\b", found[0].read_text()), f"{name} has no {symbol}"


def test_symbols_in_the_architecture_table_exist() -> None:
    for name in sorted({code for code in named() if SYMBOL.fullmatch(code)}):
        module, _, symbol = name.rpartition(".")
        assert hasattr(import_module(f"rewindow.{module}"), symbol), name


def test_architecture_table_lists_exactly_the_packages_of_the_library() -> None:
    layers = TEXT.partition("## Packages")[2].partition("Packages in `operators`")[0]
    rooms = {
        row.split("|")[2].strip().strip("`") for row in layers.splitlines() if row.count("|") == 4
    }
    folders = {path.parent.name for path in (ROOT / "rewindow").glob("*/__init__.py")}
    assert folders - {"location"} <= rooms, folders - rooms
    assert {room for room in rooms if re.fullmatch("[a-z_]+", room)} - {"package"} <= folders, (
        rooms - folders
    )


@pytest.mark.parametrize("page", [TEXT, TABLES], ids=["architecture", "tables"])
def test_modules_and_functions_named_on_the_architecture_page_exist(page: str) -> None:
    codes = {code for code in re.findall(r"`([^`\n]+)`", page) if MODULE.fullmatch(code)}
    packages = {path.parent.name for path in (ROOT / "rewindow").glob("*/__init__.py")}
    names = sorted(code for code in codes if code.split(".")[0] in packages)
    assert names
    missing = [name for name in names if not is_module_or_attribute(f"rewindow.{name}")]
    assert not missing


def is_module_or_attribute(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return True
    module, _, attribute = name.rpartition(".")
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return source.is_file() and bool(re.search(rf"\b(def|class) {attribute}\b", source.read_text()))
