"""Sums of floating-point numbers that do not depend on the order of addition.

Each number is split into three integers of at most 32 bits, its digits. Sums of digits are exact in
any order. The scale of the digits is a power of two that depends on the magnitude of the number,
called its bin. Nearly all numbers of a stream are in one bin. Spark aggregates twice: first the
digits of each group and bin, then the few bins of each group. Sorting the numbers would need all
numbers of a group in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.spark.columns import named_columns
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DIGIT = 2.0**32
_BITS = 30
"""Magnitudes of a bin differ by less than a factor of 2 ** 30: with 53 bits of precision, three
digits then contain the number exactly."""
_LEAST = 2.0**-12
_MOST = 2.0**31
"""The common bin has 0 and magnitudes from 2 ** -12 to 2 ** 30: three digits contain them."""
_SPECIAL = {"nan": 1001, "inf": 1002, "-inf": 1003}
"""Bins of the values that are not finite."""
_CLASSES = 8
"""Number of classes; the class of a bin is its remainder modulo this number."""


class ExactSum:
    """The exact sum of a column.

    `cut` adds columns to the tuples, `partials` aggregates each group and bin, and `total`
    aggregates the bins of a group.

    Attributes:
        bin: name of the column with the bin, an additional key of the first aggregation.
    """

    def __init__(
        self,
        column: str,
        number: int,
    ) -> None:
        self.column = column
        self.bin = f"_bin_{number}"
        self.name = f"_exact_{number}"
        self._digits = [f"{self.name}_{digit}" for digit in range(3)]

    def cut(self, rows: DataFrame) -> DataFrame:
        """Adds the bin and the three digits of each tuple."""
        [value] = named_columns([self.column])
        value = value.cast("double")
        magnitude = F.abs(value)
        is_common = magnitude.between(_LEAST, _MOST / 2) | (magnitude == 0) | value.isNull()
        other = F.floor(F.log2(magnitude) / _BITS)
        bins = F.when(is_common, F.lit(None).cast("bigint"))
        for text, special in _SPECIAL.items():
            bins = bins.when(
                value == F.lit(float(text)),
                F.lit(special).cast("bigint"),
            )
        rows = rows.withColumn(
            self.bin,
            bins.otherwise(other),
        )
        rest, scaled = f"{self.name}_rest", F.col(self.bin)
        # Two factors, because the power of two for the smallest numbers does not fit a double.
        factor = F.pow(F.lit(2.0), -scaled * (_BITS // 2))
        rows = rows.withColumn(
            rest,
            F.when(scaled.isNull(), value)
            .when(scaled > min(_SPECIAL.values()) - 1, F.lit(0.0))
            .otherwise(value * factor * factor),
        )
        for digit in self._digits:
            rows = rows.withColumn(
                digit,
                F.col(rest).cast("bigint"),
            )
            rows = rows.withColumn(
                rest,
                (F.col(rest) - F.col(digit)) * _DIGIT,
            )
        return rows

    def partials(self) -> list[Column]:
        """Returns the aggregates of each group and bin."""
        return [F.sum(digit).alias(digit) for digit in self._digits]

    def total(self) -> Column:
        """Returns the sum of a group from the partial aggregates; null for a group without
        numbers.
        """
        first, second, third = map(F.col, self._digits)
        scaled = F.col(self.bin)
        factor = F.pow(F.lit(2.0), scaled * (_BITS // 2))
        found = first + (second + third / _DIGIT) / _DIGIT
        value = F.when(scaled.isNull(), found)
        for text, special in _SPECIAL.items():
            value = value.when(
                scaled == special,
                F.lit(float(text)),
            )
        value = value.otherwise(found * factor * factor)
        # Two bins of a class are so far apart that adding the smaller one does not change the
        # larger one, in any order. The classes are added in a fixed order.
        added = F.coalesce(
            F.sum(F.when(scaled.isNull(), value)),
            F.lit(0.0),
        )
        for place in range(_CLASSES):
            is_member = F.pmod(scaled, F.lit(_CLASSES)) == place
            added += F.coalesce(
                F.sum(F.when(is_member, value)),
                F.lit(0.0),
            )
        return F.when(F.count(first) > 0, added).alias(self.name)
