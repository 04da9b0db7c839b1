"""Sources from which streams are recorded, one module for each.

The module `source` defines their interface.
"""
