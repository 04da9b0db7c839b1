"""Tuple operators: classes whose methods are called for each tuple or batch, window after window.

Their state is declared.
"""
