"""Code versions change with the code that decides rows, and with nothing else."""

from __future__ import annotations

import ast
import io
import shutil
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from rewindow.loading import code_versions
from rewindow.loading.code_versions import (
    DECIDES_ROWS,
    code_version,
    library_files,
    own_modules,
)
from rewindow.version import PACKAGE
from tests.loading.test_catalog import load, write

VALUES = pa.schema([("x", pa.int64())])
SOURCE = '''"""Limits."""

from rewindow.windows import Grid

LIMIT = 1  # seconds
"""At most this long."""
TEXT = """first

# not a comment"""


def double(value: int) -> int:
    """Returns twice the value."""
    return value * 2
'''
NO_ROWS = {
    "application/__init__.py": "re-exports",
    "application/configuring.py": "given values, which the configuration digest covers",
    "application/module.py": "part of the application's graph, which the configuration digest "
    "covers",
    "application/modes.py": "which windows come again, never what is in them",
    "application/violations.py": "messages",
    "settings/config.py": "settings; they reach rows as properties, which are in the configuration "
    "digest",
    "settings/types.py": "reads properties of generators, whose streams are recorded first",
    "engine/attempt.py": "the commit protocol",
    "engine/committed.py": "comparison of repeated windows with committed ones",
    "engine/computation.py": "protocols and plain values",
    "engine/joining.py": "copies rows of small files into larger ones",
    "engine/key_sample.py": "sizes of tasks",
    "engine/measuring.py": "measures of written rows",
    "engine/operator_errors.py": "messages",
    "errors.py": "messages",
    "facts/group_facts.py": "counts of written rows",
    "facts/seals.py": "counts of recorded rows",
    "facts/window_facts.py": "counts of written rows",
    "json_files.py": "names damaged files",
    "ledger/__init__.py": "bookkeeping",
    "loading/catalog.py": "finds the application, whose own files count",
    "loading/library.py": "finds the class of an operator, whose file counts",
    "loading/measures.py": "measures of written rows",
    "location/__init__.py": "paths",
    "location/location.py": "paths",
    "names.py": "quoting and suggestions",
    "processes/file_lock.py": "locks between processes",
    "processes/identity.py": "names of processes",
    "recovery/__init__.py": "where groups end, which operators do not see",
    "spark/heap.py": "messages",
    "spark/jars.py": "finds Delta's jars",
    "spark/java.py": "finds Java",
    "loading/suite_parameters.py": "values for suites, which judge rows",
    "spark/job.py": "messages",
    "spark/repeated_tasks.py": "counts of tasks",
    "spark/shared_folder.py": "messages",
    "spark/transient_errors.py": "which errors an attempt may not meet again",
    "state/checkpoints.py": "stores a state, whose digest is checked when it is read",
    "storage/__init__.py": "re-exports",
    "storage/checksums.py": "checksums of files",
    "storage/delta.py": "commits",
    "storage/failures.py": "names damaged files",
    "storage/files.py": "which files a stream has, compared with their checksums",
    "storage/formats.py": "format numbers",
    "storage/layout.py": "names of tables and columns",
    "storage/log_gaps.py": "names missing commits",
    "storage/new_files.py": "names of files",
    "storage/queries.py": "reads states, whose digests are checked",
    "storage/snapshots.py": "caches logs of tables",
}
"""Modules that a module of `DECIDES_ROWS` imports, with the reason why they decide no row."""


class Pass(FrameOperator):
    inputs = {"a": InputPort(VALUES)}
    outputs = {"out": OutputPort(VALUES)}


