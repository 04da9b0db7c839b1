"""Sums of floating-point numbers that do not depend on the order of addition.

A number is cut into three whole numbers of at most 32 bits, its digits, whose sums are exact in any
order. The digits count from a power of two that follows from the magnitude of the number, its bin.
Nearly all numbers of a stream are in one bin, so that Spark aggregates twice: first the digits of
each group and bin, then the few bins of each group. Compared with sorting the numbers,
no group needs its numbers in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.spark.columns import named_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DIGIT = 2.0**32
_BITS = 30
"""Magnitudes of a bin differ by less than a factor of 2 ** 30: with 53 bits of precision, three
digits then contain the number exactly."""
_LEAST = 2.0**-12
_MOST = 2.0**31
"""Magnitudes of the common bin, 0 to 2 ** 31: three digits contain all of 2 ** -12 or more."""
_SPECIAL = {"nan": 1001, "inf": 1002, "-inf": 1003}
"""Bins of the values that are not finite."""
_CLASSES = 8
"""A bin belongs to the class of its remainder."""


class ExactSum:
    """The exact sum of a column: `cut` adds columns to the tuples, `partials` aggregates a group
    and bin, `total` the bins of a group.

    Attributes:
        bin: name of the column with the bin, a further key of the first aggregation.
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
        """Returns the tuples with a bin and three digits each."""
        from pyspark.sql import functions as F

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
        # Two factors, because the power of the smallest numbers is not a double.
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
        """Returns the aggregates of a group and bin."""
        from pyspark.sql import functions as F

        return [F.sum(digit).alias(digit) for digit in self._digits]

    def total(self) -> Column:
        """Returns the aggregate of a group, from the partial ones; null without numbers."""
        from pyspark.sql import functions as F

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
        # Two bins of a class are so far apart that the sum of both is the larger one in any
        # order. Classes are added in their order.
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
