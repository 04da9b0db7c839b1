"""Gap filling: rows where a stream was silent, with values by the method of each column, and where
they come from.
"""
