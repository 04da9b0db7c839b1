"""Storage: names, folders and columns of all tables, access to Delta tables without Spark, and the
fence, which stops commits of older attempts.
"""

from rewindow.storage.delta import DataFile, Table, create_table, data_files
from rewindow.storage.fence import FencedTable, Log, Position, fence, position
from rewindow.storage.in_place import TuplesInPlace
from rewindow.storage.queries import in_windows, query, quoted

__all__ = [
    "DataFile",
    "FencedTable",
    "Log",
    "Position",
    "Table",
    "TuplesInPlace",
    "create_table",
    "data_files",
    "fence",
    "in_windows",
    "position",
    "query",
    "quoted",
]
