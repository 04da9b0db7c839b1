"""Requirements of a cluster's executors.

They need access to the state folder. For Python code, they need the library and the user's modules,
which are sent to them, and a Python with pyarrow, numpy and pydantic.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rewindow.errors import RewindowError
from rewindow.location import Location
from rewindow.settings.config import Config
from rewindow.spark.settings import local_threads, scratch_folder
from rewindow.version import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALLED = ("pyarrow", "numpy", "pydantic")
"""Packages with compiled parts, which cannot be sent in a zip file."""
_PROBES = 8
_TOKENS = 4


def send_code(spark: SparkSession, config: Config, files: Iterable[Path]) -> None:
    """Sends the library and the given modules to the executors of a cluster.

    A local master does not need this.

    Args:
        spark: the session.
        config: current settings.
        files: modules of the user, all in one folder or in packages in it.
    """
    if local_threads(spark.sparkContext.master):
        return
    before = list(sys.path)
    spark.sparkContext.addPyFile(str(code_zip(scratch_folder(config), files)))
    sys.path[:] = before  # The driver must not import the library from the copy.


def code_zip(folder: Path, files: Iterable[Path]) -> Path:
    """Returns a zip file with the library and the given modules.

    It is named after a digest of its content.
    """
    inside = _named(PACKAGE.parent, PACKAGE.rglob("*.py"))
    modules = list(files)
    inside |= _named(_common_folder(modules), modules)
    digest = hashlib.sha256()
    for name, path in sorted(inside.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    target = folder / f"rewindow-{digest.hexdigest()[:12]}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(inside.items()):
            archive.write(path, name)
    return target


def _common_folder(files: list[Path]) -> Path:
    """Returns the folder from which modules are imported. It contains all of them."""
    folders = [path.parent for path in files]
    return min(folders, key=lambda folder: len(folder.parts), default=Path())


def _named(top: Path, files: Iterable[Path]) -> dict[str, Path]:
    """Returns modules by their names in a zip file. These names match the names in imports."""
    named = {}
    for path in files:
        name = path.relative_to(top) if path.is_relative_to(top) else Path(path.name)
        named[name.as_posix()] = path
    return named


def check_shared(spark: SparkSession, folder: Location) -> None:
    """Checks that the executors of a cluster see a folder of the driver, before anything is
    computed.

    They write tokens there, a few per core, and the driver and other executors read them. An
    executor that gets no task is not checked. The rows that it writes are compared later anyway.

    Raises:
        RewindowError: the driver does not find a token.
        Py4JJavaError: an executor does not find one; see `missing_on_executor`.
    """
    from pyspark.sql import DataFrame

    from rewindow.spark.frames import read_files, write_files

    context = spark.sparkContext
    if local_threads(context.master):
        return
    tasks = _TOKENS * context.defaultParallelism
    tokens = spark.range(0, tasks, 1, tasks)
    write_files(tokens, folder)
    reduce(DataFrame.union, [read_files(spark, folder, tokens.schema)] * _TOKENS).toArrow()


def check_executors(spark: SparkSession) -> None:
    """Checks that Python code can run on a cluster, before anything is computed.

    Raises:
        RewindowError: Python cannot be started there, or lacks packages; names the hosts.
    """
    context = spark.sparkContext
    if local_threads(context.master):
        return
    wanted = INSTALLED

    def probe(_: Iterator[int]) -> Iterator[tuple[str, str]]:
        import importlib
        import socket
        import sys

        lacking = []
        for name in wanted:
            try:
                importlib.import_module(name)
            except ImportError:
                lacking.append(name)
        yield f"{socket.gethostname()}, {sys.executable}", ", ".join(lacking)

    tasks = min(max(context.defaultParallelism, 2), _PROBES)
    with _said_in_words(context.pythonExec):
        found = dict(context.parallelize(range(tasks), tasks).mapPartitions(probe).collect())
    lacking = dict(filter(itemgetter(1), sorted(found.items())))
    if lacking:
        raise RewindowError(
            f"Python on the executors lacks {', '.join(sorted(set(lacking.values())))}",
            detail=f"Seen on {'; '.join(lacking)}.",
            hint="Install the requirements of rewindow there, or name a Python that has them: "
            "spark.pyspark.python in "
            "[spark.conf] of rewindow.toml.",
        )


@contextmanager
def _said_in_words(python: str) -> Iterator[None]:
    """Turns Spark's error about a missing Python into a `RewindowError`."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        if "Cannot run program" not in str(error):
            raise
        raise RewindowError(
            f'the executors have no Python "{python}"',
            detail="Tuple operators, and functions of the user, run in it.",
            hint="Install it on the workers, or set spark.pyspark.python in [spark.conf] of "
            "rewindow.toml to an installed one.",
        ) from error
