"""The migrations of the ledger, one module for each version."""
