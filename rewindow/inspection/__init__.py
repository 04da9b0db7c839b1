"""Shows the state and history of replays and streams from tables and ledger. Changes nothing and
starts no JVM.
"""
