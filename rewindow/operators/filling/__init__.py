"""Gap filling: creates rows where a stream was silent.

The value of each column is computed by the column's method, and the sources of each created row are
recorded.
"""
