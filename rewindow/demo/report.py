"""The page of the demo, with four replays of one year next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain

from rewindow.demo.proof import Proof
from rewindow.embedded.environment import password_file
from rewindow.location import Location, location
from rewindow.pages.layers import LayerMeasure, read_layers
from rewindow.pages.replay_page import write_page
from rewindow.pages.replay_report import CertificateSummary, Page, ReplayReport, ReportSection
from rewindow.pages.report_data import comparison_of, read_acts, read_report, relative
from rewindow.settings.config import Config

NAME = "demo.html"
DELAY = LayerMeasure(
    "delay",
    "Delay",
    "minutes",
    output="delays",
    sql="cast(sum(delay_minutes) as double) / nullif(sum(departed), 0)",
    hue="amber",
    note="mean departure delay over the three airports",
)


def build_demo_page(
    config: Config,
    proofs: Sequence[Proof],
    seed: int,
    chapters: Sequence[tuple[str, float]],
    places: Sequence[tuple[str, str]],
) -> Location:
    """Writes the page of a demo and returns its path.

    `places` are additional links on the page, each with its address.
    """
    stories = tuple(_story(config, proof) for proof in proofs)
    first = stories[0]
    page = Page(
        title="A year of flights, replayed four times and killed three times",
        lead=(
            "Every flight that left New York's three airports in 2013, and the weather there, "
            "hour by hour. One replay was left alone. In the others the running Spark job got a "
            "SIGKILL in the middle of a commit group. Airflow started the next attempt, and each "
            "mode kept its guarantee."
        ),
        grid=first.grid,
        windows=first.windows,
        stories=stories,
        layers=read_layers(config, proofs[0].count.plan, [DELAY]),
        made_at=datetime.now(UTC),
        facts=_facts(stories, proofs, seed),
        acts=read_acts(config, first.application, first.windows),
        chapters=tuple(ReportSection(name, seconds) for name, seconds in chapters),
        next_steps=_next_steps(stories),
        places=(*places, ("Airflow's login: user admin, password in", str(password_file(config)))),
    )
    return write_page(config, NAME, page)


def _story(config: Config, proof: Proof) -> ReplayReport:
    drill = proof.run.drill
    title = drill.title[:1].upper() + drill.title[1:]
    return read_report(
        config,
        proof.run.replay_id,
        title=title,
        kills=proof.run.kills,
        comparison=_comparison(config, proof),
    )


def _comparison(config: Config, proof: Proof) -> CertificateSummary | None:
    if proof.certificate is None:
        return None
    page = relative(location(proof.certificate.page), config)
    return comparison_of(proof.certificate.model_dump(mode="json"), page)


def _facts(
    stories: Sequence[ReplayReport],
    proofs: Sequence[Proof],
    seed: int,
) -> tuple[tuple[str, str], ...]:
    plan = proofs[0].count.plan
    recoveries = [story.recovery_seconds for story in stories if story.recovery_seconds is not None]
    slowest = f"{max(recoveries):.1f} s" if recoveries else "–"
    return (
        *((f"{entry.tuples:,}", f"tuples of {entry.stream}") for entry in plan.inputs),
        (f"{len(plan.range):,}", "windows of one hour"),
        (str(sum(len(story.kills) for story in stories)), "SIGKILLs"),
        (slowest, "slowest recovery"),
        (str(seed), "seed"),
    )


def _next_steps(stories: Sequence[ReplayReport]) -> tuple[tuple[str, str], ...]:
    by_mode = {story.mode: story for story in stories}
    lossy = by_mode["at_most_once"]
    stretches = chain.from_iterable(lossy.outputs.values())
    lost = next((part.windows.first for part in stretches if part.kind == "lost"), None)
    steps = [("rewindow list", "all replays")]
    if lost is not None:
        steps.append(
            (
                f"rewindow why {lossy.replay_id} {lost}",
                "the history of the first window that at most once lost",
            )
        )
    steps += [
        ("rewindow gaps weather", "times when the weather stations were silent"),
        (f"rewindow undo {by_mode['exactly_once'].replay_id}", "undo the publication"),
        ("make down", "stop Airflow"),
    ]
    return tuple(steps)
