"""Patterns of odd English, each with a plain replacement.

Readers found these constructions odd. A pattern may miss some of them, but it must not reject plain
sentences, so `unless` lists ordinary uses of the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Pattern:
    """A construction to avoid.

    Args:
        name: short name, used on the command line and in the baseline.
        instead: words to write in its place.
        find: regular expression for the construction. A space matches any whitespace.
        unless: regular expression for ordinary uses. A match of `find` that overlaps one does
            not count.
    """

    name: str
    instead: str
    find: str
    unless: str = ""

    @cached_property
    def _find(self) -> re.Pattern[str]:
        return _compiled(self.find)

    @cached_property
    def _unless(self) -> re.Pattern[str] | None:
        return _compiled(self.unless) if self.unless else None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields start and end of each use of the construction in a text."""
        ordinary: list[tuple[int, int]] | None = None
        for match in self._find.finditer(text):
            if ordinary is None:
                ordinary = (
                    [other.span() for other in self._unless.finditer(text)] if self._unless else []
                )
            if not any(start < match.end() and match.start() < end for start, end in ordinary):
                yield match.span()


def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression.replace(" ", r"\s+"), re.IGNORECASE)


_SENTENCE_START = r"(?:\A\s*|(?<=[.!?]\s)|(?<=\n\n)|(?<=[-*]\s))"
_BE = r"(?:is|are|was|were|be|been)"
_PERSON = r"(?:you|we|they|people|users?|readers?|maintainers?|author|who)"

PATTERNS = (
    Pattern(
        "says",
        "reports, shows, lists, returns, logs, warns, documents",
        r"\b(?:says?|said|tells?|told)\b",
        unless=rf"\b{_PERSON} (?:can |may |should |must )?(?:say|said|tell|told)\b"
        r"|\bthat is to say\b|\b(?:tells?|told)(?: \w+){0,3} apart\b",
    ),
    Pattern("begins", "starts, started", r"\b(?:begins|began|begun)\b"),
    Pattern(
        "opens_with_what",
        "name the thing: rows that arrived late, callers that ...",
        rf"{_SENTENCE_START}(?:what|whoever)\b(?![^.!?]*\?)",
        unless=r"\bwhat's new\b",
    ),
    Pattern(
        "lies",
        "is in, is stored in, is located at",
        r"\b(?:lies|lie)\b",
        unless=r"\b(?:lies|lie) between\b",
    ),
    Pattern(
        "nobody",
        "no reader, another process, the caller, a user",
        r"\b(?:nobody|somebody|whoever)\b",
    ),
    Pattern(
        "behind",
        "after",
        r"\bbehind\b",
        unless=r"\b(?:leav(?:e|es|ing)|left)(?: [^\s.;]+){0,6} behind\b"
        r"|\b(?:lag|lags|lagged|lagging|fall|falls|fell) behind\b"
        r"|\bbehind (?:(?:a|an|the|its|your) )?(?:[\w']+ )?"
        r"(?:proxy|proxies|firewall|gateway|balancer|login|scenes|flag)\b",
    ),
    Pattern(
        "is_no",
        "is not a",
        rf"\b{_BE} no\b(?!-)",
        unless=rf"\bthere(?: \w+)? {_BE} no\b"
        rf"|\b{_BE} no (?:longer|more|less|fewer|later|earlier|\w+er than)\b",
    ),
    Pattern(
        "goes_on",
        "continues, resumes",
        r"\b(?:go|goes|went|gone) on\b",
        unless=r"\b(?:go|goes|went|gone) on (?:top|disk|a|an|the|its|one)\b",
    ),
    Pattern("beside", "alongside, in addition to, next to", r"\bbeside\b"),
    Pattern(
        "is_there",
        "exists, is present, existing",
        rf"\b{_BE}(?: already| still| not| all| only)? there\b(?![-'])",
        unless=rf"\b{_BE} there (?:a|an|any|no|more|other)\b",
    ),
    Pattern("anew", "again, from scratch", r"\banew\b"),
    Pattern("comma_else", "; otherwise ...", r"[,;] else\b(?! if\b)"),
    Pattern(
        "gives",
        "returns, creates, accepts, reads",
        rf"{_SENTENCE_START}(?:gives|makes|takes)\b"
        r"|(?:`|\bit|\bfunction|\bcall|\bmethod|\bverb) (?:gives|makes|takes)\b",
        unless=r"\bhow (?:long|much|many)(?: \w+){1,3} takes\b"
        r"|\btakes (?:part|place|effect|over|up|as|longer|long|about|more|less)\b"
        r"|\btakes (?:some|several|twice|half)\b"
        r"|\btakes (?:\d|a third\b|an? (?:\w+ )?(?:second|minute|hour|day|while)\b)"
        r"|\bmakes (?:sure|sense)\b|\bgives up\b",
    ),
    Pattern(
        "comes_out",
        "the result, the outcome",
        r"\b(?:come|comes|came|coming) out\b|\b(?:become|became) of\b"
        r"|\b(?:what|whatever) (?:came|comes|has come|has become|becomes) of\b",
    ),
    Pattern(
        "of_its_own",
        "custom, separate, internal",
        r"\bof (?:one's|its|their|our|your|his|her|my) own\b|\bof ours\b",
    ),
    Pattern(
        "so_many",
        "the exact quantity",
        r"\b(?:so many|so much|as many)\b",
        unless=r"\bas many(?: [^\s,;.]+){0,6} as\b",
    ),
    Pattern(
        "holds",
        "is guaranteed, is true, applies",
        r"\b(?:that|this|same|rule|promise|law|invariant)(?: also| still| always| only)? holds"
        r"(?=\s*[.,;)]|\s*\Z| (?:for|where|when|whenever|if|too|also|as well|even|whatever)\b)"
        r"|\b(?:it|which)(?: also| still| always| only)? holds"
        r"(?= (?:for|where|when|whenever|if|even|whatever)\b)",
    ),
    Pattern(
        "to_be_had",
        "available, visible, must",
        r"\bto be (?:had|seen)\b|\b(?:is|are|was|were) to be\b"
        r"|\b(?:it|that|which|what|they|nothing) (?:is|are|was|were) to \w+\b",
        unless=r"\bthat is to say\b",
    ),
    Pattern(
        "in_the_place",
        "replaces",
        r"\bin the place of\b"
        r"|\b(?:put|puts|putting)(?: [^\s.;]+){0,6} in (?:the|its|their) place\b",
    ),
    Pattern(
        "passive",
        "name the actor: `plan` rejects ..., the recorder reads ...",
        rf"\b{_BE}(?: not| never| always| only)? "
        r"(?:refused|taken|asked|believed|looked|waited|thrown|put|thought|wanted)\b",
        unless=r"\b(?:refused|taken|asked|believed|put)(?: [^\s.;,]+){0,8} by \w+",
    ),
)
