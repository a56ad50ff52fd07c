"""Certification: what is driven, explored and tried, what is found, and what it is judged to be."""
