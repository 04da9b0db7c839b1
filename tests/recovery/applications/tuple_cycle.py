"""Two cycles, ranks of pages in one range, and balances divided by keys; and control tuples that
close days.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort, PortHandle
from rewindow.operators import DelayOperator, StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
SHARES = pa.schema([("page", pa.string()), ("share", pa.int64())])
BALANCES = pa.schema([("key", pa.string()), ("balance", pa.int64())])
UNIT = 1_000_000
PAGES = "abc"


class Links(TupleOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("page", pa.string()), ("to", pa.string())]))}

    def process(self, event: Any) -> None:
        self.emit("out", event.key, PAGES[event.x % len(PAGES)])


class Ranks(TupleOperator):
    """Each page gives its rank to those it links to; in the next window they have it."""

    inputs: ClassVar = {
        "links": InputPort(Links.outputs["out"].schema, key=("page",)),
        "shares": InputPort(SHARES, key=("page",)),
    }
    outputs: ClassVar = {
        "ranks": OutputPort(pa.schema([("page", pa.string()), ("rank", pa.int64())])),
        "given": OutputPort(SHARES),
    }
    to = StateField(pa.list_(pa.string()), [])  # type: ignore[pydantic-field]
    rank = StateField(pa.int64(), UNIT)  # type: ignore[pydantic-field]
    got = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_links(self, link: Any) -> None:
        self.to.append(link.to)

    def process_shares(self, share: Any) -> None:
        self.got += share.share

    def end_window(self) -> None:
        for page in self.keys():
            if self.got:
                self.rank = UNIT * 15 // 100 + self.got * 85 // 100
            self.got = 0
            self.emit("ranks", page, self.rank)
            for to in self.to:
                self.emit("given", to, self.rank // len(self.to))


class Around(DelayOperator):
    """The shares of a window come in the next one."""

    columns: ClassVar = SHARES


class Sum(TupleOperator):
    """What has come of each key in a window, with half of the balance of two windows ago."""

    inputs: ClassVar = {
        "events": InputPort(EVENTS, key=("key",)),
        "back": InputPort(BALANCES, key=("key",)),
    }
    outputs: ClassVar = {"out": OutputPort(BALANCES)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_events(self, event: Any) -> None:
        self.total += event.x

    def process_back(self, row: Any) -> None:
        self.total += row.balance

    def end_window(self) -> None:
        for key in self.keys():
            if self.total:
                self.emit("out", key, self.total)
            self.forget()


class Half(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(BALANCES, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(BALANCES)}

    def process(self, row: Any) -> None:
        self.emit("out", row.key, row.balance // 2)


class Later(DelayOperator):
    """Balances come back two windows later, to the key range that they came from."""

    columns: ClassVar = BALANCES
    key: ClassVar = ("key",)


class Closes(TupleOperator):
    """Says in the last of every four windows that a day is over: a control tuple of every key
    range.
    """

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("day", pa.int64())]), control=True)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, event: Any) -> None:
        self.seen += 1

    def end_window(self) -> None:
        if self.window_id % 4 == 3:
            self.emit("out", self.window_id // 4)


class Days(TupleOperator):
    inputs: ClassVar = {
        "close": InputPort(Closes.outputs["out"].schema, control=True),
        "events": InputPort(EVENTS, key=("key",)),
    }
    outputs: ClassVar = {
        "out": OutputPort(
            pa.schema([("key", pa.string()), ("day", pa.int64()), ("sum", pa.int64())])
        )
    }
    sum = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_events(self, event: Any) -> None:
        self.sum += event.x

    def process_close(self, close: Any) -> None:
        for key in self.keys():
            self.emit("out", key, close.day, self.sum)
            self.forget()


app = Application("tuple_cycle", window="1 hour", checkpoint_windows=6)
events = app.input("events")
ranks = app.add(
    "ranks",
    Ranks(),
    links=app.add("links", Links(), events=events),
    shares=PortHandle("around", "out"),
)
app.add("around", Around(), tuples=ranks["given"])
sums = app.add("sums", Sum(), events=events, back=PortHandle("later", "out"))
app.add("later", Later(windows=2), tuples=app.add("half", Half(), rows=sums))
app.output("ranks", ranks["ranks"], key=["page"])
app.output("sums", sums, key=["key"])
closes = app.add("closes", Closes(), events=events)
app.output("closes", closes, key=["day"])
app.output("days", app.add("days", Days(), events=events, close=closes), key=["key"])
