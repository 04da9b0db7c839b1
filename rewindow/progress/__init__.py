"""Events that report the progress of long verbs."""
