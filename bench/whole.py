"""The whole way, from files to a published output, beside one Spark script that reads, computes and
writes.

    python -m bench.whole [ROWS_IN_MILLIONS]

Each side is cold: every command is a process of its own, and so is the script. The script promises
nothing: no windows that can be computed again, no checkpoints, no gate, no undo. Seconds on an idle
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.record import COLUMNS, make_source
from bench.replay import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPLAY = "whole"
SETTINGS = """state = "state"
applications = ["applications"]
[spark]
jars = "{jars}"
[streams.s]
source = "{source}"
columns = "{columns}"
arrived_at = "at"
width = "60 s"
keys = ["k"]
"""
APPLICATION = """
from typing import ClassVar
import pyarrow as pa
from bench.whole import totals
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

IN = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
OUT = pa.schema([("k", pa.string()), ("most", pa.int64()), ("count", pa.int64())])

class Totals(FrameOperator):
    inputs: ClassVar = {"s": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(OUT)}
    def transform(self, inputs, state, context):
        return totals(inputs["s"])

app = Application("totals", window="60 s")
app.output("totals", app.add("totals", Totals(), s=app.input("s")), key=["k"])
"""
SCRIPT = """
import sys
from pyspark.sql import functions as F
from bench.whole import totals
from rewindow.settings.config import Config
from rewindow.spark.session import spark_session

spark = spark_session(Config.load(), "script")
rows = spark.read.parquet(sys.argv[1]).withColumn("window_id",
    F.expr("unix_micros(at) div 60000000"))
totals(rows).write.format("delta").mode("overwrite").save(sys.argv[2])
spark.stop()
"""
STEPS = (
    ["record", "s", "--end"],
    ["replay", "totals", "--unpublished", "--id", REPLAY],
    ["check", REPLAY],
    ["publish", REPLAY],
)


def totals(rows: DataFrame) -> DataFrame:
    """Returns what both sides compute."""
    from pyspark.sql import functions as F

    return rows.groupBy("window_id", "k").agg(F.max("n").alias("most"), F.count("*").alias("count"))


def make_project(folder: Path) -> None:
    """Writes settings, application and script into a folder; its source is still to be made."""
    (folder / "applications").mkdir()
    (folder / "applications" / "totals.py").write_text(APPLICATION)
    (folder / "script.py").write_text(SCRIPT)
    jars = ROOT / ".rewindow" / "jars"
    (folder / "rewindow.toml").write_text(
        SETTINGS.format(jars=jars, source=folder / "source", columns=COLUMNS)
    )


def main(millions: int) -> None:
    """Prints the seconds of each command, of the script, and their ratio."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as place:
        folder = Path(place)
        make_source(folder / "source", "parquet", millions * 1_000_000)
        make_project(folder)
        script = seconds_of(
            [str(folder / "script.py"), str(folder / "source"), str(folder / "plain")],
            folder,
        )
        print(f"one Spark script          {script:8.1f} s", flush=True)
        whole = 0.0
        for step in STEPS:
            took = seconds_of(["-m", "rewindow.cli", *step], folder)
            whole += took
            print(f"rewindow {step[0]:16} {took:8.1f} s", flush=True)
        print(f"the whole way             {whole:8.1f} s  {whole / script:.2f} x")


def seconds_of(arguments: list[str], folder: Path) -> float:
    """Runs Python in a folder, where both sides import this module, and returns the seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stdout[-500:]} {done.stderr[-2000:]}")
    return time.monotonic() - began


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
