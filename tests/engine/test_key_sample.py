"""Samples of keys: the same in every run, and a smaller one within a larger one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rewindow.engine.key_sample import of_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_smaller_key_sample_is_a_subset_of_a_larger_one(spark: SparkSession) -> None:
    # Rules: O143
    keys = spark.range(2_000).select((F.col("id") % 1_000).alias("key"))
    as_text = keys.select(F.col("key").cast("string").alias("name"))
    kept = {
        fraction: {row.key for row in of_sample(keys, ["key"], fraction).distinct().collect()}
        for fraction in (0.0001, 0.05, 0.5, 1.0)
    }
    assert kept[0.0001] <= kept[0.05] < kept[0.5] < kept[1.0] == set(range(1_000))
    assert 20 < len(kept[0.05]) < 90 and 400 < len(kept[0.5]) < 600
    assert {
        int(row.name) for row in of_sample(as_text, ["name"], 0.05).distinct().collect()
    } == kept[0.05]
    assert of_sample(keys, ["key"], 0.05).count() == 2 * len(kept[0.05])


def test_key_sample_contains_the_buckets_below_its_fraction(spark: SparkSession) -> None:
    # Rules: O143
    keys = spark.range(100_000).select(F.col("id").cast("string").alias("key"))
    buckets = keys.select("key", F.pmod(F.xxhash64("key"), F.lit(10_000)).alias("bucket"))
    of_half = {row.key for row in buckets.where("bucket < 5000").collect()}
    assert buckets.where("bucket = 5000").count() and buckets.where("bucket = 4999").count()
    assert {row.key for row in of_sample(keys, ["key"], 0.5).collect()} == of_half
