"""Java classes and static methods that py4j looks up once, not on every call.

Each call of a PySpark function asks the JVM what a name is, and for a short name such as
`PythonUtils` the JVM searches every jar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember_java_names() -> None:
    """Caches the classes and static methods that py4j's objects look up."""
    for owner in (JVMView, JavaPackage, JavaClass):
        owner.__getattr__ = _remembered(owner.__getattr__)


def _remembered(find: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def find_once(owner: Any, name: str) -> Any:
        found = find(owner, name)
        # A package stays unknown: it may be a class that is imported later. A static field may
        # change.
        if isinstance(found, JavaClass | JavaMember):
            owner.__dict__[name] = found
        return found

    return find_once
