"""Runs tuple operators: divides their tuples into key ranges and partitions, and calls
their code.
"""
