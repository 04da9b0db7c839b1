"""The library of frame operators that an application in rewindow.toml can use, with examples."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Annotated, Any, Literal, get_args, get_origin

import pyarrow as pa

from rewindow.application import FrameOperator
from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.operators.columns import type_texts
from rewindow.operators.durations import is_duration

_TIME = pa.timestamp("us", tz="UTC")
SALES = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", _TIME),
        ("number", pa.int64()),
        ("shop", pa.string()),
        ("customer", pa.string()),
        ("price", pa.float64()),
        ("sold_at", _TIME),
    ]
)
"""Columns of the streams `sales` and `returns`, which the examples read."""
OTHERS = {
    "Enrich": pa.schema([("shop", pa.string()), ("returned", pa.int64())]),
    "Join": pa.schema([("number", pa.int64()), ("returned_at", _TIME)]),
}
"""Columns of the second input port in the examples."""
COLUMNS = "columns"
"""Property with the columns of the first input port, which are set from the application."""
_RULES = re.compile(r" \((?:docs/rules/[^)]*|[A-Z]\d+(?:(?:, | to )[A-Z]\d+)*)\)")
_EXAMPLE = re.compile(r"\n*Example:")
_ATTRIBUTES = "\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*\n(?:        .*\n)*)", re.MULTILINE)
_TYPES = {
    str: "text",
    int: "whole number",
    float: "number",
    Decimal: "number or text",
    bool: "true or false",
    Any: "any",
}

EXAMPLES = {
    "AggregateWindows": """
operators.hours = { operator = "AggregateWindows", inputs = { stream = "sales" }, \
event_at = "sold_at", length = "1 hour", lag = "5 s", keys = ["shop"], \
aggregates = { spent = "sum(price)" } }
outputs.hours = { source = "hours.fired", key = ["shop", "window_begin_us"] }
""",
    "FillGaps": """
operators.whole = { operator = "FillGaps", inputs = { stream = "sales" }, event_at = "sold_at", \
step = "1 minute", keys = ["shop"], fill = { price = "forward" } }
outputs.whole = { source = "whole", key = [] }
""",
    "Heartbeat": """
operators.beat = { operator = "Heartbeat", inputs = { stream = "sales" }, event_at = "sold_at", \
interval = "1 minute", key_by = ["shop"] }
outputs.beat = { source = "beat", key = ["_rw_emission"] }
""",
    "Aggregate": """
operators.totals = { operator = "Aggregate", inputs = { rows = "sales" }, by = ["shop"], \
aggregates = { sales = "count(*)", spent = "sum(price)", late = "quantile(price, 0.9)" }, \
application_windows = 60 }
outputs.totals = { source = "totals", key = ["shop"] }
""",
    "Deduplicate": """
operators.first = { operator = "Deduplicate", inputs = { rows = "sales" }, key = ["number"], \
event_at = "sold_at", reference = "2026-01-01", expire = "1 day", span = "1 hour" }
outputs.first = { source = "first.unique", key = ["number"] }
outputs.again = { source = "first.duplicate", key = ["number"] }
""",
    "Enrich": """
operators.stock = { operator = "Select", inputs = { rows = "returns" }, \
expressions = { returned = "number" }, keep = ["shop"] }
operators.known = { operator = "Enrich", inputs = { rows = "sales", table = "stock" }, \
on = ["shop"], order_by = ["returned"] }
outputs.known = { source = "known", key = ["number"] }
""",
    "Join": """
operators.back = { operator = "Select", inputs = { rows = "returns" }, keep = ["number"], \
expressions = { returned_at = "sold_at" } }
operators.both = { operator = "Join", inputs = { left = "sales", right = "back" }, \
on = ["number"], expire = "30 days", order_by = ["number"], \
event_at = { left = "sold_at", right = "returned_at" } }
outputs.both = { source = "both", key = ["number"] }
""",
    "Merge": """
operators.both = { operator = "Merge", inputs = { left = "sales", right = "returns" }, \
event_at = "sold_at" }
outputs.both = { source = "both", key = ["_rw_emission"] }
""",
    "Metronome": """
operators.minutes = { operator = "Metronome", inputs = { stream = "sales" }, \
interval = "1 minute" }
outputs.minutes = { source = "minutes", key = ["timer_index"] }
""",
    "Sample": """
operators.some = { operator = "Sample", inputs = { rows = "sales" }, fraction = 0.1, \
key = ["customer"] }
outputs.some = { source = "some", key = ["number"] }
""",
    "Select": """
operators.dear = { operator = "Select", inputs = { rows = "sales" }, where = "price > 100", \
keep = ["number", "shop"], expressions = { gross = "price * 1.19" }, types = { gross = "double" } }
outputs.dear = { source = "dear", key = ["number"] }
""",
    "Split": """
operators.sizes = { operator = "Split", inputs = { rows = "sales" }, \
conditions = { large = "price >= 1000", small = "price < 10" } }
outputs.large = { source = "sizes.large", key = ["number"] }
outputs.others = { source = "sizes.rest", key = ["number"] }
""",
    "SplitLate": """
operators.late = { operator = "SplitLate", inputs = { stream = "sales" }, event_at = "sold_at", \
lag = "5 s" }
outputs.on_time = { source = "late.on_time", key = ["number"] }
""",
    "TopN": """
operators.top = { operator = "TopN", inputs = { rows = "sales" }, by = ["price"], top = 10, \
rank = "rank", application_windows = 3600 }
outputs.top = { source = "top", key = ["rank"] }
""",
    "Union": """
