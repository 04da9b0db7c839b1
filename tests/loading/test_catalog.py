"""Applications by name: what they may import, and the fingerprints that checkpoints are bound
to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rewindow.application import validate
from rewindow.errors import InputError, ValidationFailed
from rewindow.loading.catalog import LoadedApplication, application_names, load_application
from rewindow.settings.config import Config

ROOT = Path(__file__).parents[2]
APPLICATION = """
import pyarrow as pa
from rewindow.application import Application, FrameOperator, InputPort, OutputPort
{imports}
X = pa.schema([("x", pa.int64())])

class Pass({bases}):
    inputs = {{"a": InputPort(X)}}
    outputs = {{"out": OutputPort(X)}}
    {property}

app = Application("{name}", window="1 hour")
app.output("out", app.add("pass", Pass(), a=app.input("s")), key=["x"])
"""
BASE = (
    "from rewindow.application import FrameOperator\n\nclass Base(FrameOperator):\n    limit: "
    "int = {limit}\n"
)


def write(
    folder: Path,
    name: str = "one",
    *,
    imports: str = "",
    bases: str = "FrameOperator",
    property: str = "",
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(
        APPLICATION.format(name=name, imports=imports, bases=bases, property=property)
    )


def load(folder: Path, name: str = "one") -> LoadedApplication:
    return load_application(Config(applications=[folder]), name)


def fingerprints(folder: Path, hash_seed: int) -> str:
    code = (
        "import sys; from pathlib import Path; from rewindow.settings.config import Config;"
        "from rewindow.loading.catalog import load_application;"
        "one = load_application(Config(applications=[Path(sys.argv[1])]), 'one');"
        "print(one.code_version, one.configuration_digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(
        command,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_fingerprints_do_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    # Rules: W65, R83
    names = ("_a", "_b", "_c", "_d", "_e")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "clean.py").write_text(f"NAME = '{name}'\n")
    words = "frozenset({'one', 'two', 'three', 'four', 'five'})"
    imports = "\n".join(f"import {name}.clean" for name in names)
    write(
        tmp_path,
        imports=imports,
        property=f"words: list[frozenset[str] | set[int]] = [{words}, {{1, 2}}]",
    )
    assert len({fingerprints(tmp_path, seed) for seed in range(3)}) == 1


def test_change_of_a_base_class_is_a_code_change(tmp_path: Path) -> None:
    # Rules: W65
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "operators_of_others.py").write_text(BASE.format(limit=1))
    imports = (
        f"import sys\nsys.path.insert(0, '{tmp_path}/lib')\nfrom operators_of_others import Base"
    )
    write(tmp_path / "applications", imports=imports, bases="Base")
    before = fingerprints(tmp_path / "applications", 0)
    (tmp_path / "lib" / "operators_of_others.py").write_text(
        BASE.format(limit=1) + "CHANGED = True\n"
    )
    after = fingerprints(tmp_path / "applications", 0)
    assert [part == other for part, other in zip(before.split(), after.split(), strict=True)] == [
        False,
        True,
    ]


def test_changed_file_with_equal_size_and_timestamp_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "applications"
    folder.mkdir()
    file = folder / "one.py"
    found = []
    for width in ("1 hour", "2 hour"):
        code = (
            f"from rewindow.application import Application\napp = Application('one', '{width}')\n"
        )
        file.write_text(code)
        os.utime(file, (1, 1))
        found.append(load_application(Config(applications=[folder]), "one").app.window)
    assert found == ["1 hour", "2 hour"]


def test_imported_helper_module_is_part_of_the_code(tmp_path: Path) -> None:
    # Rules: W65
    (tmp_path / "_measures.py").write_text("LIMIT = 1\n")
    (tmp_path / "_unused.py").write_text("")
    write(tmp_path, imports="from _measures import LIMIT", property="limit: int = LIMIT")
    path = [*sys.path]
    first = load(tmp_path)
    assert application_names(Config(applications=[tmp_path])) == ["one"] and sys.path == path
    (tmp_path / "_unused.py").write_text("CHANGED = True\n")
    assert load(tmp_path).code_version == first.code_version
    (tmp_path / "_measures.py").write_text("LIMIT = 1 + 1\n")
    second = load(tmp_path)
    assert second.app.nodes["pass"].operator.limit == 2  # type: ignore[attr-defined]
    assert second.code_version != first.code_version


def test_imported_package_of_helpers_is_part_of_the_code(tmp_path: Path) -> None:
    # Rules: W65
    deep = tmp_path / "operators" / "clean"
    deep.mkdir(parents=True)
    (deep / "limits.py").write_text("LIMIT = 1\n")
    (deep / "unused.py").write_text("")
    write(
        tmp_path,
        imports="from operators.clean.limits import LIMIT",
        property="limit: int = LIMIT",
    )
    first = load(tmp_path)
    (deep / "unused.py").write_text("CHANGED = True\n")
    assert load(tmp_path).code_version == first.code_version
    (deep / "limits.py").write_text("LIMIT = 1 + 1\n")
    assert load(tmp_path).code_version != first.code_version


def test_helper_modules_with_the_same_name_are_loaded_separately_per_application(
    tmp_path: Path,
) -> None:
    for limit, name in enumerate(("one", "two")):
        write(
            tmp_path / name,
            name,
            imports="from _measures import LIMIT",
            property="limit: int = LIMIT",
        )
        (tmp_path / name / "_measures.py").write_text(f"LIMIT = {limit}\n")
    alone = load(tmp_path / "one").code_version
    assert load(tmp_path / "two", "two").app.nodes["pass"].operator.limit == 1  # type: ignore[attr-defined]
    assert load(tmp_path / "one").code_version == alone


def test_threads_load_applications_of_several_folders_at_the_same_time(tmp_path: Path) -> None:
    for limit, name in enumerate(("one", "two")):
        write(
            tmp_path / name,
            name,
            imports="import time\ntime.sleep(0.001)\nfrom _measures import LIMIT",
            property="limit: int = LIMIT",
        )
        (tmp_path / name / "_measures.py").write_text(f"LIMIT = {limit}\n")

    def limit_of(name: str) -> int:
        return load(tmp_path / name, name).app.nodes["pass"].operator.limit  # type: ignore[attr-defined,no-any-return]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(limit_of, ["one", "two"] * 40)) == [0, 1] * 40


def test_application_named_like_a_module_does_not_shadow_it(tmp_path: Path) -> None:
    write(tmp_path, "colorsys")
    write(tmp_path, imports="import colorsys\ncolorsys.rgb_to_hsv(0, 0, 0)")
    sys.modules.pop("colorsys", None)
    assert load(tmp_path).app.name == "one"


def test_unserializable_property_is_reported_with_its_operator(tmp_path: Path) -> None:
    write(tmp_path, property="schema_: pa.Schema = X")
    with pytest.raises(
        InputError,
        match='operator "pass" has a property that cannot be written as JSON',
    ):
        _ = load(tmp_path).configuration_digest


def test_wrong_property_does_not_prevent_loading_an_application(tmp_path: Path) -> None:
    # Rules: O60
    write(
        tmp_path,
        "beat",
        imports="from rewindow.operators.heartbeat.operator import Heartbeat",
        bases="Heartbeat",
    )
    source = (tmp_path / "beat.py").read_text()
    (tmp_path / "beat.py").write_text(
        source.replace("Pass()", "Pass(interval=60, event_at='at', columns='abc')")
    )
    with pytest.raises(ValidationFailed, match="columns = 'abc'"):
        validate(load(tmp_path, "beat").app)
