"""Storage of operator state between commit groups.

A small state is in a cell of the checkpoint's row. A larger state is in files next to the table of
checkpoints.
"""
