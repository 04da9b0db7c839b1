"""Runs tuple operators over key ranges."""
