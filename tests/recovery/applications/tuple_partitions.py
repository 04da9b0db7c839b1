"""Tuple operators that are divided into partitions, spread round robin, and unified."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

WORDS = pa.schema([("word", pa.string()), ("n", pa.int64())])
RULES = pa.schema([("limit", pa.int64())])
SUMS = pa.schema([("sum", pa.int64()), ("count", pa.int64())])
MEAN = pa.schema([("mean", pa.float64())])


class Totals(TupleOperator):
    inputs: ClassVar = {"words": InputPort(WORDS, key=("word",))}
    outputs: ClassVar = {"out": OutputPort(WORDS)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.total += row.n
        self.emit("out", row.word, self.total)


class JavaTotals(Totals):
    inputs: ClassVar = {"words": InputPort(WORDS, key=("word",), codec="java")}


class Limits(TupleOperator):
    """Emits the keys whose total is above a limit when the limit changes."""

    inputs: ClassVar = {
        "rules": InputPort(RULES, broadcast=True),
        "words": InputPort(WORDS, key=("word",)),
    }
    outputs: ClassVar = {"above": OutputPort(WORDS)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_words(self, row: Any) -> None:
        self.total += row.n

    def process_rules(self, row: Any) -> None:
        for word in self.keys():
            if self.total > row.limit:
                self.emit("above", word, self.total)


class Mean(TupleOperator):
    inputs: ClassVar = {"parts": InputPort(SUMS)}
    outputs: ClassVar = {"mean": OutputPort(MEAN)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.total += row.sum
        self.count += row.count

    def end_window(self) -> None:
        if self.count:
            self.emit("mean", self.total / self.count)
        self.total = self.count = 0


class SumAndCount(TupleOperator):
    inputs: ClassVar = {"words": InputPort(WORDS)}
    outputs: ClassVar = {"out": OutputPort(SUMS, unifier=Mean())}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    ever = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.total += row.n
        self.count += 1
        self.ever += 1

    def end_window(self) -> None:
        if self.count:
            self.emit("out", self.total, self.count)
        self.total = self.count = 0

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: one[name] + other[name] for name in one}


class Top(TupleOperator):
    inputs: ClassVar = {"words": InputPort(WORDS)}
    outputs: ClassVar = {"top": OutputPort(WORDS, unifier="self")}
    size: int = 2
    kept = StateField(pa.list_(pa.struct([("n", pa.int64()), ("word", pa.string())])), [])  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.kept = largest([*self.kept, {"n": row.n, "word": row.word}], self.size)

    def end_window(self) -> None:
        for row in self.kept:
            self.emit("top", row["word"], row["n"])
        self.kept = []

    def merge(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"kept": largest([*one["kept"], *other["kept"]], self.size)}


def largest(rows: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (-row["n"], row["word"] or ""))[:size]


class Rules(TupleOperator):
    """Emits a limit in every third window."""

    inputs: ClassVar = {"words": InputPort(WORDS)}
    outputs: ClassVar = {"rules": OutputPort(RULES)}

    def process(self, row: Any) -> None:
        pass

    def end_window(self) -> None:
        if self.window_id % 3 == 0:
            self.emit("rules", self.window_id % 40)


def build() -> Application:
    placing: dict[str, dict[str, Any]] = json.loads(os.environ.get("PLACING", "{}"))
    app = Application("tuple_partitions", "1 hour")
    words = app.input("words", WORDS)
    kinds = {"totals": Totals, "java": JavaTotals}
    for name, kind in kinds.items():
        node = app.add(name, kind(), words=words, **placing.get(name, {}))
        app.output(name, node, key=["word"])
    rules = app.add("rules", Rules(), words=words)
    limits = app.add("limits", Limits(), words=words, rules=rules, **placing.get("limits", {}))
    app.output("limits", limits, key=["word"])
    mean = app.add("mean", SumAndCount(), words=words, **placing.get("mean", {}))
    app.output("mean", mean, key=[])
    # Reads an operator, so that its tuples are spread by their hash.
    top = app.add(
        "top",
        Top(size=3),
        words=app.nodes["java"],
        application_windows=2,
        **placing.get("top", {}),
    )
    app.output("top", top, key=["word"])
    return app
