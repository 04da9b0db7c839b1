"""Loads applications by name, builds applications that settings define, and computes the versions
of their code.
"""
