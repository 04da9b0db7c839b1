"""Computes the effect of a faster operator.

The time that the operator needs is divided in each window whose critical path includes it, and
these windows are evaluated again.

Rules: L44, L45
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from rewindow.errors import InputError
from rewindow.latency.common_window import EndedLatency, evaluate
from rewindow.latency.graph import Layout
from rewindow.latency.rows import Bools, Ints
from rewindow.names import did_you_mean

_FACTOR_MAX = 1_000_000
_FASTER = re.compile(r"(?P<name>.+)=(?P<factor>\d{1,7}(\.\d{1,6})?)[xX]?", re.ASCII)
_NEVER = -(1 << 62)
_HINT = "Write it as in --faster count=2x, with a factor from 1 to 1000000."


def parse_faster(texts: Sequence[str]) -> dict[str, Fraction]:
    """Returns factors by operator from texts such as `count=2x`.

    Raises:
        InputError: a text is malformed, or an operator is named twice.
    """
    factors: dict[str, Fraction] = {}
    for text in texts:
        match = _FASTER.fullmatch(text)
        if match is None:
            raise InputError(f'--faster must be OPERATOR=FACTORx, not "{text}"', hint=_HINT)
        if match["name"] in factors:
            raise InputError(f'--faster names operator "{match["name"]}" twice')
        factors[match["name"]] = Fraction(match["factor"])
    return factors


def what_if(found: EndedLatency, faster: Mapping[str, Fraction | int]) -> EndedLatency:
    """Returns the latencies of the same run with faster operators.

    An operator's own time in a window is its end time minus the latest end time upstream. The own
    time is divided by the factor and rounded down, and the changed end times are passed on through
    the graph. Windows whose critical path includes none of these operators are unchanged.

    Args:
        found: the latencies as recorded.
        faster: factor of each operator; it applies to all its partitions. An input operator has no
            own time, so a factor has no effect on it.

    Raises:
        InputError: an operator is unknown, or a factor is below 1 or above 1,000,000.

    Rules: L44
    """
    ends = found.ends
    factors: dict[int, Fraction] = {}
    for name, given in faster.items():
        factor = Fraction(given)
        if not 1 <= factor.numerator / factor.denominator <= _FACTOR_MAX:
            raise InputError(f'operator "{name}" cannot be {given} times as fast', hint=_HINT)
        factors |= dict.fromkeys(_chosen(ends.layout, name), factor)
    is_changed = found.paths.on_path[sorted(factors)].any(axis=0)
    end_ms = ends.end_ms.copy()
    for n in ends.layout.order:
        upstream = ends.layout.upstream[n]
        before = _latest(
            ends.end_ms,
            ends.is_known,
            upstream,
        )
        own = ends.end_ms[n] - before
        if n in factors:
            factor = factors[n]
            # If a wrong clock makes the own time negative, the factor is not applied.
            own = np.where(
                own > 0,
                own * factor.denominator // factor.numerator,
                own,
            )
        moves = is_changed & ends.is_known[n] & (before > _NEVER)
        moved = _latest(end_ms, ends.is_known, upstream) + own
        end_ms[n] = np.where(moves, moved, end_ms[n])
    return evaluate(replace(ends, end_ms=end_ms))


def _latest(end_ms: Ints, is_known: Bools, upstream: Sequence[int]) -> Ints:
    """Returns the latest known end time of the given operators; _NEVER where none is known."""
    known = np.where(
        is_known[upstream],
        end_ms[upstream],
        _NEVER,
    )
    latest: Ints = known.max(axis=0, initial=_NEVER)
    return latest


def _chosen(layout: Layout, name: str) -> list[int]:
    """Returns the physical operators for a name, which are one partition or all partitions of an
    operator.
    """
    found = []
    for n, own in enumerate(layout.names):
        if name in (own, layout.keys[n][0], layout.logical[n]):
            found.append(n)
    if not found:
        raise InputError(
            f'operator "{name}" is not in the graph',
            hint=f"{did_you_mean(name, layout.names)}Available operators: "
            f"{', '.join(layout.names)}.",
        )
    return found
