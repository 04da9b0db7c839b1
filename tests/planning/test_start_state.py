"""Start states after a change of code: compared per operator, for those that have a part in it. No
JVM.
"""

from __future__ import annotations

import pytest

from rewindow.errors import CheckpointError, TableError
from rewindow.loading.catalog import load_application
from rewindow.planning import create_replay, draft_plan
from rewindow.planning.planner import OTHER_CODE
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table
from rewindow.storage.formats import PROPERTY, TableKind, format_property
from rewindow.storage.layout import CHECKPOINTS
from tests.planning.options import request
from tests.recovery.project import FIRST, Project

BASE = FIRST + 9
"""Window of the published checkpoint."""
REPORT = """
FACTOR = 2


class Report(FrameOperator):
    inputs: ClassVar = {"totals": InputPort(TOTALS)}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}
    most: int = 3

    def transform(self, inputs, state, context):
        return inputs["totals"].limit(self.most * FACTOR)


app.output("report", app.add("report", Report(), totals=app.nodes["totals"]), key=["key"])
"""
CHANGES = [
    ("FACTOR = 2", "FACTOR = 3", []),
    ("most: int = 3", "most: int = 4", []),
    ('alias("before"))\n', 'alias("before").cast("long"))\n', ["totals"]),
    ('F.sum("x")', 'F.max("x")', ["sums"]),
    ("outputs: ClassVar = {", "scale: int = 1\n    outputs: ClassVar = {", ["sums", "totals"]),
    ('EVENTS = pa.schema([("key"', 'EVENTS = pa.schema([("key" + ""', ["sums"]),
]


def changed(config: Config, old: str = "", new: str = "") -> Config:
    """Settings with a third operator in the application, and a text in it replaced."""
    source = (config.applications[0] / "totals.py").read_text() + REPORT
    assert old in source
    folder = config.root / f"applications-{len(list(config.root.iterdir()))}"
    folder.mkdir()
    (folder / "totals.py").write_text(source.replace(old, new, 1))
    other = config.model_copy(update={"applications": [folder]})
    other._root = config.root
    other._file = config.file
    return other


@pytest.mark.parametrize(("old", "new", "operators"), CHANGES)
def test_changed_operator_invalidates_dependent_states_of_a_replay(
    project: Project,
    old: str,
    new: str,
    operators: list[str],
) -> None:
    # Rules: W65
    create_replay(changed(project.config), request(replay_id="one"))
    now = changed(project.config, old, new)
    if not operators:
        assert draft_plan(now, request(state_from="one")).plan.start.source == "replay"
        return
    with pytest.raises(CheckpointError) as refused:
        draft_plan(now, request(state_from="one"))
    assert refused.value.primary == (
        f'checkpoint of replay "one" at window {FIRST - 1} was computed by another version of '
        f"{', '.join(operators)}"
    )
    allowed = draft_plan(now, request(state_from="one", allow_other_code=True)).plan
    assert (allowed.start.source, OTHER_CODE in allowed.warnings) == ("replay", True)


@pytest.mark.parametrize(("old", "new", "operators"), CHANGES)
def test_changed_operator_invalidates_dependent_published_states(
    project: Project,
    old: str,
    new: str,
    operators: list[str],
) -> None:
    # Rules: W65
    publish(changed(project.config), BASE)
    plan = draft_plan(changed(project.config, old, new), request(first=BASE + 1)).plan
    passed_over = [warning for warning in plan.warnings if "another version" in warning]
    assert plan.start.other_versions == operators
    if operators:
        names = ", ".join(operators)
        assert (plan.start.source, plan.start.warm_up_first) == ("warm_up", FIRST)
        assert passed_over == [
            f"a newer published state was computed by another version of {names}: windows {FIRST} "
            "and later are computed first"
        ]
    else:
        assert (plan.start.source, passed_over) == ("published", [])


def test_replay_starts_from_the_newest_published_state_of_its_operator_versions(
    project: Project,
) -> None:
    # Rules: W65
    config = changed(project.config)
    publish(config, BASE - 3)
    publish(changed(project.config, "state is not None", "state is None"), BASE - 1)
    publish(changed(project.config, 'F.sum("x")', 'F.max("x")'), BASE)
    start = draft_plan(config, request(first=BASE + 1)).plan.start
    assert (start.source, start.window, start.warm_up_first) == ("warm_up", BASE - 3, BASE - 2)
    assert start.other_versions == ["sums"]


def test_replay_ignores_published_states_of_other_operators(project: Project) -> None:
    config = changed(project.config)
    publish(config, BASE)
    renamed = changed(project.config, 'app.add("totals"', 'app.add("sum_of_all"')
    folder = renamed.applications[0] / "totals.py"
    folder.write_text(folder.read_text().replace('nodes["totals"]', 'nodes["sum_of_all"]'))
    start = draft_plan(renamed, request(first=BASE + 1)).plan.start
    assert (start.source, start.other_versions) == ("warm_up", ["sum_of_all", "totals"])


def test_plan_and_checkpoint_contain_the_version_of_each_operator(project: Project) -> None:
    # Rules: W65
    config = changed(project.config)
    plan = create_replay(config, request(replay_id="one"))
    assert plan.versions == load_application(config, "totals").versions(None)
    assert set(plan.versions) == {"sums", "totals", "report"}
    [row] = stored.rows_at(
        Table.open(config.replay_root("one") / CHECKPOINTS), FIRST - 1
    ).to_pylist()
    assert row["operator"] == "totals"
    assert row["code_version"] == plan.versions["totals"].code_version
    assert row["configuration_digest"] == plan.versions["totals"].configuration_digest
    sums = plan.versions["sums"]
    assert row["upstream"] == f'{{"sums": ["{sums.code_version}", "{sums.configuration_digest}"]}}'


@pytest.mark.parametrize("kind", [TableKind.CHECKPOINTS, TableKind.STATES])
def test_checkpoints_with_an_unsupported_format_are_rejected_by_name(
    project: Project,
    kind: TableKind,
) -> None:
    config = changed(project.config)
    create_replay(config, request(replay_id="one"))
    publish(config, BASE)
    path = config.checkpoints_table("totals")
    wish = request(first=BASE + 1)
    name = 'table "totals.checkpoints"'
    if kind is TableKind.CHECKPOINTS:
        path = config.replay_root("one") / CHECKPOINTS
        wish = request(state_from="one")
        name = 'replay "one"'
    Table.open(path).set_properties({PROPERTY: "3"})
    with pytest.raises(TableError, match=f"{name} has format 3, .* requires format 4"):
        draft_plan(config, wish)


def publish(config: Config, window: int) -> None:
    """Puts a state into the published checkpoints, as the operators of some settings make it."""
    loaded = load_application(config, "totals")
    states = {"totals": loaded.app.nodes["totals"].operator.initial_state()}
    rows = stored.encode(
        window, 10, states, {"totals": 1}, stored.Provenance(loaded.versions(None), 1)
    )
    path = config.checkpoints_table("totals")
    if not Table.exists(path):
        create_table(path, stored.SCHEMA, format_property(TableKind.STATES))
    Table.open(path).commit_arrow(rows, app_id="publication", version=window)
