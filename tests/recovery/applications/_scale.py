"""What an application imports from its own folder."""

FACTOR = 3


def scaled(x: int) -> int:
    return FACTOR * x
