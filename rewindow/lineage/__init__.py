"""Which publications read which windows."""
