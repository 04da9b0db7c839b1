"""Tuples that one side of a certificate lacks: counted in both directions, and named."""

from __future__ import annotations

import json
import shutil

import pytest

from rewindow.certificate.certificate import certify
from rewindow.pages.certificate_page import certificate_page
from rewindow.settings.config import Config
from tests.publication.staging import lossy_and_full, rows_of


@pytest.mark.parametrize(("a", "b"), [("LOSSY", "FULL"), ("FULL", "LOSSY")])
def test_tuples_missing_on_one_side_are_counted_regardless_of_order(
    config: Config,
    a: str,
    b: str,
) -> None:
    lossy_and_full(config)
    missing = sum(len(rows_of([window])["delays"][window]) for window in (118, 119))
    assert missing
    certificate = certify(config, a, b)
    by_side = [
        {"a": found.only_in_tuples.a, "b": found.only_in_tuples.b} for found in certificate.outputs
    ]
    full = "b" if b == "FULL" else "a"
    lossy = "a" if full == "b" else "b"
    names = [found.name for found in certificate.outputs]
    assert dict(zip(names, by_side, strict=True)) == {
        "delays": {full: missing, lossy: 0},
        "ranks": {full: 3, lossy: 0},
    }
    words = f"{missing + 3} tuples of FULL are missing in LOSSY; 0 are only in LOSSY"
    assert certificate.missing_words() == words
    page = certificate_page(certificate)
    assert words in page and "3 tuples of FULL are missing in LOSSY; 0 are only in LOSSY" in page
    content = json.loads(certificate.to_json())
    assert content["only_in_tuples"] == {
        full: missing + 3,
        lossy: 0,
        "changed": 0,
        "at_least": False,
    }


def test_missing_tuples_are_reported_as_a_lower_bound_after_a_purge(config: Config) -> None:
    lossy_and_full(config)
    shutil.rmtree(config.replay_root("LOSSY") / "ranks")
    ranks = next(
        found for found in certify(config, "LOSSY", "FULL").outputs if found.name == "ranks"
    )
    assert ranks.only_in_tuples.words("LOSSY", "FULL") == (
        "at least 3 tuples of FULL are missing in LOSSY; at least 0 are only in LOSSY"
    )
