"""A script: executors of a small cluster on this machine, whose Python has neither the library nor
the user's modules.

Writes as JSON what each of three Pythons came to: one that is not there, one without pyarrow, and a
good one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.engine.group_cache import GroupCache
from rewindow.errors import RewindowError
from rewindow.location import Location, location
from rewindow.operators import StateField, TupleOperator
from rewindow.settings.config import Config, SparkConfig
from rewindow.spark.executors import check_executors, send_code
from rewindow.spark.frames import spark_schema
from rewindow.spark.session import spark_session
from rewindow.tuple_engine.frames import emitted_frames
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "local-cluster[1,1,1024]"
CLICKS = pa.schema([("user", pa.string())])
COUNTS = pa.schema([("user", pa.string()), ("clicks", pa.int64())])


class Prices(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(COUNTS)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, click: Any) -> None:
        from _prices import PRICE  # type: ignore[import-not-found]

        self.total += PRICE
        self.emit("out", click.user, self.total)


def python(folder: Path, name: str, lacking: tuple[str, ...]) -> str:
    """Returns a Python into which nothing of this project is installed, and some packages are not
    either.
    """
    site = folder / name
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name in {lacking!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "kept = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"
        "sys.meta_path[:] = [Without(), *kept]\n"
    )
    wrapper = folder / f"python-{name}"
    wrapper.write_text(
        f'#!/bin/sh\nPYTHONPATH="{site}:$SPARK_HOME/python" exec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    return str(wrapper)


def refused(spark: SparkSession, python_exec: str) -> str:
    spark.sparkContext.pythonExec = python_exec
    try:
        check_executors(spark)
    except RewindowError as error:
        return str(error)
    return "nothing"


def computed(spark: SparkSession, root: Location) -> list[Any]:
    clicks = spark.createDataFrame(
        [(7, 0, "ann"), (7, 1, "ann")],
        "window_id bigint, offset bigint, user string",
    )
    operator = Prices()
    state = spark.createDataFrame([], spark_schema(operator.state_columns() or pa.schema([])))
    context = OperatorContext(Grid(1000), WindowRange(7, 7))
    in_group = GroupCache(spark, root, 1, lambda frame: frame).context("prices", context)
    found = (
        emitted_frames(operator, {"clicks": clicks}, state, one)["out"].collect()
        for one in (context, in_group)
    )
    return [[list(row) for row in rows] for rows in found]


def main(folder: Path, jars: str) -> None:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    config = Config(
        state=folder / "state",
        spark=SparkConfig(master=CLUSTER, driver_memory="512m", jars=jars, conf=conf),
    )
    module = folder / "applications" / "_prices.py"
    module.parent.mkdir()
    module.write_text("PRICE = 3\n")
    spark = spark_session(config, "on a cluster", quick=True)
    found: dict[str, Any] = {"none": refused(spark, str(folder / "no-python"))}
    found["poor"] = refused(spark, python(folder, "poor", ("pyarrow",)))
    path = list(sys.path)
    send_code(spark, config, [module])
    assert sys.path == path, "the driver goes on with its own"
    found["good"] = refused(spark, python(folder, "good", ()))
    found["rows"] = computed(spark, location(str(folder / "replay")))
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
