"""Keeps pyarrow from importing pandas if it is not needed, which takes 0.3 s of the 1.4 s of a
verb.

pyarrow looks for pandas once, with the first array that it creates, so that it can recognize pandas
values. It has no setting to prevent that. So it is made to look while pandas cannot be imported.
Conversions to or from pandas look again, and find it. docs/decisions/0008 has the measurements; a
test fails when this module is no longer needed.
"""

from __future__ import annotations

import sys


def leave_pandas_out() -> None:
    """Hides pandas from pyarrow, if pyarrow is imported and has not searched for it yet.

    Call it before threads are started: an import of pandas in another thread would fail at this
    moment.
    """
    if "pyarrow" not in sys.modules or "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        sys.modules["pyarrow"].array([])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """An import hook that does not find pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError(name)
