"""Renders questions to a user as Markdown. Texts of users in it are not interpreted as markup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rewindow.pages.drawing import template_environment
from rewindow.publication.evidence import PublicationEvidence
from rewindow.publication.objections import flaw_line
from rewindow.sequences import quantity

_ROWS_MAX = 5
_LINES_MAX = 8


def publication_question(
    evidence: PublicationEvidence,
    links: Mapping[str, str],
    body: str = "",
) -> str:
    """Returns the question whether a replay should be published.

    Args:
        evidence: facts about the replay.
        links: names and addresses of the pages about the replay.
        body: a text of the DAG's author, which is shown below the first line.
    """
    template = _environment().get_template("question.md")
    text = template.render(
        evidence=evidence,
        headline=headline(evidence),
        reason=evidence.plan.reason,
        links=links,
        body=body,
        rows_max=_ROWS_MAX,
        lines_max=_LINES_MAX,
    )
    return str(text).strip() + "\n"


def headline(evidence: PublicationEvidence) -> str:
    """Returns the most important fact for the decision, in one line."""
    whole = quantity(len(evidence.plan.range), "window")
    flaws = {
        "lost": evidence.flawed("lost"),
        "partial, that is, lost in some outputs": evidence.partial,
        "affected by lost windows": evidence.flawed("affected"),
        "computed without all of their input": evidence.flawed("missing"),
    }
    parts = [f"{count:,} {flaw}" for flaw, count in flaws.items() if count]
    failed = sum(finding.blocks for finding in evidence.findings)
    warned = len(evidence.findings) - failed
    # A suite need not have a check for lost windows, so the gate may pass nevertheless.
    gate = "The gate has passed"
    if failed:
        gate = f"The gate has failed in {quantity(failed, 'check')}"
    elif warned:
        gate += f" with {quantity(warned, 'warning')}"
    if parts:
        return (
            f"Of {whole}: {'; '.join(parts)}. Their rows are missing or can be wrong. {gate}, but "
            "its suite may have no check for lost windows."
        )
    if evidence.objections:
        return f"{quantity(len(evidence.objections), 'objection')}, see below. {gate}."
    return f"{whole}: none is lost, partial or affected. {gate}."


def verbatim(text: str) -> str:
    """Returns a text as a Markdown code block. No content of the text can end the block.

    >>> print(verbatim("a ``` b"))
    ````text
    a ``` b
    ````
    """
    lines = ["".join(map(_shown, line)) for line in re.split(r"\r\n|\n|\r", text)]
    longest = max(map(len, re.findall(r"[`~]+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def _shown(letter: str) -> str:
    """Returns a character, or a replacement if it is invisible, such as characters that change the
    direction of text.
    """
    return letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}"


@cache
def _environment() -> Any:
    # Markdown is not HTML, so nothing is escaped here: texts of users go through `verbatim`.
    environment = template_environment(autoescape=False)
    environment.filters |= {
        "flaw_line": flaw_line,
        "quantity": quantity,
        "verbatim": verbatim,
        "window_count": lambda parts: sum(last - first + 1 for first, last in parts),
    }
    return environment
