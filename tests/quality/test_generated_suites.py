"""The suites of generated applications, measured: how many damages of their outputs stop the
publication. The score is printed at the end of a run of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rewindow.quality.planting import plant
from rewindow.quality.strength import damages_of
from rewindow.sequences import not_named
from tests.conftest import SCORE
from tests.quality.generated_specimens import CASES, counted, example, generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rewindow.quality.planting import Specimen

EXAMPLE = ("late_flights", "lateness")


def made(folder: Path, name: str, spark: SparkSession, seed: int = 1) -> Specimen:
    if name == "init":
        return counted(folder, spark, seed)
    if name in EXAMPLE:
        return example(folder, name, spark, seed)
    return generated(folder, name, spark, seed)


@pytest.mark.parametrize("name", [*CASES, *EXAMPLE, "init"])
def test_rows_of_generated_applications_pass_every_check(
    tmp_path: Path, name: str, spark: SparkSession
) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        found = made(tmp_path / str(seed), name, spark, seed)
        failed = [check for check in found.judge(found.by_window()) if check.status != "passed"]
        assert {check.check for check in failed} <= {"no-error-tuples"}, failed


@pytest.mark.parametrize("name", [*CASES, *EXAMPLE, "init"])
def test_nine_in_ten_damages_of_a_generated_output_stop_its_publication(
    tmp_path: Path,
    name: str,
    spark: SparkSession,
    record_property: Callable[[str, object], None],
) -> None:
    specimen = made(tmp_path, name, spark)
    schema = pa.schema(not_named(specimen.rows.schema, ("window_id", "attempt")))
    found = plant(specimen, list(damages_of(schema, specimen.plan.grid.width_us)), seed=1)
    stopped = [one for one in found if one.seen == "stopped"]
    rest = [
        f"{one.damage.column} {one.damage.kind} ({one.seen})"
        for one in found
        if one.seen != "stopped"
    ]
    words = f"{name}: {len(stopped)} of {len(found)} generated damages stopped"
    record_property(SCORE, "; ".join([words, *rest]))
    assert len(stopped) >= 0.9 * len(found), rest
