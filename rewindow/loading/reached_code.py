"""Finds the code in an application's files that a piece of code uses by name.

A file is divided into pieces, one for each top-level statement. A piece reaches the pieces that
bind a name which it uses, and through an import those of another file. Code that uses a star
import, `getattr`, `globals` or `exec` may reach anything in its file, so the whole file counts.
"""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from types import CodeType

from rewindow.loading.code_versions import code_lines
from rewindow.version import PACKAGE

Use = tuple[str, ...]
"""A name and the attributes taken from it: `limits.LOW` is ("limits", "LOW")."""
WHOLE: Use = ("*",)
"""Everything in a file."""
_ANY_NAME = frozenset(
    [
        "getattr",
        "setattr",
        "delattr",
        "globals",
        "locals",
        "vars",
        "eval",
        "exec",
        "__dict__",
        "__globals__",
        "f_globals",
        "__subclasses__",
        "__init_subclass__",
    ]
)
"""Names with which code can reach names that it does not mention."""
_ANY_FILE = frozenset(["__import__", "importlib", "pkgutil", "runpy", "builtins"])
"""Names with which code can reach files that it does not mention."""
_LOADS = frozenset(["LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"])
_DEFINITION = (
    ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.ClassDef
    | ast.Assign
    | ast.AnnAssign
    | ast.AugAssign
)


@dataclass(frozen=True, eq=False)
class Piece:
    """A top-level statement of a file.

    Attributes:
        code: its text, without comments and docstrings.
        uses: names of the file that it uses.
        binds: names that it binds.
        imports: its imports, unless it is only an import.
        decorators: names of decorators in it.
        acts: whether it may do more than bind names when it runs.
    """

    code: str
    uses: set[Use]
    binds: set[str]
    imports: list[Use]
    decorators: set[str]
    acts: bool


Step = tuple[str, Use | Piece]
"""A starting point: a piece of a module, or a name in a module."""


@dataclass(frozen=True)
class CutFile:
    """A file that is divided into pieces.

    Attributes:
        aliases: name to the targets that it is imported from; `*` to the modules from which all
            names are imported.
    """

    pieces: list[Piece]
    aliases: Mapping[str, list[Use]]


class CutFiles(dict[str, CutFile]):
    """The files of an application by module name, and the code that each file can call."""

    def reached(self, start: Step) -> list[str]:
        """Returns the texts of the code that is used, and the names that this code imports from
        elsewhere.

        The order of texts follows the uses, so the result changes if two functions swap their
        names.
        """
        texts: list[str] = []
        todo = [start]
        seen: set[Step] = set()
        while todo:
            step = todo.pop()
            if step not in seen:
                seen.add(step)
                steps, found = self._next(*step)
                todo += steps
                texts += found
        return texts

    def acting(self) -> Iterator[Step]:
        """Yields the pieces that can change other pieces when a file is imported.

        These are calls, changes of an object, and definitions with a decorator of the application.
        """
        for module, file in self.items():
            for piece in file.pieces:
                if piece.acts or any(self._next(module, (name,))[0] for name in piece.decorators):
                    yield module, piece

    def _next(
        self,
        module: str,
        step: Use | Piece,
    ) -> tuple[list[Step], list[str]]:
        """Returns the next steps from a step, and the texts that it adds."""
        if isinstance(step, Piece):
            steps: list[Step] = list(zip(repeat(module), sorted(step.uses), strict=False))
            targets = step.imports
            texts = [step.code]
        else:
            file = self[module]
            pieces = [piece for piece in file.pieces if step[0] in piece.binds]
            targets = [(*target, *step[1:]) for target in file.aliases.get(step[0], ())]
            texts = []
            if not pieces and not targets:
                if hasattr(builtins, step[0]) or step[0].endswith("__"):
                    targets = [step]
                else:  # The name may refer to anything in the file.
                    pieces = file.pieces
                    targets = [*chain(*file.aliases.values())]
            steps = list(zip(repeat(module), pieces, strict=False))
        for target in targets:
            own = self._own(target)
            steps += own
            texts += [] if own else [".".join(target)]
        return steps, texts

    def _own(self, target: Use) -> list[Step]:
        """Returns the steps in the application's files to which an imported name leads."""
        if target[0] in _ANY_FILE or target[:2] == ("sys", "modules"):
            return list(zip(self, repeat(WHOLE), strict=False))
        for end in range(len(target), 0, -1):
            module = ".".join(target[:end])
            if module in self:
                return [(module, target[end:] or WHOLE)]
        return []


