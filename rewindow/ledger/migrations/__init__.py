"""Migrations of the ledger, run by rewindow.ledger.upgrade."""
