"""Symbolic execution of small pure functions by CrossHair: contracts over all inputs, and a run.

`contracts.py` holds top-level functions whose docstrings say, in PEP 316, what must hold of the
code that they call; CrossHair confirms it over all paths or finds arguments that refute it.
Pure functions over numbers, bools and short bytes only: linked lists and state are proved and
explored elsewhere.
"""
