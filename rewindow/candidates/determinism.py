"""`rewindow check-determinism`: computes a sample in several ways, which must not change the output
of any port.

The ways: all windows in one commit group; in small groups; in one group with the inputs' rows in
another order and other partitions. Every port is staged and compared, so the first one that differs
identifies its operator.

Rules: R79, R86
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Unpack

from rewindow.candidates.temporary import temporary_replays
from rewindow.certificate import Certificate, certify
from rewindow.errors import NotDeterministicError
from rewindow.launcher.loop import run_attempts
from rewindow.ledger import Ledger
from rewindow.ledger.replays import SAMPLE
from rewindow.planning import PlanPreview, create_replay, draft_plan
from rewindow.planning.request import ReplayOptions, ReplayRequest
from rewindow.progress.listener import Listener, Silent
from rewindow.sequences import quantity
from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

SAMPLE_ROWS = 3
SAMPLE_WINDOWS = 48


class SampleWay(NamedTuple):
    """A way to compute the sample.

    Attributes:
        words: difference from the first way.
        sample_seed: seed for the order of the rows; 0 keeps the recorded order.
        why: meaning of a difference.
        hint: where to look for its cause.
    """

    words: str
    group_windows: int
    sample_seed: int
    why: str
    hint: str


@dataclass(frozen=True)
class Determinism:
    """The result of a successful check, in which every port was the same in all ways.

    Attributes:
        windows: first and last window of the sample.
        seed: determines group borders and order of rows; the same seed repeats the check.
        ways: the text of each way, with the verdict of its comparison with the first one.
    """

    application: str
    windows: tuple[int, int]
    seed: int
    ways: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for programs (docs/json.md)."""
        first, last = self.windows
        ways = [{"way": words, "verdict": verdict} for words, verdict in self.ways]
        return {
            **asdict(self),
            "windows": last - first + 1,
            "first": first,
            "last": last,
            "ways": ways,
        }


def check_determinism(
    config: Config,
    application: str,
    *,
    sample_windows: int = SAMPLE_WINDOWS,
    seed: int | None = None,
    listener: Listener | None = None,
    **replay_options: Unpack[ReplayOptions],
) -> Determinism:
    """Replays the first windows of a range in several ways and compares every port of every window.

    Args:
        config: current settings.
        application: its name.
        sample_windows: number of windows, from the first of the range on.
        seed: determines group borders and order of rows; by default a new one.
        listener: receives the progress.
        replay_options: see plan.

    Raises:
        NotDeterministicError: names the first operator, port and window that differ, and the cause.
        RewindowError: see plan and replay.

    Rules: R86
    """
    request = ReplayRequest(application, **replay_options)
    return verify_sample(
        config,
        request,
        draft_plan(config, request),
        windows=sample_windows,
        listener=listener,
        seed=seed,
    )


def verify_sample(
    config: Config,
    request: ReplayRequest,
    draft: PlanPreview,
    windows: int,
    listener: Listener | None = None,
    seed: int | None = None,
) -> Determinism:
    """Runs the same check for a request that is already planned. Its replays are deleted
    afterwards.

    They run in the mode exactly once unless operators declare another mode, because then no other
    mode is allowed.

    Raises:
        NotDeterministicError: see check_determinism.

    Rules: R3
    """
    told = listener or Silent()
    plan = draft.plan
    seed = random.SystemRandom().randrange(1, 10_000) if seed is None else seed
    last = min(plan.last, plan.first + max(windows, 2) - 1)
    count = last - plan.first + 1
    is_declared = any(node.mode for node in draft.loaded.app.nodes.values())
    sample = replace(
        request,
        first=plan.first,
        last=last,
        from_time=None,
        to_time=None,
        checkpoint_windows=count,
        mode=request.mode if is_declared else "exactly_once",
        reason=SAMPLE,
    )
    again = f"rewindow check-determinism {plan.application} --seed {seed}"
    with temporary_replays(config, again) as ids:
        runs = _Runs(config, sample, told, ids)
        first, *others = ways(count, seed)
        base = runs.run(first)
        verdicts = []
        for way in others:
            certificate = certify(config, base, runs.run(way))
            if not certificate.equal:
                raise different(
                    config, certificate, base, way=runs.why(first, base, way), seed=seed
                )
            verdicts.append((way.words, certificate.verdict))
    logger.info(
        f"verified: {count} windows with {quantity(runs.tuples, 'tuple')} are {_worst(verdicts)} "
        "in one group, "
        f"{', '.join(w for w, _ in verdicts)}"
    )
    return Determinism(plan.application, (plan.first, last), seed, ways=tuple(verdicts))


