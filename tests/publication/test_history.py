"""Taking back: after any sequence of acts a table shows the newest publications that stand, and
below them what was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rewindow.ledger import Publication, PublishedTable
from rewindow.ledger.publication_details import PublicationDetails, PutBack
from rewindow.ledger.publication_rows import effective_publications
from rewindow.publication.history import versions_without
from rewindow.windows import WindowRange

AT = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = range(12)
DETAILS = PublicationDetails()
RANGES = {
    "a": WindowRange(0, 11),
    "b": WindowRange(3, 7),
    "c": WindowRange(5, 9),
    "d": WindowRange(0, 4),
}


@dataclass
class Table:
    """A table as versions, each a map from window to what it shows; and the acts that made them."""

    versions: list[dict[int, int | None]] = field(default_factory=lambda: [dict.fromkeys(WINDOWS)])
    acts: list[Publication] = field(default_factory=list)

    def publish(self, replay: str) -> None:
        act = self._act(replay, "publish", None)
        self.versions.append(self.versions[-1] | dict.fromkeys(act.range, act.number))
        self.acts.append(act)

    def undo(self, replay: str) -> None:
        """Takes a replay back, as far as nothing later covers it."""
        mine = [act for act in effective_publications(self.acts) if act.replay_id == replay]
        if not mine or any(
            act.number > mine[-1].number and act.range.overlap(mine[-1].range)
            for act in self.effective
        ):
            return
        left = [
            act.number
            for act in effective_publications([act for act in self.acts if act.replay_id != replay])
        ]
        pieces = versions_without(self.acts, "t", mine[-1], left)
        shown = dict(self.versions[-1])
        for piece in pieces:
            shown |= {window: self.versions[piece.version][window] for window in piece.windows}
        assert sorted(window for piece in pieces for window in piece.windows) == list(
            mine[-1].range
        )
        self.acts.append(self._act(replay, "undo", mine[-1].number))
        self.versions.append(shown)

    @property
    def effective(self) -> list[Publication]:
        return effective_publications(self.acts)

    def _act(self, replay: str, kind: str, undoes: int | None) -> Publication:
        version = len(self.versions) - 1
        windows = RANGES[replay]
        tables = (PublishedTable("t", version, version + 1, True),)
        return Publication(
            len(self.acts) + 1,
            replay,
            kind,
            windows.first,
            windows.last,
            undoes,
            DETAILS,
            tables,
            None,
            AT,
            AT,
        )


STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "undo"]), st.sampled_from(sorted(RANGES))),
    max_size=14,
)


@given(STEPS)
def test_table_shows_the_newest_publication_that_was_not_undone(
    steps: list[tuple[str, str]],
) -> None:
    table = Table()
    for verb, replay in steps:
        getattr(table, verb)(replay)
        expected: dict[int, int | None] = dict.fromkeys(WINDOWS)
        newest: dict[str, Publication] = {act.replay_id: act for act in table.effective}
        for act in sorted(newest.values(), key=lambda act: act.number):
            expected |= dict.fromkeys(act.range, act.number)
        shown = table.versions[-1]
        assert {w: n and table.acts[n - 1].replay_id for w, n in shown.items()} == {
            w: n and table.acts[n - 1].replay_id for w, n in expected.items()
        }


def test_undone_publication_is_not_restored_when_a_later_one_is_undone() -> None:
    table = Table()
    for replay in ("a", "b", "a"):
        table.publish(replay)
    table.undo("a")
    assert {n for n in table.versions[-1].values() if n} == {2}
    table.undo("b")
    assert set(table.versions[-1].values()) == {None} and table.effective == []


def test_undo_restores_the_previous_version_by_default() -> None:
    # VACUUM removes that version last.
    table = Table()
    for replay in ("a", "b", "c"):
        table.publish(replay)
    (act,) = [act for act in table.acts if act.replay_id == "c"]
    assert versions_without(table.acts, "t", act, [1, 2]) == [PutBack(WindowRange(5, 9), 2)]
