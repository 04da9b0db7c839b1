"""Properties from outside in a plan: kept for every attempt, asked for again, and the same however
settings change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.commands.plan import show
from rewindow.errors import CheckpointError, InputError, ValidationFailed
from rewindow.loading.catalog import check_code, load_application
from rewindow.planning import ReplayRequest, create_replay, draft_plan
from rewindow.recovery import Plan
from rewindow.repairs.ranges import PublishedStretch
from rewindow.settings.config import Config
from tests.planning.options import request
from tests.recovery.project import Project

TUNED = '''
from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from pydantic import Field
import pyarrow as pa

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Sum(FrameOperator):
    """An operator with properties."""

    inputs = {"events": InputPort(EVENTS)}
    outputs = {"sums": OutputPort(EVENTS)}
    least: int = Field(1, ge=1)
    keys: tuple[str, ...] = ()


app = Application("totals", window="1 hour")
app.output("sums", app.add("sums", Sum(), events=app.input("events")), key=["key"])
'''


@pytest.fixture
def tuned(project: Project, tmp_path: Path) -> Config:
    return settle(project, tmp_path, "least = 3")


def settle(project: Project, folder: Path, setting: str) -> Config:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "totals.py").write_text(TUNED)
    text = (
        f'state = "{project.config.state}"\n[applications]\nfolders = '
        '["own"]\n[applications.totals]\n'
    )
    text += f"checkpoint_windows = 9\n[applications.totals.operators.sums]\n{setting}\n"
    (folder / "own.toml").write_text(text)
    return Config.load(folder / "own.toml")


def values(plan: Plan) -> dict[str, object]:
    return {one.path: one.value for one in plan.given}


def test_plan_keeps_overridden_properties_and_resumes_with_them(
    project: Project,
    tmp_path: Path,
    tuned: Config,
) -> None:
    # Rules: O28, W65
    plan = create_replay(tuned, request(replay_id="one", properties={"sums.keys": '["a"]'}))
    assert values(plan) == {"checkpoint_windows": 9, "sums.least": 3, "sums.keys": '["a"]'}
    assert plan.checkpoint_windows == 9 and "--set 'sums.keys=[\"a\"]'" in plan.command
    later = settle(project, tmp_path, "least = 4")
    known = Plan.model_validate(plan.model_dump(mode="json"))
    loaded = load_application(later, "totals", known.parameters, known.given)
    check_code(known, loaded)
    assert loaded.app.nodes["sums"].operator.keys == ("a",)  # type: ignore[attr-defined]
    assert draft_plan(later, request()).plan.configuration_digest != plan.configuration_digest


def test_plan_with_an_old_tuple_order_is_rejected_by_name(project: Project) -> None:
    # Rules: O39, X43
    config = project.config
    plan = create_replay(config, request(application="tuple_order", replay_id="one"))
    loaded = load_application(config, "tuple_order")
    check_code(plan, loaded)
    old = Plan.model_validate(plan.model_dump(mode="json", exclude={"tuple_order"}))
    words = 'replay "one" was planned with another order of tuples between operators'
    with pytest.raises(CheckpointError, match=words) as error:
        check_code(old, loaded)
    assert "rewindow abandon one && rewindow replay tuple_order" in error.value.hint
    plan = create_replay(config, request(application="tuple_totals", replay_id="two"))
    other = plan.model_copy(update={"tuple_order": 1})
    check_code(other, load_application(config, "tuple_totals"))


def test_sort_columns_of_an_output_can_be_overridden_in_the_settings(
    project: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Rules: O28, O13
    config = settle(
        project,
        tmp_path,
        "[applications.totals.outputs.sums]\nsorted_by = ['key', 'window_id']",
    )
    draft = draft_plan(config, request())
    (output,) = draft.plan.outputs
    assert output.sorted_by == ["key", "window_id"]
    assert values(draft.plan)["outputs.sums.sorted_by"] == ["key", "window_id"]
    show(draft)
    assert "sums: each file is sorted by key, window_id" in " ".join(
        capsys.readouterr().out.split()
    )
    known = Plan.model_validate(draft.plan.model_dump(mode="json"))
    again = settle(project, tmp_path, "[applications.totals.outputs.sums]\nsorted_by = []")
    assert load_application(again, "totals", {}, known.given).app.outputs["sums"].sorted_by == (
        "key",
        "window_id",
    )
    assert load_application(again, "totals", {}).app.outputs["sums"].sorted_by == ()
    for wrong, said in (
        ("sums]\nsorted_by = ['kee']", "sorted_by is not"),
        ("sum]\nsorted_by = []", "no output has"),
    ):
        with pytest.raises(ValidationFailed, match=said):
            draft_plan(
                settle(project, tmp_path, f"[applications.totals.outputs.{wrong}"),
                request(),
            )


def test_different_property_value_for_an_existing_replay_id_is_rejected(tuned: Config) -> None:
    asked = request(replay_id="one", properties={"sums.keys": '["a"]'})
    assert create_replay(tuned, asked) == create_replay(tuned, asked)
    with pytest.raises(InputError, match="already exists with properties"):
        create_replay(tuned, request(replay_id="one", properties={"sums.keys": '["b"]'}))


def test_repair_keeps_overridden_properties(
    project: Project,
    tmp_path: Path,
    tuned: Config,
) -> None:
    # Rules: O28
    plan = draft_plan(tuned, request(properties={"sums.keys": '["a"]'})).plan
    stretch = PublishedStretch(plan.range, plan)
    other = PublishedStretch(plan.range, draft_plan(tuned, request()).plan)
    assert stretch.kind != other.kind
    later = settle(project, tmp_path, "least = 4")
    again = draft_plan(later, ReplayRequest("totals", **stretch.replay_options(plan.range))).plan
    assert again.configuration_digest == plan.configuration_digest


def test_wrong_property_value_is_rejected_before_anything_is_created(tuned: Config) -> None:
    # Rules: O53
    with pytest.raises(
        ValidationFailed,
        match=r"greater than or equal to 1 \(least = '0', from --set\)",
    ):
        create_replay(tuned, request(properties={"sums.least": "0"}))
    assert not (tuned.state / "replays").exists()
