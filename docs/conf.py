"""How Sphinx makes the site of these pages: `scripts/docs.sh`. It needs no network, and every
warning is an error.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from rewindow import errors  # noqa: E402
from rewindow.version import VERSION  # noqa: E402

project = "Rewindow"
author = "The Rewindow maintainers"
release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["rules/status.toml"]
html_theme = "furo"
html_title = "Rewindow"
html_copy_source = False
myst_enable_extensions = ["colon_fence", "substitution"]
myst_heading_anchors = 3
# A rule may say what a page of code would; pages of a folder need no place in a list.
suppress_warnings = ["toc.not_included"]
autodoc_mock_imports = ["airflow"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_ivar = (
    True  # else an attribute would be there twice: from "Attributes:", and as a member
)
pygments_style = "default"


def _catalogue() -> str:
    """Returns a table of all errors, a row each, below the error that it is one of."""
    rows = ["| error | raised when | exit code | tried again |", "|---|---|---|---|"]

    def add(kind: type[errors.RewindowError], depth: int) -> None:
        name = f"{'— ' * depth}`{kind.__name__}`"
        meaning = (inspect.getdoc(kind) or "").partition("\n")[0]
        rows.append(
            f"| {name} | {meaning} | {kind.exit_code} | {'yes' if kind.retryable else 'no'} |"
        )
        for below in kind.__subclasses__():
            if below.__module__ == errors.__name__:
                add(below, depth + 1)

    add(errors.RewindowError, 0)
    return "\n".join(rows)


myst_substitutions = {"errors": _catalogue()}
