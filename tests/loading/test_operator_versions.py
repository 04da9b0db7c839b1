"""Versions per operator: the changes that affect one, and those that do not. No JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.loading.catalog import LoadedApplication, load_application
from rewindow.settings.config import Config

SOURCE = '''"""Three operators in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import field_serializer

import _shared.rounding
from _limits import LOW
from _shared import scales as scale
from rewindow.application import Application
from rewindow.application import FrameOperator, InputPort, OutputPort

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

X = pa.schema([("x", pa.int64())])
Y = pa.schema([("x", pa.int64())])
FACTOR = 2
RATES = {"a": 1}


def double(value: int) -> int:
    """Returns twice the value."""
    return shift(value) * FACTOR


def shift(value: int) -> int:
    return value + 1  # one


def steps() -> int:
    return 7


class Base(FrameOperator):
    """What the first operator has."""

    limit: int = 1

    def transform(self, inputs, state, context):
        third = double(self.limit)
        return inputs["a"].limit(third)


class First(Base):
    inputs = {"a": InputPort(X)}
    outputs = {"out": OutputPort(X)}


class Second(FrameOperator):
    inputs = {"a": InputPort(X)}
    outputs = {"out": OutputPort(X)}
    change: Callable[[int], int] | None = None

    @field_serializer("change")
    def _text(self, change) -> str:
        return "a function"

    def transform(self, inputs, state, context):
        return inputs["a"].limit(LOW + scale.up(1) + _shared.rounding.down(2))


class Third(FrameOperator):
    inputs = {"a": InputPort(Y)}
    outputs = {"out": OutputPort(Y)}
    most: int = 5

    def transform(self, inputs, state, context) -> DataFrame:
        return inputs["a"].limit(self.most)


