"""Loads applications by name, builds those defined by settings, and computes the versions of their
code.
"""
