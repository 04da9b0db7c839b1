"""The application paid_orders of docs/library.md, a join with deduplication, against pandas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from rewindow.loading.catalog import load_application
from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.testing import run_application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
TIME = pa.timestamp("us", tz="UTC")
POSITION = [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME)]
STREAMS = {
    "orders": pa.schema([("number", pa.int64()), ("shop", pa.string()), ("ordered_at", TIME)]),
    "payments": pa.schema(
        [
            ("payment", pa.int64()),
            ("number", pa.int64()),
            ("amount", pa.float64()),
            ("paid_at", TIME),
        ]
    ),
}
FIRST = int(pd.Timestamp("2026-01-01", tz="UTC").timestamp()) // 3600
HOURS = 96


def make_streams() -> dict[str, pd.DataFrame]:
    """Returns tuples with the hour of their arrival. Orders are paid after 1 to 40 hours; a payment
    arrives again 0, 3 or 60 hours later.
    """
    chosen = random.Random(5)
    orders, payments = [], []
    for number in range(60):
        hour = chosen.randrange(HOURS - 4)
        at = pd.Timestamp(hour * 3600 + number, unit="s") + pd.Timedelta(FIRST, "h")
        orders.append((hour, number, chosen.choice("ABC"), at))
        delay = chosen.choice([1, 5, 23, 25, 40])
        amount = chosen.choice([0.1, 19.99, 1e9])
        paid_at = at + pd.Timedelta(delay, "h")
        for later in (0, *chosen.sample([0, 3, 60], chosen.randrange(3))):
            payments.append((hour + delay + later, number + 1000, number, amount, paid_at))
    columns = {name: ["hour", *schema.names] for name, schema in STREAMS.items()}
    found = {
        "orders": pd.DataFrame(orders, columns=columns["orders"]),
        "payments": pd.DataFrame(payments, columns=columns["payments"]),
    }
    return {name: frame[frame.hour < HOURS] for name, frame in found.items()}


@pytest.mark.jvm
def test_paid_orders_equal_a_pandas_computation(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    # Rules: E72, E77, O123
    block = PAGE.read_text().partition("[applications.paid_orders]")[2].partition("```")[0]
    file = tmp_path / "rewindow.toml"
    file.write_text(f'state = "."\n[applications.paid_orders]{block}')
    config = Config.load(file)
    for name, schema in STREAMS.items():
        create_table(config.stream_table(name), pa.schema([*POSITION, *schema]))
    app = load_application(config, "paid_orders").app
    frames = make_streams()
    tuples: dict[str, dict[int, list[Any]]] = {}
    for name, frame in frames.items():
        windows = tuples.setdefault(name, {})
        stamped = frame.assign(**{frame.columns[-1]: frame.iloc[:, -1].dt.tz_localize("UTC")})
        for hour, *values in stamped.astype(object).itertuples(index=False):
            arrived_at = pd.Timestamp((FIRST + hour) * 3600, unit="s", tz="UTC")
            windows.setdefault(FIRST + hour, []).append((arrived_at, *values))
    ran = run_application(
        app, tuples, windows=(FIRST, FIRST + HOURS - 1), group_windows=[50, 46], spark=spark
    )

    payments = frames["payments"].sort_values("hour", kind="stable")
    paid = payments.drop_duplicates("payment").merge(frames["orders"], on="number")
    paid = paid[paid.paid_at - paid.ordered_at <= pd.Timedelta("1 day")]
    paid = paid.assign(last=FIRST + paid.hour_x // 24 * 24 + 23)
    sums = paid.groupby(["last", "shop"]).amount.agg(["size", "sum"]).reset_index()
    expected = []
    for last, shop, count, total in sums.itertuples(index=False):
        expected.append((last, shop, count, pytest.approx(total)))
    assert sorted(ran["days"]) == sorted(expected, key=lambda row: row[:2])
    age = payments.hour - payments.groupby("payment").hour.transform("min")
    again = payments[payments.duplicated("payment") & (age < 48)]
    assert len(ran["again"]) == len(again) > 0
