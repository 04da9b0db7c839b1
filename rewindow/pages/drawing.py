"""Renders the templates of all pages with one style sheet. Each page is self-contained."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from rewindow.inspection.next_steps import cause
from rewindow.windows import describe_seconds

SCRIPTS = ("theme.js", "page.js", "live.js")
"""All scripts of the pages."""


def draw(template: str, **values: Any) -> str:
    """Returns a page as HTML. Values are escaped as text, and a missing value is a bug."""
    return _environment().get_template(template).render(**values)


@cache
def script(name: str) -> str:
    """Returns the text of a script, exactly as it is in a page."""
    return (resources.files("rewindow.pages") / "templates" / name).read_text()


def with_live_links(html: str) -> str:
    """Returns a page of a file with its links to pages that exist only in Airflow.

    A template writes such a link as `<a data-live="...">`, which is not a link in a file.
    """
    return html.replace(' data-live="', ' href="')


def template_environment(*, autoescape: bool) -> Any:
    """Returns an environment for the templates of this package."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("rewindow.pages"),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


@cache
def _environment() -> Any:
    environment = template_environment(autoescape=True)
    environment.globals["script"] = script
    environment.filters |= {
        "number": _number,
        "clock": _clock,
        "minute": _minute,
        "seconds": _seconds,
        "ranges": _ranges,
        "cause": cause,
    }
    return environment


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def _clock(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else ""


def _minute(value: object) -> object:
    """Returns a time rounded down to the minute. Any other value is unchanged."""
    return f"{value:%Y-%m-%d %H:%M}Z" if isinstance(value, datetime) else value


def _seconds(value: float | None) -> str:
    return "–" if value is None else describe_seconds(value)


def _ranges(ranges: Iterable[object]) -> str:
    return ", ".join(map(str, ranges))
