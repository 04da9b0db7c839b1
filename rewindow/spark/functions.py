"""The functions and `Window` of pyspark, which are imported when they are first used.

Operators can import them at the top of their modules. A command that starts no Spark, such as
`rewindow validate`, still does not load pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Window
    from pyspark.sql import functions as F
else:

    class LazyImport:
        """Imports a module, or a class of it, when one of its attributes is first read."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module = module
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            module = import_module(self._module)
            source = getattr(module, self._name) if self._name else module
            return getattr(source, attribute)

        def __reduce__(self) -> tuple[type, tuple[str, str]]:
            # Functions for Spark's workers are pickled together with the globals that they use.
            return LazyImport, (self._module, self._name)

    F = LazyImport("pyspark.sql.functions")
    Window = LazyImport("pyspark.sql", "Window")

__all__ = ["F", "Window"]
