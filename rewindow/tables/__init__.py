"""Delta tables without Spark: log, transaction ids, statistics, commits and the fence."""

from rewindow.tables.delta import DataFile, Table, create_table, data_files, query, quoted
from rewindow.tables.fence import FencedTable, Log, Position, fence, position

__all__ = [
    "DataFile",
    "FencedTable",
    "Log",
    "Position",
    "Table",
    "create_table",
    "data_files",
    "fence",
    "position",
    "query",
    "quoted",
]
