"""Decides which measures have the same meaning in Spark and in DataFusion, and translates them for
Spark.

A replay computes measures with Spark, in the same pass as its digests. The gate computes measures
that are not stored with DataFusion. Both must have the same result, so Spark only gets aggregates
of the kinds listed in `expectations/README.md`. Anything that this module does not know, such as a
function or `/`, is left to the gate: computing a measure twice is better than getting different
results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rewindow.operators.columns import within_reach

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^'\\]*'(?!'))|(?P<quoted>"[^"`]+")|(?P<number>\d+(?:\.\d+)?(?![\w.]))"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign><>|!=|<=|>=|-(?!-)|[+*%=<>(),]))"""
)
_FUNCTIONS = frozenset(
    ("count", "sum", "avg", "min", "max", "abs", "coalesce", "isnan", "epoch_us", "cast", "filter")
)
_TYPES = frozenset(("bigint", "double", "decimal"))
_WORDS = _TYPES | frozenset(
    ("where", "and", "or", "not", "is", "null", "distinct", "from", "in", "between", "like")
)
_WORDS |= frozenset(("case", "when", "then", "else", "end", "as", "true", "false"))
_BINDS_LOOSER = frozenset(
    ("and", "or", "is", "in", "between", "like", "=", "<>", "!=", "<", ">", "<=", ">=")
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else self.text


def for_spark(sql: str, columns: pa.Schema) -> str | None:
    """Returns an aggregate translated for Spark; None if it could have another meaning there.

    Args:
        sql: SQL of a measure, with its values filled in.
        columns: columns of the rows.

    >>> for_spark('sum("Total" * 1.5)', pa.schema([("Total", pa.float64())]))
    'sum ( `Total` * 1.5D )'
    >>> for_spark("median(x)", pa.schema([("x", pa.float64())]))
    """
    tokens = _tokens(sql)
    if tokens is None:
        return None
    names = [_column(tokens, place, columns) for place in range(len(tokens))]
    if any(name is None for name in names) or not _alike(
        tokens,
        [columns.field(name).type for name in names if name],
    ):
        return None
    return _written(tokens, names, columns)


def counts_distinct(sql: str) -> bool:
    """Returns whether an aggregate counts distinct values.

    Spark would group the whole pass by these values.
    """
    return re.search(r"\(\s*distinct\b", sql, re.IGNORECASE) is not None


def _tokens(sql: str) -> list[_Token] | None:
    found = []
    place = 0
    while sql[place:].strip():
        match = _TOKEN.match(sql, place)
        if match is None:
            return None
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind]))
        place = match.end()
    return found


def _column(tokens: Sequence[_Token], place: int, columns: pa.Schema) -> str | None:
    """Returns the column that a token names.

    It is empty if the token is not a column, and None if its meaning is unknown.
    """
    token = tokens[place]
    if token.kind == "quoted":
        return token.text[1:-1] if token.text[1:-1] in columns.names else None
    if token.kind != "word":
        return ""
    calls = place + 1 < len(tokens) and tokens[place + 1].text == "("
    known = (calls and token.word in _FUNCTIONS) or token.word in _WORDS
    if known:
        return None if token.word in columns.names else ""
    return token.word if token.word in columns.names and not calls else None


def _alike(tokens: Sequence[_Token], kinds: Sequence[pa.DataType]) -> bool:
    """Returns whether both engines have the same result for the given types of columns."""
    words = {token.word for token in tokens}

    def is_some(*tests: Callable[[pa.DataType], bool]) -> bool:
        return any(any(map(test, kinds)) for test in tests)

    if words & {"min", "max"} and is_some(pa.types.is_floating) and "isnan" not in words:
        return False
    if words & {"sum", "avg"} and is_some(pa.types.is_float32, pa.types.is_float16):
        return False
    if "avg" in words and is_some(pa.types.is_decimal):
        return False
    return all(
        _ends_alone(tokens[place:])
        for place in range(len(tokens))
        if _is_distinct_from(tokens, place)
    )


def _is_distinct_from(tokens: Sequence[_Token], place: int) -> bool:
    return tokens[place].word == "from" and place > 0 and tokens[place - 1].word == "distinct"


def _ends_alone(rest: Sequence[_Token]) -> bool:
    """Returns whether the right side of `is distinct from` is followed only by the end of its
    parentheses.

    DataFusion includes everything that follows in the right side, Spark only operators with a
    higher precedence.
    """
    depth = 0
    for token in rest:
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            return True
        if depth == 0 and token.word in (
            "and",
            "or",
            "is",
            "in",
            "between",
            "like",
            "=",
            "<>",
            "!=",
            "<",
            ">",
            "<=",
            ">=",
        ):
            return False
    return True


def _written(
    tokens: Sequence[_Token],
    names: Sequence[str | None],
    columns: pa.Schema,
) -> str | None:
    """Returns the tokens in Spark's syntax: columns are quoted, decimal numbers are doubles, and
    `epoch_us` depends on its type.
    """
    parts = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        name = names[place]
        if token.word == "epoch_us" and not name:
            micros = _epoch_us(tokens, names, place, columns=columns)
            if micros is None:
                return None
            parts.append(micros)
            place += 4
            continue
        if name:
            parts.append(f"`{name}`")
        else:
            parts.append(
                f"{token.text}D" if token.kind == "number" and "." in token.text else token.text
            )
        place += 1
    return " ".join(parts)


def _epoch_us(
    tokens: Sequence[_Token],
    names: Sequence[str | None],
    place: int,
    columns: pa.Schema,
) -> str | None:
    """Returns `epoch_us(column)` for Spark; None if its argument is not a column."""
    name = names[place + 2] if len(tokens) > place + 3 and tokens[place + 3].text == ")" else None
    if not name:
        return None
    kind = columns.field(name).type
    if pa.types.is_int64(kind):
        return f"( {within_reach(f'`{name}`')} )"
    if pa.types.is_timestamp(kind):
        return f"( {within_reach(f'unix_micros(cast(`{name}` as timestamp))')} )"
    return None
