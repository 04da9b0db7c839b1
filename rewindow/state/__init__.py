"""Storage of operator state between commit groups: a small state is in a cell of the checkpoint's
row, a larger one in files next to the table of checkpoints.
"""
