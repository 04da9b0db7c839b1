"""Certificates: comparisons of two replays, or of a replay with the published tables."""

from rewindow.certificate.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
