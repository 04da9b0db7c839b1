"""Names of streams in OpenLineage, for installations that have its provider. Nothing else of
Rewindow needs that package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Asset


def to_dataset(asset: Asset, lineage_context: Any) -> Any:
    """Returns the OpenLineage dataset of a stream's asset.

    Other tools name a Delta table by its path, so the path is the name here, too. The name of the
    stream is an additional identifier. Airflow calls this for the scheme `rewindow`, see
    `provider`.

    Args:
        asset: an asset of `stream_asset`.
        lineage_context: context of Airflow's converters; not used.
    """
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import symlinks_dataset

    from rewindow.settings.config import Config

    # Airflow passes a copy of the asset that has only its URI.
    stream = asset.uri.rpartition("/")[2]
    identifier = symlinks_dataset.Identifier(namespace="rewindow", name=stream, type="TABLE")
    symlinks = symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])
    path = Config.load().stream_table(stream).uri
    return Dataset(namespace="file", name=path, facets={"symlinks": symlinks})
