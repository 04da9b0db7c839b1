"""Certificates: compare two replays, or a replay and what is published."""

from rewindow.certificate.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
