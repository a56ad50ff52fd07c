"""Poolproof: a verification suite for the KV-cache block allocators of LLM servers."""

__version__ = "0.1.0"
