"""The generators of the library, by the name that an application sets as the `source` of a
stream.
"""

from __future__ import annotations

from rewindow.operators.generators.auctions import Auctions
from rewindow.operators.generators.generator import Generator
from rewindow.operators.generators.sensors import Sensors

GENERATORS: dict[str, type[Generator]] = {"auctions": Auctions, "sensors": Sensors}
