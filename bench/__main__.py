"""Measures the numbers that Rewindow aims at, each beside its alternative in the same run.

    python -m bench [ROWS_IN_MILLIONS]      writes docs/benchmarks.md (make bench)

Everything runs one after the other on an otherwise idle machine; figures of a loaded one mean
nothing.
"""

from __future__ import annotations

import sys

from bench.chain import measure_chain
from bench.delivery import measure_delivery
from bench.generators import measure_generators
from bench.library import measure_library
from bench.overview import measure_overview
from bench.partitions import measure_partitions
from bench.replay import measure_commands, measure_engine
from bench.report import write_report
from bench.state import measure_state
from bench.tuple_operators import measure_testing, measure_tuple_operators


def main() -> None:
    """Runs all measurements and writes the page."""
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rows = [*measure_engine(millions * 1_000_000), *measure_state(), *measure_commands()]
    rows += [*measure_tuple_operators(millions * 500_000), measure_testing()]
    rows += measure_partitions(millions * 500_000)
    rows.append(measure_generators(millions * 1_000_000))
    rows.append(measure_chain(millions * 300_000))
    rows.append(measure_delivery(millions * 1_000_000))
    rows += measure_library(millions * 500_000)
    rows.append(measure_overview())
    print(f"written to {write_report(rows, millions)}")


if __name__ == "__main__":
    main()
