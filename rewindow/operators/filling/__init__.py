"""Gap filling: creates rows where a stream was silent, with values by the method of each column,
and records their sources.
"""
