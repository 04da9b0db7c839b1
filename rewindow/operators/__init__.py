"""Library operators: plain functions on DataFrames first, each with a thin operator around it."""
