"""Tuple operators: classes whose methods are called tuple by tuple or batch by batch, window
after window, with declared state.
"""
