"""The catalogue: frame operators that an application of rewindow.toml may name, each with an
example.
"""

from __future__ import annotations

from importlib import import_module

from rewindow.application import FrameOperator
from rewindow.errors import InputError
from rewindow.names import did_you_mean

EXAMPLES = {
    "Aggregate": """
operators.totals = { operator = "Aggregate", inputs = { rows = "sales" }, by = ["shop"], \
aggregates = { sales = "count(*)", spent = "sum(price)", late = "quantile(price, 0.9)" }, \
application_windows = 60 }
outputs.totals = { source = "totals", key = ["shop"] }
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
"""By operator the lines of a section [applications.NAME] after its `window`, which read the stream
`sales` of the catalogue's page."""
MORE = ("AggregateWindows", "FillGaps", "Heartbeat")
"""Operators that settings of a stream use, too: [streams.NAME.windows], `fill` and `interval`."""


def library_operator(name: object) -> type[FrameOperator]:
    """Returns the class of an operator of the library.

    Raises:
        InputError: there is none of this name.
    """
    known = sorted((*EXAMPLES, *MORE))
    if not isinstance(name, str) or name not in known:
        raise InputError(
            f'operator "{name}" is not in the library',
            hint=f"{did_you_mean(str(name), known)}It has: {', '.join(known)}.",
        )
    kind: type[FrameOperator] = getattr(import_module("rewindow.operators"), name)
    return kind
