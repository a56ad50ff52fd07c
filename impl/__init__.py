"""Optimised KV-cache block allocators, usable on their own by an engine."""
