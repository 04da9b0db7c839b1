"""Windows as Apache Storm fires them, including its special cases."""
