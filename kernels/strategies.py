"""Hypothesis strategies for batches, tables, lengths and options: the grammar of `grammar.py`.

A failing case shrinks towards one sequence of one key, float32, no options.
"""

from __future__ import annotations

from hypothesis import strategies as st

from poolproof.kernels.case import Case
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.grammar import draw_case

__all__ = ["cases"]


@st.composite
def cases(draw: st.DrawFn, allowed: Declaration | None = None) -> Case:
    """Cases that a target of this declaration supports; by default everything."""
    return draw_case(lambda count: draw(st.integers(0, count - 1)), allowed or Declaration())
