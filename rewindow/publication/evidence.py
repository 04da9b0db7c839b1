"""Collects the facts that a user needs to decide whether a replay should be published. Starts no
JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, starmap

import numpy as np
import numpy.typing as npt
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
from rewindow.settings.config import Config
from rewindow.storage.names import data_name
from rewindow.storage.snapshots import snapshot_cache
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange, to_ranges, without


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
        return len(_ids(chain.from_iterable(self._tables_with(flaw))))

    @property
    def partial(self) -> int:
        """The number of windows that some outputs have lost, but not all."""
        lost = list(map(_ids, self._tables_with("lost")))
        # A window is lost as a whole only if every output has lost it.
        is_whole = len(lost) == len(self.plan.staged)
        return self.flawed("lost") - (len(reduce(np.intersect1d, lost)) if is_whole else 0)

    def _tables_with(self, flaw: str) -> list[list[WindowRange]]:
        """Returns, for each table with a flaw, the windows that have it."""
        return [self.flaws[name] for name in self.flaws if name.startswith(f"{flaw}: ")]

    def downstream(self) -> list[tuple[str, WindowRange, str]]:
        """Returns what must be replayed after the publication: the name of the table or the
        application, its windows, and the reason if it is another application.
        """
        found = []
        for entry in self.stale:
            found.append((entry.table, entry.windows, ""))
        for reader in self.readers:
            found.append((reader.application, reader.windows, reader.why))
        return found

    @property
    def is_flawed(self) -> bool:
        """Whether a user must accept something before the replay can be published."""
        return bool(self.flaws or self.objections)


def _ids(ranges: Iterable[WindowRange]) -> npt.NDArray[np.int64]:
    """Returns the ids of all windows in ranges, in order and without repetitions."""
    parts = [np.arange(part.first, part.last + 1) for part in ranges]
    return np.unique(np.concatenate(parts or [np.arange(0)]))


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
    # If no published window changes, the results of all readers stay right.
    for output in difference.outputs if difference is not None else ():
        ranges = list(chain.from_iterable(output.ranges.values()))
        changed = to_ranges(_ids(starmap(WindowRange, ranges)))
        if changed:
            found += readers(ledger, data_name(plan.application, output.name), changed)
    return found
