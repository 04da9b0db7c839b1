"""Collects what a user needs to know to decide whether a replay should be published. Starts no
JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, starmap

import pyarrow.compute as pc

from rewindow.certificate import Certificate, certify
from rewindow.facts.readers import staged_seals
from rewindow.ledger import Ledger
from rewindow.ledger.publication_details import PublicationDetails, StaleWindows
from rewindow.ledger.publication_rows import effective_publications
from rewindow.lineage.dependents import Dependent, readers
from rewindow.names import PUBLISHED
from rewindow.publication.effects import related_acts
from rewindow.publication.objections import Flaws
from rewindow.publication.publish import check_publishable, publication_details
from rewindow.quality.findings import Finding, failures
from rewindow.recovery import Plan
from rewindow.sequences import present
from rewindow.settings.config import Config
from rewindow.storage.names import data_name
from rewindow.storage.snapshots import snapshot_cache
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange, without


@dataclass(frozen=True)
class PublicationEvidence:
    """The facts about a replay that is ready to be published.

    Attributes:
        tuples: output to the number of its tuples.
        flaws: windows that are missing from an input, lost from an output, or affected.
        objections: problems that a user must accept, one line each.
        findings: checks of the gate that did not pass, including warnings.
        difference: comparison with the published tables; None if they have no window of the range.
        stale: windows of the same application that become stale.
        readers: publications of other applications that have read windows that change.
    """

    plan: Plan
    tuples: dict[str, int]
    flaws: Flaws
    objections: Sequence[str]
    findings: Sequence[Finding]
    difference: Certificate | None
    stale: Sequence[StaleWindows]
    readers: Sequence[Dependent]

    def flawed(self, flaw: str) -> int:
        """Returns the number of windows that have a flaw in at least one table.

        Args:
            flaw: "missing", "lost" or "affected".
        """
        ranges = list[WindowRange]()
        for name, of_table in self.flaws.items():
            if name.startswith(f"{flaw}: "):
                ranges += of_table
        return sum(map(len, joined(ranges)))

    @property
    def partial(self) -> int:
        """The number of windows that some outputs have lost, but not all."""
        # A window is lost as a whole only if every output has lost it.
        outputs = 0
        some: list[WindowRange] = []
        all_of: list[WindowRange] = []
        for name, ranges in self.flaws.items():
            if not name.startswith("lost: "):
                continue
            outputs += 1
            some += ranges
            all_of = _common(all_of, ranges) if outputs > 1 else ranges
        whole = all_of if outputs == len(self.plan.staged) else []
        return sum(map(len, joined(some))) - sum(map(len, whole))

    def downstream(self) -> list[tuple[str, WindowRange, str]]:
        """Returns what must be replayed after the publication: the name of the table or the
        application, its windows, and the reason if it is another application.
        """
        found = [(entry.table, entry.windows, "") for entry in self.stale]
        return found + [(one.application, one.windows, one.why) for one in self.readers]

    @property
    def is_flawed(self) -> bool:
        """Whether a user must accept something before the replay can be published."""
        return bool(self.flaws or self.objections)


def joined(ranges: Iterable[WindowRange]) -> list[WindowRange]:
    """Returns ranges as ascending, disjoint ranges.

    >>> [str(part) for part in joined([WindowRange(4, 9), WindowRange(1, 3), WindowRange(2, 5)])]
    ['[1, 9]']
    """
    found: list[WindowRange] = []
    for part in sorted(ranges, key=lambda part: part.first):
        if found and part.first <= found[-1].last + 1:
            part = WindowRange(found[-1].first, max(found.pop().last, part.last))
        found.append(part)
    return found


def _common(some: Iterable[WindowRange], others: Iterable[WindowRange]) -> list[WindowRange]:
    """Returns the windows that are in both lists of ranges."""
    found: list[WindowRange] = []
    for part in some:
        found += present(map(part.overlap, others))
    return found


@snapshot_cache()
def publication_evidence(
    config: Config,
    replay_id: str,
    *,
    compare: bool = True,
) -> PublicationEvidence:
    """Returns the facts about a replay that has ended, for the decision about its publication.

    Args:
        config: current settings.
        replay_id: the replay.
        compare: whether to compare it with the published tables, which takes most of the time.

    Raises:
        RewindowError: the replay has not ended, is abandoned, or its tables are damaged.
    """
    ledger = Ledger.open(config.ledger_url)
    replay = ledger.replays.get(replay_id)
    plan = replay.read_plan()
    checked = check_publishable(config, ledger, replay, plan, accept="shown only")
    published = effective_publications(related_acts(ledger, plan.application, plan.tables))
    difference = None
    if compare and any(act.range.overlap(plan.range) for act in published):
        difference = certify(config, PUBLISHED, replay_id)
    return PublicationEvidence(
        plan,
        tuples={output.name: _tuples(checked.replay, output.name) for output in plan.staged},
        flaws=checked.flaws,
        objections=checked.overrides,
        findings=failures(config, replay_id),
        difference=difference,
        stale=_newly_stale(ledger, publication_details(config, ledger, checked)),
        readers=_readers(ledger, plan, difference),
    )


def _tuples(replay: StagedReplay, output: str) -> int:
    seals = staged_seals(replay.facts, output, replay.plan.range)
    return int(pc.sum(seals["tuples"]).as_py() or 0)


def _newly_stale(ledger: Ledger, details: PublicationDetails) -> list[StaleWindows]:
    """Returns the windows that are stale after a publication, and are not stale now."""
    known: dict[str, list[WindowRange]] = {}
    for row in ledger.stale.ranges(details.application):
        known.setdefault(row.table_name, []).append(WindowRange(row.first, row.last))
    found = []
    for entry in details.stale:
        for part in without(entry.windows, known.get(entry.table, [])):
            found.append(StaleWindows(entry.table, part))
    return found


def _readers(ledger: Ledger, plan: Plan, difference: Certificate | None) -> list[Dependent]:
    """Returns the readers of published windows that change."""
    found = []
    # Without a difference, readers stay right, whatever they have read.
    for output in difference.outputs if difference is not None else ():
        ranges = list(chain.from_iterable(output.ranges.values()))
        changed = joined(starmap(WindowRange, ranges))
        if changed:
            found += readers(ledger, data_name(plan.application, output.name), changed)
    return found
