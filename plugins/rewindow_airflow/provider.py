"""Metadata that Airflow lists under Providers, through the entry point
`apache_airflow_provider`.
"""

from __future__ import annotations

from typing import Any

from rewindow.version import VERSION


def get_provider_info() -> dict[str, Any]:
    """Returns the provider's metadata.

    The example DAGs are in the folder `example_dags` of the package.
    """
    return {
        "package-name": "rewindow",
        "name": "Rewindow",
        "description": "Replays recorded streams from Delta tables by window id, and "
        "verifies the output.",
        "versions": [VERSION],
        "asset-uris": [
            {
                "schemes": ["rewindow"],
                # Without this key, Airflow ignores the scheme and its converter.
                "handler": None,
                "to_openlineage_converter": "rewindow_airflow.lineage.to_dataset",
            }
        ],
    }