def ways(count: int, seed: int) -> list[SampleWay]:
    """Returns the ways to compute the sample.

    The first way uses one group. All others must have the same results.
    """
    size = random.Random(seed).randint(max(1, count // 8), max(1, count // 2))
    return [
        SampleWay(
            "in one group",
            count,
            0,
            why="differs when it is computed again in the same way",
            hint="The operator may use a clock or random numbers: `rewindow validate` lists such "
            "lines. Use arrived_at and rewindow.operators.seeds.random_number instead.",
        ),
        SampleWay(
            f"in groups of {size}",
            size,
            0,
            why="depends on where commit groups end",
            hint="The operator may use an aggregate, a distinct or an ordering over the whole "
            "frame: group by window_id, and keep values that span windows in the state. If only "
            "floats differ, declare a tolerance of the output.",
        ),
        SampleWay(
            "with its rows in another order",
            count,
            seed,
            why="depends on the order of rows, or on how Spark partitions them",
            hint="The operator may use first, collect_list or row_number with ties: sort by "
            "unique columns, such as offset. If only floats differ, declare a tolerance of the "
            "output.",
        ),
    ]


@dataclass
class _Runs:
    """The replays of one sample. Their ids are added to a list."""

    config: Config
    sample: ReplayRequest
    told: Listener
    ids: list[str]
    tuples: int = 0

    def run(self, way: SampleWay) -> str:
        """Replays the sample in a way and returns the id of the replay."""
        self.ids.append(f"verify-{uuid.uuid4().hex[:8]}")
        logger.info(f"verify: windows {self.sample.first} to {self.sample.last} {way.words}")
        request = replace(self.sample, group_windows=way.group_windows, sample_seed=way.sample_seed)
        plan = create_replay(self.config, replace(request, replay_id=self.ids[-1]))
        self.tuples = plan.input_tuples
        run_attempts(self.config, self.ids[-1], self.told)
        return self.ids[-1]

    def why(self, first: SampleWay, base: str, way: SampleWay) -> SampleWay:
        """Returns the way that explains a difference.

        If the first way does not repeat its own results, it is the first way.
        """
        return way if certify(self.config, base, self.run(first)).equal else first


def _worst(verdicts: Sequence[tuple[str, str]]) -> str:
    """Returns the weakest verdict.

    It is "equal", unless floats are equal only within a tolerance.
    """
    return max((verdict for _, verdict in verdicts), key=len)


def _sample(rows: Sequence[Any]) -> str:
    return ", ".join(map(str, rows[:SAMPLE_ROWS])) or "none"


def different(
    config: Config,
    certificate: Certificate,
    base: str,
    way: SampleWay,
    seed: int,
) -> NotDeterministicError:
    """Returns the error about the first port that differs, with example rows of each side."""
    found = certificate.first_difference
    assert found is not None, "a difference is reported"
    plan = Ledger.open(config.ledger_url).replays.get(base).read_plan()
    port = next(output.port for output in plan.staged if output.name == found["output"])
    rows = f"Only in one group: {_sample(found['rows_a'])}; Only {way.words}: "
    rows += _sample(found["rows_b"])
    return NotDeterministicError(
        f'port "{port}" of operator "{found["operator"]}" {way.why}: first in window '
        f"{found['window']}",
        detail=f"{rows}. To repeat the check, use --seed {seed}.",
        hint=way.hint,
    )
