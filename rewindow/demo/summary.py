"""The table at the end of the demo, and links for further steps."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rewindow.demo.drill import GROUPS
from rewindow.demo.proof import Proof
from rewindow.embedded.environment import password_file
from rewindow.ledger import Ledger
from rewindow.location import Location
from rewindow.pages.replay_report import ReplayReport
from rewindow.pages.report_data import read_report
from rewindow.settings.config import Config

_ROWS = ("windows", "tuples", "redone", "lost", "repeated", "affected")


def print_summary(
    console: Console,
    config: Config,
    proofs: Sequence[Proof],
    page: Location,
    places: Sequence[tuple[str, str]],
    seconds: float,
) -> None:
    """Prints the counts and the verification of each replay, followed by addresses, including those
    in `places`.
    """
    ledger = Ledger.open(config.ledger_url)
    stories = [read_report(config, proof.run.replay_id, kills=proof.run.kills) for proof in proofs]
    drills = [proof.run.drill for proof in proofs]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", style="dim")
    for proof in proofs:
        table.add_column(proof.run.drill.title, justify="right", no_wrap=True)
    for name in _ROWS:
        table.add_row(name, *(f"{getattr(story.counts, name):,}" for story in stories))
    table.add_row("killed at", *(drill.step.value if drill.step else "–" for drill in drills))
    table.add_row(
        "in group",
        *(f"{drill.group} of {GROUPS}" if drill.step else "–" for drill in drills),
    )
    table.add_row("time to recover", *map(_seconds, stories))
    table.add_row(
        "gate",
        *(ledger.checks.newest(proof.run.replay_id, limit=1)[0].verdict for proof in proofs),
    )
    table.add_row(
        "certificate",
        *(proof.certificate.verdict if proof.certificate else "reference" for proof in proofs),
    )
    console.print()
    console.print(table)
    console.print()
    for proof, story in zip(proofs, stories, strict=True):
        if proof.run.drill.step:
            console.print(f"  {proof.run.drill.title}: {'; '.join(_classes(proof))}", markup=False)
            console.print(
                f"    guarantee: {next(iter(story.guarantees.values()))}",
                style="dim",
                markup=False,
            )
    _print_places(console, config, page, places=places, seconds=seconds)


def _print_places(
    console: Console,
    config: Config,
    page: Location,
    places: Sequence[tuple[str, str]],
    seconds: float,
) -> None:
    console.print(
        f"\nDone in {int(seconds) // 60} min {int(seconds) % 60:02d} s. Look around:",
        style="bold",
    )
    login = ("its login", f"user admin, password in {password_file(config)}")
    listed = [("the page", str(page)), *places, login, ("stop Airflow", "make down")]
    width = max(len(words) for words, _ in listed)
    for words, place in listed:
        console.print(f"  {words:<{width}}  {place}", markup=False)


def _seconds(story: ReplayReport) -> str:
    return "–" if story.recovery_seconds is None else f"{story.recovery_seconds:.1f} s"


def _classes(proof: Proof) -> list[str]:
    """Returns, per output, the number of windows of each class in the certificate."""
    assert proof.certificate is not None, "only the reference has none"
    return [
        f"{output.name} "
        + ", ".join(f"{count:,} {kind}" for kind, count in output.classes.items() if count)
        for output in proof.certificate.outputs
    ]
