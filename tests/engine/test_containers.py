"""Replays of several containers: a cut changes no result."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.certificate import certify
from rewindow.launcher import loop
from rewindow.loading.catalog import load_application
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from tests.engine.test_random_graphs import numbers, record
from tests.recovery.here import jobs_here
from tests.recovery.project import Project, make_project
from tests.recovery.promises import last_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def project(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """A project whose jobs run in this process, with several key ranges."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    yield make_project(tmp_path)
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def every_unit(config: Config, application: str) -> dict[str, Any]:
    """Returns the properties that put each operator, or the operators of each cycle, into a
    separate container.
    """
    found = {}
    for unit in load_application(config, application).app.units():
        for node in unit:
            found[f"{node.name}.container"] = f"c_{unit[0].name}"
    return found


def run(project: Project, application: str, replay_id: str, **replay_options: Any) -> Plan:
    plan = project.plan_of(application, replay_id, mode="exactly_once", **replay_options)
    loop.run_attempts(project.config, replay_id)
    return plan


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.long),
        *(
            pytest.param(seed, marks=pytest.mark.exhaustive)
            for seed in (*range(1, 6), *range(11, 100))
        ),
    ],
)
def test_random_graph_cut_at_every_edge_equals_one_container(
    seed: int,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O106, R86, X53, O39
    chosen = random.Random(seed)
    record(project.config, numbers(chosen))
    monkeypatch.setenv("GRAPH", str(seed))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    sizes = [chosen.randint(2, 4), chosen.randint(2, 4)]
    check_cut(project, "random_graph", sizes)


@pytest.mark.long
@pytest.mark.parametrize("application", ["tuple_cycle", "sorted_rows"])
def test_application_cut_at_every_edge_equals_one_container(
    application: str,
    project: Project,
) -> None:
    # Rules: O106, X53
    check_cut(project, application, [5, 7])


def check_cut(project: Project, application: str, sizes: Sequence[int]) -> None:
    """Compares outputs, error tuples and states of one container with those of a container for each
    unit.
    """
    cuts = every_unit(project.config, application)
    one = run(project, application, "one", group_windows=sizes[0])
    cut = run(project, application, "cut", group_windows=sizes[1], properties=cuts)
    assert len(cut.containers) > 1
    certificate = certify(project.config, "one", "cut", full=True)
    assert certificate.equal, certificate.first_difference
    assert last_state(project.config, one) == last_state(project.config, cut)
