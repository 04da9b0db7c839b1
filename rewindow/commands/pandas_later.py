"""Keeps pyarrow from importing pandas where nobody uses it: 0.3 s of the 1.4 s that a verb takes.

pyarrow looks for pandas once, with the first array that it makes: to know a pandas value if it is
given one. It has no setting for that. So it is made to look at a moment at which there is no
pandas, and goes without. What converts to or from pandas asks again, and finds it.
docs/decisions/0008 has the figures; a test fails when this can go.
"""

from __future__ import annotations

import sys


def leave_pandas_out() -> None:
    """Lets pyarrow look for pandas in vain, if it is imported and has not looked yet.

    Call it before there are threads: another one's import of pandas would fail at this moment.
    """
    if "pyarrow" not in sys.modules or "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        sys.modules["pyarrow"].array([])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """An import hook that knows of no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError(name)
