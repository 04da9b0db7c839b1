"""The generator `sensors`: measurements of thermometers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from rewindow.operators.generators.generator import TIME, Generator


class Sensors(Generator):
    """Measurements of thermometers, each of which varies around a mean of 10 to 19 degrees.

    Attributes:
        sensors: number of sensors.
    """

    columns: ClassVar = pa.schema(
        [
            ("arrived_at", TIME),
            ("measured_at", TIME),
            ("sensor", pa.int64()),
            ("temperature", pa.float64()),
        ]
    )
    sensors: int = Field(default=100, ge=1)

    def rows(self, window_id: int, part: int, random: np.random.Generator) -> pa.RecordBatch:
        """Returns the measurements of a part of a window."""
        slots = self.slots(
            window_id,
            part,
            random,
        )
        size = len(slots.numbers)
        sensor = self.pick(
            self.sensors,
            size,
            random,
        )
        temperature = np.round(
            10
            + sensor % 10
            + random.normal(
                0,
                1,
                size,
            ),
            2,
        )
        return pa.record_batch(
            [slots.arrived_at, slots.event_at, sensor, temperature],
            schema=self.columns,
        )
