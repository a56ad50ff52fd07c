"""Campaigns: tapes through the common grammar, guided by the novelty of abstract states."""
