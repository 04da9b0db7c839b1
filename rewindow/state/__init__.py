"""Where operator state lives between groups: in a cell of the checkpoint while small, else in files
beside it.
"""
