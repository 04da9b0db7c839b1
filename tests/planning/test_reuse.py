from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.certificate import certify
from rewindow.errors import InputError
from rewindow.launcher import loop
from rewindow.launcher.verbs import abandon
from rewindow.ledger import Ledger
from rewindow.planning import ReplayRequest, create_replay, draft_plan
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from tests.recovery.here import jobs_here
from tests.recovery.project import Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = """
from typing import ClassVar
import pyarrow as pa
from pyspark.sql import functions as F
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

ROWS = pa.schema([("key", pa.string()), ("x", pa.int64())])

def doubled(column):
    return F.col(column) * FACTOR

FACTOR = 2

class First(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}
    def transform(self, inputs, state, context):
        return inputs["rows"].select("window_id", "key", doubled("x").alias("x"))

class Second(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}
    state_schema: ClassVar = pa.schema([("seen", pa.int64())])
    def transform(self, inputs, state, context):
        return inputs["rows"]
    def next_state(self, inputs, outputs, state, context):
        new = inputs["rows"].select(F.lit(1).cast("bigint").alias("seen"))
        return state.unionByName(new).agg(F.coalesce(F.sum("seen"), F.lit(0)).alias("seen"))

class Third(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}
    def transform(self, inputs, state, context):
        return inputs["rows"].where("x > 0")

app = Application("chain", window="1 hour")
one = app.add("one", First(), container="c1", rows=app.input("events"))
two = app.add("two", Second(), container="c2", rows=one)
three = app.add("three", Third(), container="c3", rows=two)
app.output("all", two, key=["key"])
app.output("kept", three, key=["key"])
"""
FIXED = CODE.replace("x > 0", "x > 4")
OTHER_HELPER = CODE.replace("FACTOR = 2", "FACTOR = 3")


@pytest.fixture(autouse=True)
def jobs_run_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    """A project with an ended replay of three containers."""
    folder = tmp_path_factory.mktemp("reuse")
    made = make_project(folder)
    (folder / "apps").mkdir()
    text = (folder / "rewindow.toml").read_text()
    first, _, rest = text.partition("applications = [")
    (folder / "rewindow.toml").write_text(f'{first}applications = ["apps", {rest}')
    made.config = Config.load(folder / "rewindow.toml")
    write(made, CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run", jobs_here(spark))
        run(made, "before")
    return made


def write(project: Project, code: str) -> None:
    (Path(project.config.file or "").parent / "apps" / "chain.py").write_text(code)


def run(project: Project, replay_id: str, **options: object) -> Plan:
    request = ReplayRequest("chain", replay_id=replay_id, group_windows=10, **options)  # type: ignore[arg-type]
    plan = create_replay(project.config, request)
    loop.run_attempts(project.config, replay_id)
    return plan


def reused(plan: Plan) -> dict[str, str]:
    return {one.name: one.reused or one.why for one in plan.containers}


def test_change_in_the_last_operator_reuses_upstream_containers(project: Project) -> None:
    # Rules: X53
    write(project, FIXED)
    plan = run(project, "fixed", reuse="before")
    assert reused(plan) == {
        "c1": "before@c1",
        "c2": "before@c2",
        "c3": "the code of three has changed",
    }
    epochs = {
        row.replay_id: (row.epoch, row.mark)
        for row in Ledger.open(project.config.ledger_url).replays.containers("fixed")
    }
    assert epochs == {f"fixed@{name}": (1, len(plan.range)) for name in ("c1", "c2", "c3")}
    run(project, "computed")
    certificate = certify(project.config, "computed", "fixed", full=True)
    assert certificate.equal, certificate.first_difference
    assert not certify(project.config, "before", "fixed").equal
    again = draft_plan(project.config, ReplayRequest("chain", reuse="fixed")).plan
    assert list(reused(again).values()) == ["fixed@c1", "fixed@c2", "fixed@c3"]
    assert again.options == ["--reuse", "fixed"]


def test_containers_of_an_abandoned_replay_are_reused(project: Project) -> None:
    # The plan task of Airflow abandons a replay before it plans again with fixed code.
    write(project, CODE)
    run(project, "given_up")
    abandon(project.config, "given_up", reason="its code changed")
    write(project, FIXED)
    plan = run(project, "after_fix", reuse="given_up")
    assert reused(plan) == {
        "c1": "given_up@c1",
        "c2": "given_up@c2",
        "c3": "the code of three has changed",
    }
    run(project, "without_reuse")
    assert certify(project.config, "without_reuse", "after_fix", full=True).equal


def test_changed_helper_of_the_first_operator_prevents_any_reuse(project: Project) -> None:
    write(project, OTHER_HELPER)
    with pytest.raises(InputError, match='no container of replay "before" can be reused') as caught:
        draft_plan(project.config, ReplayRequest("chain", reuse="before"))
    assert caught.value.detail == (
        "c1: the code of one has changed. c2: it reads c1, which is computed. "
        "c3: it reads c2, which is computed."
    )


def test_container_with_a_different_mode_or_configuration_is_recomputed(project: Project) -> None:
    write(project, CODE)

    def with_properties(**properties: str) -> dict[str, str]:
        given = {name.replace("__", "."): value for name, value in properties.items()}
        request = ReplayRequest("chain", reuse="before", properties=given)
        return reused(draft_plan(project.config, request).plan)

    assert with_properties(three__mode="at_least_once") == {
        "c1": "before@c1",
        "c2": "before@c2",
        "c3": "it was computed exactly once, and is at least once now",
    }
    assert with_properties(two__container="other", three__application_windows="3") == {
        "c1": "before@c1",
        "other": "before@c2",
        "c3": "the configuration of three has changed",
    }


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"reuse": "unknown"}, 'replay "unknown" is unknown'),
        ({"reuse": "before", "last": 1004}, "windows \\[1000, 1023\\]; this replay has chain"),
        ({"reuse": "totals"}, "it has application totals"),
        ({"reuse": "planned"}, "it is planned"),
        (
            {
                "reuse": "before",
                "properties": {f"{name}.container": "c" for name in ("one", "two", "three")},
            },
            "has one container only",
        ),
    ],
)
def test_error_names_the_replay_that_cannot_be_reused_and_the_reason(
    wish: dict[str, object],
    message: str,
    project: Project,
) -> None:
    write(project, CODE)
    for name, application in (("totals", "totals"), ("planned", "chain")):
        create_replay(project.config, ReplayRequest(application, replay_id=name))
    Ledger.open(project.config.ledger_url).replays.reopen("totals", "for the test")
    with pytest.raises(InputError, match=message):
        draft_plan(project.config, ReplayRequest("chain", **wish))  # type: ignore[arg-type]
