"""The projects in examples/, each equal to an independent computation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rewindow.loading.catalog import load_application
from rewindow.recording.sources.generated import GeneratorSource
from rewindow.recording.sources.source import open_source
from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.testing import run_application, run_generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[1] / "examples"
POSITION = [("window_id", pa.int64()), ("offset", pa.int64())]


@pytest.mark.jvm
def test_example_counts_words_over_sliding_windows(spark: SparkSession, tmp_path: Path) -> None:
    config = Config.load(EXAMPLES / "word_count" / "rewindow.toml", state=tmp_path)
    stream = config.stream("sentences")
    source = open_source("sentences", stream, config.root)
    assert isinstance(source, GeneratorSource)
    columns = source.generator.columns
    create_table(config.stream_table("sentences"), pa.schema([*POSITION, *columns]))
    sentences = run_generator(source.generator.model_copy(update={"windows": 90, "rate": 5}))
    app = load_application(config, "word_count").app
    found = run_application(app, {"sentences": sentences}, group_windows=[25, 65], spark=spark)
    expected = []
    first, last = min(sentences), max(sentences)
    for end in range(first, last + 1):
        # Sliding windows end after every tenth window from 1970 on.
        if (end + 1) % 10:
            continue
        words: Counter[str] = Counter()
        for window in range(end - 59, end + 1):
            for sentence in sentences.get(window, []):
                words.update(re.findall("[a-z]+", sentence["text"].lower()))
        expected += [(end, word, times) for word, times in words.items()]
    assert len({end for end, *_ in expected}) == 9
    assert sorted(found["counts"]) == sorted(expected)
