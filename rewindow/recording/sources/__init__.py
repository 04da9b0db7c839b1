"""Sources from which a stream is recorded, one module each. `source` defines their interface."""