operators.both = { operator = "Union", inputs = { left = "sales", right = "returns" }, \
source = "came_from" }
outputs.both = { source = "both", key = ["came_from", "number"] }
""",
}
"""By operator, the lines of a section [applications.NAME] after its `window`, which read the stream
`sales` of the examples.
"""


def library_operator(name: object) -> type[FrameOperator]:
    """Returns the class of an operator of the library.

    Raises:
        InputError: the library has no operator with this name.
    """
    known = sorted(EXAMPLES)
    if not isinstance(name, str) or name not in known:
        raise InputError(
            f'operator "{name}" is not in the library',
            hint=f"{did_you_mean(str(name), known)}Available operators: {', '.join(known)}.",
        )
    kind: type[FrameOperator] = getattr(import_module("rewindow.operators"), name)
    return kind


@dataclass(frozen=True)
class PropertyLine:
    """A property of an operator in the catalogue.

    `default` is text in TOML syntax, or None if the property is required.
    """

    name: str
    type: str
    default: str | None
    about: str


@dataclass(frozen=True)
class OperatorPage:
    """The description of an operator in the catalogue.

    Attributes:
        name: name of its class.
        line: one sentence.
        about: further paragraphs.
        inputs: names of the input ports in the example.
        outputs: output port to its columns in the example, each as name and type.
        properties: without `columns`, which follow from the inputs.
        example: the lines of a section of rewindow.toml.
    """

    name: str
    line: str
    about: str
    inputs: list[str]
    outputs: dict[str, dict[str, str]]
    properties: list[PropertyLine]
    example: str


def describe_operator(name: str) -> OperatorPage:
    """Returns the page of an operator.

    Raises:
        InputError: the library has no operator with this name.
    """
    kind = library_operator(name)
    example = EXAMPLES[name].strip()
    # The last operator of an example is its subject.
    *_, section = tomllib.loads(example)["operators"].values()
    operator = _example_operator(kind, section)
    # Ports depend on properties, so those of the example are shown.
    outputs = {port: type_texts(one.schema) for port, one in operator.output_ports().items()}
    words, _, _ = inspect.cleandoc(kind.__doc__ or "").partition(_ATTRIBUTES)
    line, _, about = words.partition("\n\n")
    return OperatorPage(
        name,
        _plain(line),
        _plain(_EXAMPLE.split(about)[0]),
        inputs=list(operator.input_ports()),
        outputs=outputs,
        properties=_properties(kind),
        example=f'[applications.example]\nwindow = "1 second"\n{example}',
    )


def catalogue(names: Iterable[str]) -> str:
    """Returns the part of a documentation page about the given operators, in alphabetical order.

    Args:
        names: names of the classes.
    """
    parts = []
    for name in sorted(names):
        page = describe_operator(name)
        parts += [f"## {name}", "", page.line, ""]
        parts += [page.about, ""] if page.about else []
        parts += [f"Input ports: {', '.join(page.inputs)}.", ""]
        for port, columns in page.outputs.items():
            listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            parts.append(f"- Output port `{port}`, in the example: {listed}.")
        parts += ["", "| property | type | default | |", "|---|---|---|---|"]
        for one in page.properties:
            default = "required" if one.default is None else f"`{one.default}`"
            parts.append(f"| `{one.name}` | {one.type} | {default} | {one.about} |")
        parts += ["", "```toml", page.example, "```", ""]
    return "\n".join(parts).rstrip() + "\n"


def _example_operator(kind: type[FrameOperator], section: Mapping[str, Any]) -> FrameOperator:
    properties = {}
    for name, field in kind.model_fields.items():
        key = field.alias or name
        if key in section:
            properties[key] = section[key]
    for name in column_properties(kind):
        properties[name] = SALES if name == COLUMNS else OTHERS[kind.__name__]
    return kind(**properties)


def column_properties(kind: type[FrameOperator]) -> dict[str, str | None]:
    """Returns the properties that contain the columns of an input port, with the name of the port.

    `table_columns` belongs to the port `table`. The port of `columns` is None, which means the
    first port without another such property.
    """
    found: dict[str, str | None] = {}
    for name, field in kind.model_fields.items():
        if field.annotation is pa.Schema:
            found[name] = None if name == COLUMNS else name.removesuffix(f"_{COLUMNS}")
    return found


def _properties(kind: type[FrameOperator]) -> list[PropertyLine]:
    about = {}
    # A property that a base class describes need not be described again.
    for base in reversed(kind.__mro__):
        _, _, attributes = inspect.cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)
        for name, words in _ATTRIBUTE.findall(f"{attributes}\n"):
            about[name] = _plain(words)
    found = []
    for name, field in kind.model_fields.items():
        if field.annotation is pa.Schema:
            continue
        type_text = "duration" if is_duration(field) else _type_text(field.annotation)
        default = None
        if not field.is_required():
            default = json.dumps(field.get_default(call_default_factory=True), default=str)
        key = field.alias or name
        found.append(
            PropertyLine(
                key,
                type_text,
                default,
                about.get(name, ""),
            )
        )
    return found


def _type_text(annotation: Any) -> str:
    """Returns the name of a type in terms of TOML.

    >>> _type_text(tuple[str, ...]), _type_text(dict[str, str]), _type_text(int | None)
    ('list of text', 'table of text', 'whole number')
    """
    arguments = [one for one in get_args(annotation) if one not in (type(None), ...)]
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(map(json.dumps, arguments))
    if origin in (list, tuple, set, frozenset):
        return f"list of {_type_text(arguments[0])}"
    if origin is dict:
        return f"table of {_type_text(arguments[-1])}"
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is not None:
        return " or ".join(dict.fromkeys(map(_type_text, arguments)))
    return _TYPES.get(
        annotation,
        getattr(
            annotation,
            "__name__",
            str(annotation),
        ),
    )


def _plain(text: str) -> str:
    """Returns a part of a docstring as one line, without references to rules."""
    return _RULES.sub("", " ".join(text.split()))
