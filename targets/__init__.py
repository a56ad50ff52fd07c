"""Adapters that put real engines behind the contract."""
