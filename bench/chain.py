"""A chain of three tuple operators in one pass, and the same operators with `locality="apart"`.

    python -m bench.chain [MILLIONS]

Each operator emits a tuple for each that it gets. Whole replays in one warm session, in turns.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.replay import ROOT, WINDOWS, _best_of_rounds, make_project, record, run_replay
from bench.report import Row
from rewindow.spark.session import spark_session

APPLICATION = """
from typing import ClassVar
import pyarrow as pa
from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

ROWS = pa.schema([("key", pa.int64()), ("value", pa.int64())])

class Totals(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(ROWS)}
    total = StateField(pa.int64(), 0)
    def process(self, row):
        self.total = (self.total + row.value) % 1_000_003
        self.emit("out", row.key, self.total)

app = Application("NAME", window="1 hour")
end = app.input("events")
for name in ("one", "two", "three"):
    end = app.add(name, Totals(), rows=end, locality=LOCALITY)
app.output("totals", end, key=["key"])
"""


def measure_chain(tuples: int) -> Row:
    """Returns the row of the page."""
    applications = {}
    for name, locality in {"chain": "None", "apart": '"apart"'}.items():
        text = APPLICATION.replace("NAME", name)
        applications[name] = text.replace("LOCALITY", locality)
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), applications)
        spark = spark_session(config, "bench")
        record(spark, config, "events", tuples, WINDOWS)

        def chain() -> None:
            run_replay(spark, config, "chain", WINDOWS)

        def apart() -> None:
            run_replay(spark, config, "apart", WINDOWS)

        for warm_up in (chain, apart):
            warm_up()
        found = _best_of_rounds(chain, apart)
        spark.stop()
    faster = found["apart"] / found["chain"]
    return Row(
        f"chain of three tuple operators, {tuples / 1e6:g} M tuples, {WINDOWS:,} windows, whole "
        "replay",
        f"{found['chain']:.2f} s",
        f'`locality="apart"` {found["apart"]:.2f} s',
        f"at least 1.5 x faster: {faster:.2f} x",
        faster >= 1.5,
    )


if __name__ == "__main__":
    print(measure_chain(int(float(sys.argv[1] if len(sys.argv) > 1 else 3) * 1_000_000)))