def sources_of(paths: Mapping[str, Path]) -> CutFiles:
    """Returns the files of an application, given the names of their modules."""
    sources = CutFiles()
    for module, path in sorted(paths.items()):
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        source = path.read_bytes()
        # A file in another language counts as a whole.
        code = source if path.suffix == ".py" else repr(source).encode()
        sources[module] = _source_file(code, package)
    return sources


@lru_cache(maxsize=1024)
def _source_file(source: bytes, package: str) -> CutFile:
    _, lines = code_lines(source)
    pieces = []
    aliases: dict[str, list[Use]] = {}
    for node in ast.parse(source).body:
        targets = [*import_targets(node, package)]
        for name, target in targets:
            aliases.setdefault(name, []).append(target)
        if not targets:
            pieces.append(_piece(node, lines, package))
    return CutFile(pieces, aliases)


def _piece(
    node: ast.stmt,
    lines: Mapping[int, str],
    package: str,
) -> Piece:
    # Without the file's `annotations` of __future__, so that annotations are code too.
    module = ast.Module([node], [])
    compiled = compile(module, "", "exec", dont_inherit=True)
    uses, binds = _names(compiled)
    # Such imports do not run. Only type checkers read them.
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return Piece("", set(), binds, [], set(), acts=False)
    imports: list[Use] = []
    named: set[str] = set()
    first = node.lineno
    for inner in ast.walk(node):
        for _, target in import_targets(inner, package):
            imports.append(target)
        for decorator in getattr(inner, "decorator_list", ()):
            first = min(first, decorator.lineno)
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            named.update(map(ast.unparse, ast.walk(function)))
    code = "\n".join(lines[line] for line in lines if first <= line <= (node.end_lineno or first))
    named.intersection_update(map(itemgetter(0), uses))
    acts = code != "" and not (binds and isinstance(node, _DEFINITION))
    return Piece(
        code,
        uses,
        binds,
        imports,
        named,
        acts=acts,
    )


def _names(code: CodeType) -> tuple[set[Use], set[str]]:
    """Returns the names of its file that a piece of code uses, and the names that it binds."""
    uses: set[Use] = set()
    binds: set[str] = set()
    codes = [code]
    for part in codes:
        codes += (constant for constant in part.co_consts if isinstance(constant, CodeType))
        stored: set[str] = set()
        found: set[Use] = set()
        use: Use = ()
        for step in dis.get_instructions(part):
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and use:
                use = (*use, step.argval)
            else:
                found.add(use)
                use = (step.argval,) if step.opname in _LOADS else ()
            if step.opname == "STORE_NAME":
                stored.add(step.argval)
            elif step.opname == "STORE_GLOBAL":
                binds.add(step.argval)
        if part is code:
            binds |= stored
        else:  # Names stored in a class are its attributes.
            found = {use for use in found if stored.isdisjoint(use[:1])}
        uses |= found
        if not _ANY_NAME.isdisjoint(part.co_names):
            uses.add(WHOLE)
    return uses - {()}, binds


def import_targets(node: ast.AST, package: str = "") -> Iterator[tuple[str, Use]]:
    """Yields the names that an import binds, each with its target.

    A target in Rewindow has no module, because it can be moved.

    Args:
        node: a node of a tree; only an import yields anything.
        package: the package to which relative imports in it refer.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, tuple((alias.name if alias.asname else name).split("."))
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: 1 - node.level or None] if node.level else []
        parts += node.module.split(".") if node.module else []
        for alias in node.names:
            module = parts[:1] if parts[:1] == [PACKAGE.name] else parts
            yield alias.asname or alias.name, (*module, alias.name)
