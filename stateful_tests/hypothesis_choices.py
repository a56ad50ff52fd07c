"""Hypothesis as the answerer behind a workload: it draws, and it shrinks what it drew.

With this, the grammars of the harness choose the arguments of a state machine's rules, so that
every driver runs the same commands. Which rule comes next is Hypothesis's own decision.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["HypothesisChoices", "hypothesis_choices"]


class HypothesisChoices:
    """`Choices` that are drawn from one test case; smaller answers count as simpler."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        """An integer from 0 to `bound` - 1; nothing is drawn where only 0 is possible."""
        assert bound >= 1
        return self._draw(_integers_below(bound)) if bound > 1 else 0


# Not `st.data()`: that compares the state of the module `random` before and after each of its
# draws, which took a fifth of the time of a machine.
@st.composite
def hypothesis_choices(draw: DrawFn) -> HypothesisChoices:
    """A strategy for choices that go on drawing from the test case until it ends."""
    return HypothesisChoices(draw)


@cache
def _integers_below(bound: int) -> SearchStrategy[int]:
    return st.integers(0, bound - 1)