app = Application("three", window="1 hour")
first = app.add("first", First(), a=app.input("s", X))
second = app.add("second", Second(), a=first)
third = app.add("third", Third(), a=second)
app.output("out", third, key=["x"])
'''
FILES = {
    "three.py": SOURCE,
    "_limits.py": "from _numbers import LOWEST as LOW\n\nHIGH = 9\n",
    "_numbers.py": "LOWEST = 1\nHIGHEST = 8\n",
    "_shared/scales.py": "from .rounding import down\n\ndef up(x):\n    return down(x) + 1\n"
    "\ndef other(x):\n    return x\n",
    "_shared/rounding.py": "def down(x):\n    return x\n\ndef nearest(x):\n    return x + 1\n",
}
ALL = {"first", "second", "third"}


def load(folder: Path, *edits: tuple[str, str], file: str = "three.py") -> LoadedApplication:
    """Loads the application with texts replaced in one of its files."""
    for name, source in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for old, new in edits if name == file else ():
            assert old in source, old
            source = source.replace(old, new)
        path.write_text(source)
    return load_application(Config(applications=[folder]), "three")


def changed(before: LoadedApplication, after: LoadedApplication) -> tuple[set[str], set[str]]:
    """Returns the operators whose code differs, and those whose configuration does."""
    old = before.versions(None)
    new = after.versions(None)
    code = {name for name in new if new[name].code_version != old[name].code_version}
    configuration = {
        name for name in new if new[name].configuration_digest != old[name].configuration_digest
    }
    return code, configuration


@pytest.mark.parametrize(
    ("file", "old", "new", "operators"),
    [
        ("three.py", "limit(self.most)", "limit(self.most + 1)", {"third"}),
        ("three.py", "value + 1", "value + 2", {"first"}),
        ("three.py", "FACTOR = 2", "FACTOR = 3", {"first"}),
        ("three.py", "limit: int = 1", "limit: int = 1\n    other: int = 1", {"first"}),
        ("three.py", "Y = pa.schema([", 'Y = pa.schema([("y", pa.int8()),', {"third"}),
        (
            "three.py",
            "\nX = pa.schema([",
            '\nX = pa.schema([("y", pa.int8()),',
            {"first", "second"},
        ),
        ("three.py", "return 7", "return 8", set()),
        ("three.py", "import LOW\n", "import HIGH as LOW\n", {"second"}),
        ("_limits.py", "HIGH = 9", "HIGH = 10", set()),
        ("_numbers.py", "LOWEST = 1", "LOWEST = 2", {"second"}),
        ("_numbers.py", "HIGHEST = 8", "HIGHEST = 9", set()),
        ("_shared/scales.py", "down(x) + 1", "down(x) + 2", {"second"}),
        ("_shared/scales.py", "    return x\n", "    return -x\n", set()),
        ("_shared/rounding.py", "return x\n", "return -x\n", {"second"}),
        ("_shared/rounding.py", "return x + 1", "return x", set()),
    ],
)
def test_operator_code_version_changes_with_the_code_that_it_calls(
    tmp_path: Path,
    file: str,
    old: str,
    new: str,
    operators: set[str],
) -> None:
    # Rules: W65
    before = load(tmp_path / "before")
    after = load(tmp_path / "after", (old, new), file=file)
    code, _ = changed(before, after)
    assert code == operators
    assert after.code_version != before.code_version


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Returns twice the value.", "Returns the value, twice."),
        ("  # one", ""),
        ("\n\n\ndef steps", "\n\n# Steps.\n\n\n\ndef steps"),
        ('    """What the first operator has."""\n', ""),
        ("import DataFrame", "import Column, DataFrame"),
        (
            "rewindow.application import Application",
            "rewindow.application.graph import Application",
        ),
    ],
)
def test_operator_code_version_ignores_comments_and_type_checking_code(
    tmp_path: Path,
    old: str,
    new: str,
) -> None:
    # Rules: W65
    before = load(tmp_path / "before")
    assert changed(before, load(tmp_path / "after", (old, new))) == (set(), set())


@pytest.mark.parametrize(
    "reach",
    [
        "getattr(self, name)",
        'globals()["steps"]()',
        'eval("steps()")',
        'vars(self)["steps"]()',
        "FACTOR_OF_A_STAR_IMPORT",
        "self.transform.__globals__",
    ],
)
def test_dynamic_access_makes_the_version_depend_on_the_whole_file_only(
    tmp_path: Path, reach: str
) -> None:
    # Rules: W65
    dynamic = ("return shift(value) * FACTOR", f"return {reach}")
    before = load(tmp_path / "before", dynamic)
    after = load(tmp_path / "after", dynamic, ("return 7", "return 8"))
    assert changed(before, after)[0] == {"first"}


@pytest.mark.parametrize(
    "reach",
    [
        'importlib.import_module("_numbers").LOWEST',
        '__import__("_numbers").LOWEST',
        'sys.modules["_numbers"].LOWEST',
    ],
)
def test_dynamic_import_makes_the_version_depend_on_all_files(tmp_path: Path, reach: str) -> None:
    # Rules: W65
    texts = [
        ("return shift(value) * FACTOR", f"return {reach}"),
        ("import _shared.rounding", "import importlib\nimport sys\n\nimport _shared.rounding"),
    ]
    before = load(tmp_path / "before", *texts)
    after = load(tmp_path / "after", *texts)
    assert changed(before, after) == (set(), set())
    (tmp_path / "after" / "three.py").rename(tmp_path / "three.py")
    load(tmp_path / "after", ("LOWEST = 1", "LOWEST = 2"), file="_numbers.py")
    (tmp_path / "three.py").rename(tmp_path / "after" / "three.py")
    after = load_application(Config(applications=[tmp_path / "after"]), "three")
    assert changed(before, after)[0] == {"first", "second"}


@pytest.mark.parametrize(
    ("new", "operators"),
    [
        ("RATES.update(b=1)", ALL),
        ("RATES['b'] = 1", ALL),
        ("@str\ndef one(): ...", set()),
        ("def keep(function):\n    return function\n\n@keep\ndef one(): ...", ALL),
        ("app.output('second', second, key=[])", set()),
        ("def more():\n    app.output('second', second, key=[])\n\nmore()", set()),
        ("if RATES:\n    HIGH = 3", ALL),
        ("if RATES:\n    RATES.clear()", ALL),
    ],
)
def test_code_that_can_change_any_operator_is_part_of_every_version(
    tmp_path: Path,
    new: str,
    operators: set[str],
) -> None:
    # Rules: W65
    before = load(tmp_path / "before")
    after = load(tmp_path / "after", ('app.output("out"', f'{new}\n\napp.output("out"'))
    assert changed(before, after)[0] == operators


MADE = """

def made(limit):
    class Made(Third):
        most: int = limit + shift(1)

    return Made()


def build():
    app = Application("three", window="1 hour")
    scaled = lambda value: value * 3
    rate = 2
    first = app.add("first", Second(change=CHANGE), a=app.input("s", X))
    second = app.add("second", Second(), a=first)
    third = app.add("third", made(3), a=second)
    app.output("out", third, key=["x"])
    return app
"""


@pytest.mark.parametrize(
    ("change", "old", "new", "operators"),
    [
        ("steps", "return 7", "return 8", {"first"}),
        ("partial(double, 1)", "FACTOR = 2", "FACTOR = 3", {"first"}),
        ("scaled", "value * 3", "value * 4", {"first"}),
        ("scaled", "rate = 2", "rate = 3", {"first"}),
        ("lambda value: value * rate", "rate = 2", "rate = 3", {"first"}),
        ("lambda value: shift(value)", "value + 1", "value + 2", {"first", "third"}),
        ("None", "limit + shift(1)", "limit + shift(2)", {"third"}),
        ("None", "value + 1", "value + 2", {"third"}),
        ("None", "rate = 2", "rate = 3", set()),
    ],
)
def test_property_functions_and_generated_classes_are_part_of_the_version(
    tmp_path: Path,
    change: str,
    old: str,
    new: str,
    operators: set[str],
) -> None:
    # Rules: W65
    texts = [
        (SOURCE[SOURCE.index("\n\napp = ") :], MADE.replace("CHANGE", change)),
        ("import pyarrow", "from functools import partial\n\nimport pyarrow"),
    ]
    before = load(tmp_path / "before", *texts)
    assert changed(before, load(tmp_path / "after", *texts, (old, new)))[0] == operators


@pytest.mark.parametrize(
    ("old", "new", "operators"),
    [
        ("First()", "First(limit=2)", ALL),
        ("Third()", "Third(most=2)", {"third"}),
        (
            '"second", Second(), ',
            '"second", Second(), application_windows=4, ',
            {"second", "third"},
        ),
        ('"first", First(), ', '"first", First(), application_windows=4, slide_windows=2, ', ALL),
        ("a=second", "a=first", {"third"}),
        ('app.input("s", X)', 'app.input("t", X)', ALL),
        ('app.input("s", X)', 'app.input("s")', ALL),
        ('window="1 hour"', 'window="2 hours"', ALL),
        ('"second", Second()', '"middle", Second()', {"middle", "third"}),
        ('"first", First(), ', '"first", First(), mode="at_least_once", ', set()),
        ('"first", First(), ', '"first", First(), checkpoint_windows=5, ', set()),
        ('output("out"', 'output("other"', set()),
    ],
)
def test_operator_configuration_includes_that_of_all_upstream_operators(
    tmp_path: Path,
    old: str,
    new: str,
    operators: set[str],
) -> None:
    # Rules: W65, W58
    before = load(tmp_path / "before").versions(None)
    after = load(tmp_path / "after", (old, new)).versions(None)
    digests = {version.configuration_digest for version in before.values()}
    assert {name for name in after if after[name].configuration_digest not in digests} == operators
    assert {name: version.upstream for name, version in before.items()} == {
        "first": [],
        "second": ["first"],
        "third": ["first", "second"],
    }


def test_checkpoint_distance_is_part_of_the_version_of_operators_that_read_it(
    tmp_path: Path,
) -> None:
    # Rules: W47, W65
    told = ('return inputs["a"].limit(LOW', 'return inputs["a"].limit(context.next_mark(LOW)')
    for texts, operators in (([], set()), ([told], {"second", "third"})):
        loaded = load(tmp_path, *texts)
        before = loaded.versions(6)
        after = loaded.versions(7)
        assert {name for name in after if after[name] != before[name]} == operators
        assert loaded.versions(None) == loaded.versions(loaded.app.checkpoint_windows)


SMALL = """
import pyarrow as pa
from rewindow.application import Application, FrameOperator, InputPort, OutputPort
{before}
X = pa.schema([("x", pa.int64())])

class A(FrameOperator):
    inputs = {{"i": InputPort(X)}}
    outputs = {{"o": OutputPort(X)}}

    def transform(self, inputs, state, context):
        return {reached}

{between}

class B(A):
    def transform(self, inputs, state, context):
        return 2

app = Application("small", window="1 hour")
app.add("a", A(), i=app.input("s"))
app.add("b", B(), i=app.input("s"))
"""
HELPERS = {
    "_h.py": "VALUE = 1\ndef f(): return VALUE\ndef g(): return 2\n",
    "_r.py": "R = {}\ndef add(f):\n    R[f.__name__] = f\n    return f\n",
    "_p/__init__.py": "from ._q.values import f\n",
    "_p/_q/values.py": "from ..scale import SCALE\ndef f(): return SCALE\n",
    "_p/scale.py": "SCALE = 1\nOTHER = 2\n",
}


@pytest.mark.parametrize(
    ("before", "reached", "between", "file", "old", "new", "is_reached"),
    [
        ("import _h as h\nk = h", "k.g()", "", "_h.py", "VALUE = 1", "VALUE = 2", True),
        ("import _h as h", "h.f()", "", "_h.py", "VALUE = 1", "VALUE = 2", True),
        ("import _h as h", "h.g()", "", "_h.py", "VALUE = 1", "VALUE = 2", False),
        ("from _h import *", "f()", "", "_h.py", "VALUE = 1", "VALUE = 2", True),
        ("from _p import f", "f()", "", "_p/scale.py", "SCALE = 1", "SCALE = 2", True),
        ("from _p import f", "f()", "", "_p/scale.py", "OTHER = 2", "OTHER = 3", False),
        (
            "import _r",
            "_r.R['m']()",
            "@_r.add\ndef m(): return 1",
            "",
            "return 1",
            "return 3",
            True,
        ),
        ("T = {}", "T['a']", "def s(n): T['a'] = n\ns(3)", "", "s(3)", "s(4)", True),
        ("K = 1", "K", "import types\nA = types.new_class('A', (A,))", "", "K = 1", "K = 2", True),
        (
            "def n():\n from _h import f",
            "n()",
            "import _h",
            "_h.py",
            "VALUE = 1",
            "VALUE = 2",
            True,
        ),
        ("rows = 5", "[rows for rows in inputs]", "", "", "rows = 5", "rows = 6", False),
    ],
)
def test_operator_version_changes_with_the_code_that_assigns_a_used_name(
    tmp_path: Path,
    before: str,
    reached: str,
    between: str,
    file: str,
    old: str,
    new: str,
    is_reached: bool,
) -> None:
    # Rules: W65
    texts = HELPERS | {
        "small.py": SMALL.format(before=before, reached=reached, between=between),
    }
    file = file or "small.py"
    assert old in texts[file]
    changed = texts | {file: texts[file].replace(old, new)}
    versions = []
    for folder, files in ((tmp_path / "before", texts), (tmp_path / "after", changed)):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        loaded = load_application(Config(applications=[folder]), "small")
        versions.append(loaded.versions(None)["a"].code_version)
    assert (versions[0] != versions[1]) is is_reached
