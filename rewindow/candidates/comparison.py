"""`rewindow compare`: compares new code with the recorded results of an application, with a
candidate replay and a certificate.

It creates candidates and certifies them. The recorded results are for all keys, so they cannot be
compared with results for a sample of the keys. In that case the code in the folders of applications
is computed on the same sample, and the two candidates are compared.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from rewindow.candidates.new_code import new_code
from rewindow.certificate import Certificate, certify
from rewindow.errors import InputError, RangeError
from rewindow.launcher.attempts import known_replay
from rewindow.launcher.loop import run_attempts
from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import effective_publications
from rewindow.location import Location, location
from rewindow.names import PUBLISHED
from rewindow.planning import ReplayRequest, create_replay
from rewindow.progress.listener import Listener, Silent
from rewindow.recovery import Candidate, Plan
from rewindow.repairs.ranges import PublishedStretch
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.windows import WindowRange, parse_time

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Sample:
    """The input of a candidate.

    By default, it is the whole input.

    Attributes:
        windows: number of windows, from the first of the range on.
        fraction: share of the keys, above 0 and up to 1.
        key: columns of the key, in every input that has them; by default the `keys` of each stream.
    """

    windows: int | None = None
    fraction: float | None = None
    key: Sequence[str] = ()

    def check(self) -> None:
        """Checks that the values define a sample.

        Raises:
            InputError: names the wrong value.
        """
        if self.windows is not None and self.windows < 1:
            raise InputError(
                f"sample of {self.windows} windows is out of range: it must be at least 1"
            )
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise InputError(
                f"sample of {self.fraction} of the keys is out of range: it must be greater than "
                "0 and at most 1"
            )
        if self.key and self.fraction is None:
            raise InputError(
                "--key requires --keys, the fraction of the keys to sample",
                hint="Add --keys, such as --keys 0.01",
            )


@dataclass
class _Range:
    """The requested range as windows or times. Both ends can be open."""

    first: int | None = None
    last: int | None = None
    from_time: str | None = None
    to_time: str | None = None

    def within(self, plan: Plan, sample: _Sample) -> WindowRange:
        first = self.first
        last = self.last
        if self.from_time:
            first = plan.grid.window(parse_time(self.from_time))
        if self.to_time:
            last = plan.grid.window(parse_time(self.to_time) - 1)
        asked = WindowRange(
            plan.first if first is None else first,
            plan.last if last is None else last,
        )
        asked.checked("the comparison")
        if sample.windows is not None:
            asked = WindowRange(asked.first, min(asked.last, asked.first + sample.windows - 1))
        return asked


@dataclass
class _Candidates:
    """Creates candidates with the options of a recorded replay and runs them to their end."""

    config: Config
    like: Plan
    windows: WindowRange
    told: Listener
    made: list[str] = field(default_factory=list)

    def run(self, candidate: Candidate, code: Location | None) -> Plan:
        """Runs a candidate to its end and returns its plan."""
        replay_id = f"candidate-{self.like.application}-{uuid.uuid4().hex[:8]}"
        request = replace(
            _as_it_was(self.like, self.windows),
            replay_id=replay_id,
            candidate=candidate,
            code=code,
        )
        plan = create_replay(self.config, request)
        self.made.append(replay_id)
        logger.info(
            f"candidate {replay_id}: {len(plan.range):,} windows {plan.grid.describe(plan.range)}, "
            f"{candidate.words}"
        )
        run_attempts(self.config, replay_id, self.told)
        return plan


def compare(  # noqa: PLR0913 - each is an option of the verb
    config: Config,
    application: str,
    *,
    code: str | None = None,
    against: str = PUBLISHED,
    outputs: Sequence[str] = (),
    first: int | None = None,
    last: int | None = None,
    from_time: str | None = None,
    to_time: str | None = None,
    sample_windows: int | None = None,
    keys: float | None = None,
    key: Sequence[str] = (),
    tolerance: float | None = None,
    listener: Listener | None = None,
) -> Certificate:
    """Replays a range with new code as a candidate, and returns the certificate of the comparison
    with the recorded results.

    The comparison changes neither side, and the candidate is kept alongside other replays until it
    is purged.

    Args:
        config: current settings.
        application: its name.
        code: a file, or a revision of git; by default the code in the folders of applications.
        against: a replay's id, or "published".
        outputs: compare only these outputs and error tables.
        first, last, from_time, to_time: the range, as for a replay; by default everything that was
            recorded.
        sample_windows: only this number of windows, from the first of the range on.
        keys: only this share of the keys, above 0 and up to 1. The code in the folders of
            applications is also computed on it, and its results replace the recorded ones.
        key: columns of the key, in every input that has them; by default the `keys` of each stream.
        tolerance: see certify.
        listener: receives the progress.

    Raises:
        InputError: no results are recorded; the code does not exist, or lacks an output; the sample
            is invalid.
        RewindowError: see replay and certify.

    Rules: O137, O141
    """
    sample = _Sample(sample_windows, keys, key)
    sample.check()
    like = _recorded(config, application, against)
    asked = _Range(first, last, from_time, to_time=to_time).within(like, sample)
    if against != PUBLISHED and asked.overlap(like.range) != asked:
        raise RangeError(
            f'replay "{against}" does not contain windows {asked}: its range is {like.range}'
        )
    sampled = _keys(config, like, sample)
    if sampled and code is None:
        raise InputError(
            "a sample of the keys requires new code to compare with",
            hint="Give the new code: --with FILE_OR_REVISION",
        )
    candidates = _Candidates(config, like, _to_compute(like, asked), told=listener or Silent())
    with _code(config, application, code) as (folder, words):
        new = candidates.run(Candidate(code=words, fraction=keys or 1.0, keys=sampled), folder)
        _check_outputs(like, new, outputs)
        base = (
            candidates.run(Candidate(fraction=keys or 1.0, keys=sampled), None).replay_id
            if sampled
            else against
        )
    return certify(
        config,
        base,
        new.replay_id,
        tolerance=tolerance,
        windows=asked,
        outputs=outputs,
    )


@contextmanager
def _code(
    config: Config,
    application: str,
    given: str | None,
) -> Iterator[tuple[Location | None, str]]:
    if given is None:
        yield None, ""
        return
    with new_code(config, application, given) as (folder, words):
        yield location(folder), words


def _recorded(config: Config, application: str, against: str) -> Plan:
    """Returns the plan of the recorded results of a replay or of the newest effective
    publication.
    """
    ledger = Ledger.open(config.ledger_url)
    if against != PUBLISHED:
        plan = known_replay(config, ledger, against).read_plan()
        if plan.application != application:
            raise InputError(
                f'replay "{against}" is of application "{plan.application}", not of "{application}"'
            )
        return plan
    standing = effective_publications(ledger.publications.newest(application=application))
    for act in standing:
        row = ledger.replays.find(act.replay_id)
        if row is not None and row.plan:
            return row.read_plan()
    raise InputError(
        f'application "{application}" has no published windows to compare with',
        hint="Publish a replay of the application, or compare with a staged replay: --against "
        "REPLAY",
    )


def _as_it_was(plan: Plan, windows: WindowRange) -> ReplayRequest:
    """Returns a request that computes windows with the options and the start state of the recorded
    computation.
    """
    request = ReplayRequest(
        plan.application,
        **PublishedStretch(plan.range, plan).replay_options(windows),
    )
    request = replace(request, first=windows.first, last=windows.last)
    if plan.start.source == "replay" and windows.first == plan.first:
        source = PurePath(plan.start.taken_from).parent.name
        request = replace(request, state_from=source, allow_other_code=True)
    return replace(request, allow_affected=plan.start.affects)


def _to_compute(plan: Plan, asked: WindowRange) -> WindowRange:
    """Returns the windows to compute for the requested windows.

    If the user chose the replay's start state, the windows start at the replay's start.
    """
    is_chosen = plan.start.source == "replay" or "--initial-state" in plan.options
    return WindowRange(plan.first, asked.last) if is_chosen and asked.first > plan.first else asked


def _keys(config: Config, plan: Plan, sample: _Sample) -> dict[str, list[str]]:
    """Returns the key of each input that is sampled.

    Raises:
        InputError: no input has a key.

    Rules: O142
    """
    if sample.fraction is None:
        return {}
    found = {}
    for entry in plan.inputs:
        columns = Table.open(config.stream_table(entry.stream)).schema.names
        declared = config.streams[entry.stream].keys if entry.stream in config.streams else []
        key = list(sample.key or declared)
        if key and set(key) <= set(columns):
            found[entry.stream] = key
    if not found:
        asked = f"the columns {', '.join(sample.key)}" if sample.key else "keys in its settings"
        raise InputError(
            f'cannot sample keys: no input of application "{plan.application}" has {asked}',
            hint="Give the key column: --key COLUMN",
        )
    return found


def _check_outputs(recorded: Plan, new: Plan, chosen: Sequence[str]) -> None:
    """Checks that the new code has all recorded outputs, or all chosen ones.

    A missing output would not be noticed otherwise.

    Raises:
        InputError: names the missing output.
    """
    gone = set(names_of(recorded.outputs)) - set(names_of(new.outputs))
    lacking = sorted(gone & set(chosen) if chosen else gone)
    if lacking:
        rest = ", ".join(names_of(new.outputs))
        raise InputError(
            f'the new code has no output "{lacking[0]}", but the recorded replay has it',
            hint=f"Compare only outputs of the new code: --output {rest}",
        )
