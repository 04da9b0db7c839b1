"""A generator of sentences, some words of which are much more frequent than others."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from rewindow.operators import Generator

_LIST = """
the a window stream tuple of and replay operator state in key port graph partition checkpoint crash
output recording sealed empty late watermark digest
"""
WORDS = _LIST.split()


class Sentences(Generator):
    """Sentences of three to eight words."""

    columns: ClassVar[pa.Schema] = pa.schema(
        [("arrived_at", pa.timestamp("us", "UTC")), ("text", pa.string())]
    )

    def rows(self, window_id: int, part: int, random: np.random.Generator) -> pa.RecordBatch:
        """Returns the sentences of a part of a window."""
        slots = self.slots(window_id, part, random)
        texts = []
        for length in random.integers(3, 9, len(slots.numbers)):
            picked = self.pick(len(WORDS), length, random)
            texts.append(" ".join(WORDS[word] for word in picked).capitalize() + ".")
        return pa.record_batch([slots.arrived_at, pa.array(texts, "string")], schema=self.columns)
