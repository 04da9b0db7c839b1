"""What a faster operator would change: its own time in every window is divided, and the windows are
evaluated again (L44, L45).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from rewindow.errors import InputError
from rewindow.latency.common_window import EndedLatency, evaluate
from rewindow.latency.rows import Bools, Ints

_FACTOR_MAX = 1_000_000
_FASTER = re.compile(r"(?P<name>.+)=(?P<factor>\d{1,7}(\.\d{1,6})?)[xX]?", re.ASCII)
_HINT = "Write it as in --faster count=2x, with a factor from 1 to 1000000."


def parse_faster(texts: Sequence[str]) -> dict[str, Fraction]:
    """Returns factors by operator from texts such as `count=2x`.

    Raises:
        InputError: a text has another form.
    """
    factors = {}
    for text in texts:
        match = _FASTER.fullmatch(text)
        if match is None:
            raise InputError(f'"{text}" is not OPERATOR=FACTORx', hint=_HINT)
        factors[match["name"]] = Fraction(match["factor"])
    return factors


def what_if(found: EndedLatency, faster: Mapping[str, Fraction | int]) -> EndedLatency:
    """Returns the latencies if operators had been faster.

    An operator's own time in a window is its end time less the latest of its upstream operators';
    it is divided, rounded down, and the changed end times are passed on through the graph. Windows
    whose critical path has none of these operators stay as they are (L44).

    Args:
        found: the latencies as recorded.
        faster: by operator how many times faster; all partitions of it are. An input operator has
            no own time, so that nothing changes with it.

    Raises:
        InputError: an operator is unknown, or a factor is below 1 or above 1,000,000.
    """
    layout = found.layout
    factors: dict[int, Fraction] = {}
    for name, given in faster.items():
        factor = Fraction(given)
        large = max(abs(factor.numerator), factor.denominator) > _FACTOR_MAX
        if factor < 1 or large:
            raise InputError(f'operator "{name}" cannot be {given} times faster', hint=_HINT)
        for n in layout.chosen(name):
            factors[n] = factor
    is_changed = found.paths.on_path[sorted(factors)].any(axis=0)
    end_ms = found.end_ms.copy()
    for n in layout.order:
        before, has_upstream = _latest(layout.upstream[n], found.end_ms, found.is_known)
        after, _ = _latest(layout.upstream[n], end_ms, found.is_known)
        own = found.end_ms[n] - before
        if n in factors:
            factor = factors[n]
            # A clock that is wrong can make an own time negative; a factor cannot put that right.
            own = np.where(own > 0, own * factor.denominator // factor.numerator, own)
        moves = is_changed & has_upstream & found.is_known[n]
        end_ms[n] = np.where(moves, after + own, end_ms[n])
    return evaluate(
        layout,
        found.windows,
        end_ms,
        found.is_known,
        found.has_started,
        found.faults,
        found.average_samples,
    )


def _latest(upstream: Sequence[int], end_ms: Ints, is_known: Bools) -> tuple[Ints, Bools]:
    """Returns the latest known end time of some operators, and whether any is known."""
    latest = np.zeros(end_ms.shape[1], dtype=np.int64)
    has_any = np.zeros(end_ms.shape[1], dtype=bool)
    for n in upstream:
        is_later = is_known[n] & (~has_any | (end_ms[n] > latest))
        latest[is_later] = end_ms[n][is_later]
        has_any |= is_known[n]
    return latest, has_any
