"""The Spark side of a replay: session, commit-group loop, files, digests, crash points."""