def version() -> str:
    app = Application("one", window="1 hour")
    app.output("out", app.add("pass", Pass(), a=app.input("s")), key=["x"])
    return code_version(own_modules(app, {}))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a copy of the package's Python files, which code versions are computed from."""
    copy = tmp_path / "rewindow"
    shutil.copytree(
        PACKAGE,
        copy,
        ignore=lambda folder, names: [n for n in names if Path(n).suffix not in (".py", "")],
    )
    monkeypatch.setattr(code_versions, "PACKAGE", copy)
    return copy


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# seconds", "# Seconds, so that 1 is short."),
        ("  # seconds", ""),
        ('"""Limits."""\n\n', ""),
        ("Limits.", "Limits.\n\nOf all kinds: größer ⊃ kleiner."),
        ("At most this long.", "The longest time."),
        ("Returns twice the value.", "Returns the value,\n    twice."),
        ("\n\n\ndef", "\n\n# Twice is enough.\n\ndef"),
        (
            "from rewindow.windows import Grid",
            "from rewindow.recovery.plan import (  # moved\n    Grid,\n)",
        ),
    ],
)
def test_code_version_ignores_comments_blank_lines_and_import_paths(
    tmp_path: Path,
    old: str,
    new: str,
) -> None:
    # Rules: W65
    write(tmp_path, imports="from _limits import LIMIT")
    (tmp_path / "_limits.py").write_text(SOURCE)
    before = load(tmp_path).code_version
    assert old in SOURCE
    (tmp_path / "_limits.py").write_text(SOURCE.replace(old, new))
    assert load(tmp_path).code_version == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 1", "LIMIT = 2"),
        ("first\n\n#", "first\n#"),
        ("# not a comment", "# a comment"),
        ("value * 2", "value * 3"),
        ("import Grid", "import WindowRange as Grid"),
        ("    return value * 2", "    if value:\n        return value * 2"),
    ],
)
def test_code_version_changes_with_any_other_code_change(
    tmp_path: Path, old: str, new: str
) -> None:
    # Rules: W65
    write(tmp_path, imports="from _limits import LIMIT")
    (tmp_path / "_limits.py").write_text(SOURCE)
    before = load(tmp_path).code_version
    assert old in SOURCE
    (tmp_path / "_limits.py").write_text(SOURCE.replace(old, new))
    assert load(tmp_path).code_version != before


def test_code_version_changes_with_every_module_that_affects_rows(package: Path) -> None:
    # Rules: W65
    before = version()
    for path in library_files():
        text = path.read_text()
        path.write_text(f"# A comment.\n{text}\n# Another one.\n")
        assert version() == before, path
        path.write_text(f"{text}\nCHANGED = True\n")
        assert version() != before, path
        path.write_text(text)


def test_code_version_ignores_modules_that_do_not_affect_rows(package: Path) -> None:
    # Rules: W65
    before = version()
    for name in (
        "loading/catalog.py",
        "loading/code_versions.py",
        "publication/publish.py",
        "cli.py",
    ):
        (package / name).write_text("CHANGED = True\n")
    assert version() == before


def test_moved_module_keeps_the_code_version(package: Path) -> None:
    # Rules: W65
    before = version()
    (package / "operators" / "beats").mkdir()
    (package / "operators" / "beats" / "__init__.py").write_text('"""Beats."""\n')
    (package / "operators" / "metronome.py").rename(package / "operators" / "beats" / "timers.py")
    assert version() == before


def test_renamed_module_in_the_version_list_raises_an_error(package: Path) -> None:
    (package / "windows.py").rename(package / "window_ids.py")
    with pytest.raises(FileNotFoundError, match="windows"):
        version()


def test_every_import_of_a_listed_module_is_listed_or_does_not_affect_rows() -> None:
    listed = {path.relative_to(PACKAGE).as_posix() for path in library_files()}
    folders = tuple(f"{entry}/" for entry in DECIDES_ROWS if not entry.endswith(".py"))
    imported = {
        name for path in library_files() for name in imports(path) if not name.startswith(folders)
    }
    assert imported - listed == set(NO_ROWS)


def imports(path: Path) -> Iterator[str]:
    """Yields the modules of Rewindow that a module imports, as paths below the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            not isinstance(node, ast.ImportFrom)
            or (node.module or "").partition(".")[0] != "rewindow"
        ):
            continue
        module = PACKAGE.parent.joinpath(*(node.module or "").split("."))
        for alias in node.names:
            files = (module / f"{alias.name}.py", module.with_suffix(".py"), module / "__init__.py")
            yield next(file for file in files if file.exists()).relative_to(PACKAGE).as_posix()


def test_detected_comments_equal_the_tokenizer_comments_in_every_module() -> None:
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    texts.append(
        "a = '#'  # one\nb = rb\"\\\"#\"  # two\nc = '''\"#\n'#'''#three\nd = f\"{a}'#\"#'"
    )
    comments = 0
    for text in texts:
        found = [
            (span.first_line, span.first_column, span.last_column)
            for span in code_versions._comments(text)
        ]
        assert found == [
            (token.start[0] - 1, token.start[1], token.end[1])
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        comments += len(found)
    assert comments > 100
