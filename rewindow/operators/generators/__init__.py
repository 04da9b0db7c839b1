"""Generators: streams of made-up tuples, which are recorded like those of any other source."""
