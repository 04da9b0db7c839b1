"""Generators: sources of synthetic tuples, which are recorded like any other source."""
