"""The sequence of the demo: record, start Airflow, replay four times, verify, publish, undo,
publish, event time, page.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rewindow.application import Mode
from rewindow.demo import report, summary
from rewindow.demo.airflow import Airflow
from rewindow.demo.console import DemoConsole
from rewindow.demo.containers import show_containers
from rewindow.demo.drill import Drill, draw_drills, group_distance
from rewindow.demo.event_time import show_event_time
from rewindow.demo.proof import Proof, prove, prove_published
from rewindow.demo.start import check_place, start_airflow
from rewindow.demo.watch import (
    DemoRun,
    follow,
    groups_word,
    wait_for_end,
    wait_for_plan,
    wait_for_task,
)
from rewindow.errors import Interrupted, OverlapError, RewindowError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE
from rewindow.location import Location
from rewindow.planning import ReplayRequest, draft_plan
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.windows import WindowRange

APPLICATION = "flight_delays"
STREAMS = ("flights", "weather")
SEED_MAX = 9_999


@dataclass
class Show:
    """One run of the demo.

    Attributes:
        distance: number of windows in a commit group, and between due checkpoints.
    """

    config: Config
    demo_console: DemoConsole
    seed: int
    port: int | None = None
    last: int | None = None
    airflow: Airflow | None = None
    windows: WindowRange | None = None
    distance: int = 0
    runs: list[DemoRun] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        """The ledger in the current settings."""
        return Ledger.open(self.config.ledger_url)


def show(
    config: Config,
    demo_console: DemoConsole,
    seed: int | None = None,
    port: int | None = None,
    last: int | None = None,
) -> Location:
    """Runs the whole demo and returns the path of its page.

    Args:
        seed: selects where the jobs are killed; random by default.
        port: port of Airflow; by default the usual one, or the next free one.
        last: last window to replay; by default the last one that both streams have sealed.

    Raises:
        RewindowError: a step failed, or a promise is broken.
        Interrupted: ctrl-C; running replays are abandoned, Airflow keeps running.
    """
    check_place(config, APPLICATION, STREAMS)
    stage = Show(
        config,
        demo_console,
        secrets.randbelow(SEED_MAX) + 1 if seed is None else seed,
        port=port,
        last=last,
    )
    demo_console.say(
        f'seed {stage.seed}: make demo ARGS="--seed {stage.seed}" kills at the same steps'
    )
    try:
        return _play(stage)
    except KeyboardInterrupt:
        demo_console.say("ctrl-C: abandoning running replays", style="yellow")
        _clean_up(stage)
        raise Interrupted(
            "demo stopped",
            detail="Its running replays were abandoned. Recorded and published streams are kept.",
            hint="To start again: make demo. To stop Airflow: make down",
        ) from None


def _play(stage: Show) -> Location:
    demo_console = stage.demo_console
    with demo_console.chapter("record", "Record a year of flights and weather into Delta"):
        demo_console.run("record", *STREAMS, "--end", "--json")
        _plan(stage)
    with demo_console.chapter("Airflow starts", "Start Airflow on this machine"):
        stage.airflow = Airflow(start_airflow(stage.config, stage.port))
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    for drill in draw_drills(stage.seed):
        with demo_console.chapter(drill.title, f"Replay the year, {_heading(drill)}"):
            demo_console.say(groups_word(drill))
            _replay(stage, drill, stamp)
    with demo_console.chapter("gate", "Great Expectations judges all four"):
        for run in stage.runs:
            _judge(stage, run)
    with demo_console.chapter("publish", "Publish exactly once, undo it, publish it again"):
        _publish(
            stage,
            next(
                run for run in stage.runs if run.drill.mode is Mode.EXACTLY_ONCE and run.drill.step
            ),
        )
    with demo_console.chapter("containers", "A mode per operator: kill one of three containers"):
        assert stage.windows is not None, "the range is known"
        reference = stage.runs[0].replay_id
        show_containers(stage.config, demo_console, APPLICATION, reference, stage.windows)
    with demo_console.chapter(
        "event time",
        "Find late flights, and fill gaps in the weather in two ways",
    ):
        assert stage.windows is not None, "the range is known"
        places = show_event_time(stage.config, demo_console, stage.windows)
    with demo_console.chapter("page", "Draw the page"):
        places += (("Airflow", stage.airflow.address),)
        path = report.build_demo_page(
            stage.config,
            stage.proofs,
            stage.seed,
            chapters=demo_console.chapters,
            places=places,
        )
    summary.print_summary(
        demo_console.console,
        stage.config,
        stage.proofs,
        page=path,
        places=places,
        seconds=demo_console.seconds,
    )
    return path


def _plan(stage: Show) -> None:
    plan = draft_plan(stage.config, ReplayRequest(APPLICATION, last=stage.last)).plan
    stage.windows = plan.range
    stage.distance = group_distance(plan.range)
    _refuse_held(stage, plan.range)
    for entry in plan.inputs:
        stage.demo_console.say(
            f"{entry.stream}: {entry.tuples:,} tuples in {len(plan.range):,} windows {plan.range}"
        )
    stage.demo_console.say(f"commit groups of {stage.distance:,} windows, a checkpoint after each")


def _refuse_held(stage: Show, windows: WindowRange) -> None:
    """Checks that no other replay has leased the same windows.

    An example is a replay of a demo that was killed.
    """
    for lease in stage.ledger.leases.held():
        if lease.table_name.startswith(f"{APPLICATION}.") and WindowRange(
            lease.first,
            lease.last,
        ).overlap(windows):
            raise OverlapError(
                f'replay "{lease.replay_id}" holds windows [{lease.first}, {lease.last}] of '
                f"{lease.table_name}",
                holder=lease.replay_id,
                hint="Wait until this replay has ended, or abandon it: rewindow abandon "
                f"{lease.replay_id}",
            )


def _heading(drill: Drill) -> str:
    return drill.mode.words if drill.step else f"{drill.mode.words} and undisturbed: the reference"


def _replay(stage: Show, drill: Drill, stamp: str) -> None:
    assert stage.airflow is not None and stage.windows is not None, (
        "Airflow runs and the range is known"
    )
    wanted = f"demo-{stamp}-{drill.title.replace(' ', '_')}"
    run = DemoRun(drill, wanted)
    stage.runs.append(run)
    stage.airflow.trigger(wanted, _form(stage, drill), f"rewindow demo, seed {stage.seed}")
    stage.demo_console.say(f"triggered: {stage.airflow.page(wanted)}")
    wait_for_plan(stage.airflow, run, stage.demo_console)
    stage.demo_console.say(f"planned as replay {run.replay_id}")
    follow(stage.ledger, stage.airflow, run, stage.demo_console)
    proof = prove(stage.config, run, stage.runs[0] if drill.step else None)
    stage.proofs.append(proof)
    for sentence in proof.sentences:
        stage.demo_console.say(f"holds: {sentence}", style="green")


def _form(stage: Show, drill: Drill) -> dict[str, object]:
    assert stage.windows is not None, "the range is known"
    return {
        "application": APPLICATION,
        "reason": f"demo with seed {stage.seed}: {groups_word(drill)}"[:500],
        "range_as": "windows",
        "first_window": stage.windows.first,
        "last_window": stage.windows.last,
        "mode": drill.mode.name,
        "publish": "approve" if drill.step and drill.mode is Mode.EXACTLY_ONCE else "staged",
        "group_windows": stage.distance,
        "checkpoint_windows": stage.distance,
        **({"crash": drill.crash} if drill.crash else {}),
    }


def _judge(stage: Show, run: DemoRun) -> None:
    """Waits for the gate. The gate may fail only if windows were given up."""
    assert stage.airflow is not None, "Airflow runs"
    may_fail = ("success", "failed") if run.drill.mode is Mode.AT_MOST_ONCE else ("success",)
    wait_for_task(
        stage.airflow, run, "check_windows", states=may_fail, demo_console=stage.demo_console
    )
    check = stage.ledger.checks.newest(run.replay_id, limit=1)[0]
    outputs = check.summary.get("outputs", [])
    evaluated = 0
    wrong = []
    for output in outputs:
        evaluated += output["evaluated"]
        for name in (*output["failed"], *output["warnings"]):
            wrong.append(f"{output['output']}: {name}")
    stage.demo_console.say(
        f"{run.drill.title}: gate {check.verdict}, {evaluated} checks on "
        f"{len(stage.windows or ()):,} windows"
        + (
            f"; to know: {', '.join(wrong[:4])}" + (" ..." if len(wrong) > 4 else "")
            if wrong
            else ""
        )
    )


def _publish(stage: Show, run: DemoRun) -> None:
    assert stage.airflow is not None, "Airflow runs"
    demo_console = stage.demo_console
    replay_id = run.replay_id
    before = _published_windows(stage)
    wait_for_task(
        stage.airflow,
        run,
        "approve_publication",
        states=("awaiting_input", "deferred"),
        demo_console=demo_console,
    )
    demo_console.say("its certificate is equal: approving the publication in Airflow")
    stage.airflow.approve(run.run_id)
    wait_for_task(
        stage.airflow, run, "publish_windows", states=("success",), demo_console=demo_console
    )
    demo_console.say(
        prove_published(stage.config, replay_id, "published, and equal to the replay"),
        style="green",
    )
    demo_console.run("undo", replay_id, "--json")
    after = _published_windows(stage)
    if after != before:
        raise RewindowError(
            f"undo left {after:,} published windows, before the publication there were {before:,}"
        )
    demo_console.say(f"undone: {after:,} windows are published, as before", style="green")
    demo_console.run("publish", replay_id, "--json")
    demo_console.say(
        prove_published(stage.config, replay_id, "published again, and equal to the replay"),
        style="green",
    )
    for one in stage.runs:
        wait_for_end(stage.airflow, one, demo_console)


def _published_windows(stage: Show) -> int:
    """Returns the number of published windows of the range, counted in the published table."""
    output = stage.ledger.replays.get(stage.runs[0].replay_id).read_plan().outputs[0]
    path = stage.config.windows_table(f"{APPLICATION}.{output.name}")
    if not Table.exists(path) or stage.windows is None:
        return 0
    sql = (
        f"select count(*) as n from w where window_id between {stage.windows.first} and "
        f"{stage.windows.last}"
    )
    return int(query(sql, w=Table.open(path))["n"][0].as_py())


def _clean_up(stage: Show) -> None:
    """Ends open runs, and abandons replays that have not ended."""
    for run in stage.runs:
        try:
            if stage.airflow is not None:
                stage.airflow.stop(run.run_id)
            found = stage.ledger.replays.find(run.replay_id) if run.replay_id else None
            if found is not None and found.state in RUNNABLE:
                stage.ledger.replays.abandon(run.replay_id, "demo stopped")
        except OverlapError as error:
            stage.demo_console.say(f"{error.primary}; {error.hint}", style="yellow")
        except RewindowError as error:
            stage.demo_console.say(
                f"could not abandon {run.run_id}: {error.primary}",
                style="yellow",
            )
