"""Errors in a user's code: the operator, the windows, the line of the file and the next act, in a
few lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.engine.operator_errors import next_steps
from rewindow.errors import InputError, RewindowError
from rewindow.launcher import begin_attempt, loop, verbs
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.layout import FACTS
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(__file__).parents[1] / "recovery" / "applications" / "failing.py"
RANGE = f"[{FIRST}, {FIRST + WINDOWS - 1}]"
LINES_MAX = 3
CHARACTERS_MAX = 1200

FAILURES = {
    "transform": (
        'operator "sums" failed: ValueError: no rates for June',
        "transform",
        'raise ValueError("no rates',
    ),
    "column": (
        'operator "sums" failed: Spark failed: [UNRESOLVED_COLUMN',
        "transform",
        'F.col("amount")',
    ),
    "udf": ('operator "sums" failed: ZeroDivisionError', 'output port "out"', "return 10 // x"),
    "method_udf": (
        'operator "early" failed: ZeroDivisionError',
        'output port "out"',
        "return 20 // x",
    ),
    "early_udf": (
        'operator "doubled" failed: ZeroDivisionError',
        'output port "out"',
        'same step: "early"',
    ),
    "spark": (
        'operator "sums" failed: Spark failed: [CAST_INVALID_INPUT]',
        'output port "out"',
        "concat('n', x)",
    ),
    "call": (
        'operator "sums" failed: Spark failed: [DIVIDE_BY_ZERO]',
        'output port "out"',
        "class Sums at",
    ),
    "next_state": (
        'operator "sums" failed: Spark failed: [UNRESOLVED_COLUMN',
        "next_state",
        "no_such_column",
    ),
    "state_udf": ('operator "sums" failed: ZeroDivisionError', "next_state", "return 10 // x"),
    "columns": (
        'output port "sums.out" lacks the column "key"',
        'output port "out"',
        "class Sums at",
    ),
    "port": ('transform of operator "sums" returned the port "sums"', "transform", "class Sums at"),
    "nothing": (
        'transform of operator "sums" returned NoneType instead',
        "transform",
        "class Sums at",
    ),
}
"""What fails, to the beginning of the message, what was computed, and the text of the user's line,
or the class."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return make_project(tmp_path_factory.mktemp("failing")).config


@pytest.mark.parametrize("fails", FAILURES)
def test_operator_error_names_operator_source_line_and_next_commands(
    config: Config,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    spark.sparkContext.setLogLevel("OFF")
    said, part, text = FAILURES[fails]
    with pytest.raises(RewindowError) as caught:
        verbs.replay(
            config,
            "failing",
            replay_id=fails,
            parameters={"fails": fails},
            group_windows=WINDOWS,
        )
    message = str(caught.value)
    assert message.startswith(said), message
    assert f"{part}, windows {RANGE}" in message, message
    assert str(FILE) in message and text in message, message
    assert (
        f"rewindow abandon {fails} && rewindow replay failing --first {FIRST}" in caught.value.hint
    )
    assert len(message.splitlines()) <= LINES_MAX and len(message) <= CHARACTERS_MAX, message
    assert "\tat " not in message and "Traceback" not in message
    ledger = Ledger.open(config.ledger_url)
    assert ledger.replays.get(fails).message.splitlines()[0] in message
    log = config.replay_root(fails) / "outcome-1.log"
    if "failed:" in said:
        assert str(log) in caught.value.detail
        assert (
            "Traceback (most recent call last)" in log.read_text()
            and "failing.py" in log.read_text()
        )


def test_tuple_outside_its_commit_group_is_rejected_and_nothing_is_committed(
    config: Config,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: W17
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    last = FIRST + WINDOWS - 1
    with pytest.raises(RewindowError) as caught:
        verbs.replay(
            config,
            "failing",
            replay_id="outside",
            parameters={"fails": "outside"},
            group_windows=WINDOWS,
        )
    message = (
        f'output "sums" emitted tuples of window {last + 1}, which is not in its group {RANGE}'
    )
    assert message in str(caught.value)
    for table in ("sums", FACTS):
        assert Table.open(config.replay_root("outside") / table).files() == []


def test_error_in_an_application_definition_shows_its_line(config: Config) -> None:
    with pytest.raises(
        InputError,
        match="application \"failing\" cannot be built .*KeyError: 'RATES'",
    ) as caught:
        verbs.replay(config, "failing", parameters={"fails": "definition"})
    assert (
        str(FILE) in caught.value.detail
        and 'in build: raise KeyError("RATES")' in caught.value.detail
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nosuch_module\n", "line 1, in <module>: import nosuch_module"),
        ("x = 1\nx = = 2\n", "line 2: x = = 2"),
        (
            "from pyspark.sql import functions as F\nrate = F.lit(1)\n",
            "line 2, in <module>: rate = F.lit(1)",
        ),
        ("import _wrong_part\n", "line 2, in <module>: 1 / 0"),
    ],
)
def test_import_error_shows_the_line_in_the_application_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    words: str,
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    (tmp_path / "broken.py").write_text(code)
    (tmp_path / "_wrong_part.py").write_text("y = 2\n1 / 0\n")
    config = Config(state=tmp_path / "state", applications=[tmp_path])
    with pytest.raises(InputError, match='application "broken" cannot be imported') as caught:
        verbs.plan(config, "broken")
    assert words in caught.value.detail
    assert ("inside transform" in caught.value.hint) == ("F.lit" in code) and caught.value.hint


def test_next_steps_after_a_failed_container_refer_to_the_whole_replay(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.plan_of("three_modes", "one", "exactly_once")
    begin_attempt(project.config, "one")
    [container] = Ledger.open(project.config.ledger_url).replays.containers("one")
    steps = next_steps(container.read_plan())
    assert "rewindow abandon one && " in steps and steps.endswith("--resume one")
    verbs.abandon(project.config, "one", reason="it failed")
