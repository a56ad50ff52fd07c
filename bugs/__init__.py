"""Specimens: one seeded real bug each, and correct oddities that must not be accused."""
