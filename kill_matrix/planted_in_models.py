"""Which specimens the proof and the symbolic checks can speak of, and by which wrong step.

They say nothing about code: they refuse a wrong guard or effect in a model, or a wrong version of
a small function. A specimen stands here where its mechanism is planted there, too; that was judged
by a person, from the sentences and threads of both.
"""

from __future__ import annotations

__all__ = ["IN_CONTRACTS", "IN_PROOF"]

IN_PROOF = {
    "A1": "Q4",
    "A3": "M3",
    "A3-manager": "M3",
    "A4": "Q6",
    "A5": "Q9",
    "A6": "P3",
    "A9": "C7",
    "A12": "P1",
    "A13": "P7",
    "A13-manager": "P7",
    "A16": "P2",
    "A21": "P6",
    "A25": "P14",
    "A28": "P12",
    "A28-manager": "P12",
    "B2": "M1",
    "B3": "M2",
    "B4": "M1",
    "B14": "P5",
    "C1": "P11",
    "C1-manager": "C6",
    "C1-trusted": "C6",
    "C3": "C6",
    "C4": "C4",
    "C6": "C4",
    "C9": "C4",
    "C11": "C4",
    "C14": "C2",
    "C17": "C3",
    "D1": "P19",
    "D1-manager": "C5",
    "D1-nano": "C5",
    "D3": "P9",
    "D3-manager": "P9",
    "D6": "P20",
    "D8": "P10",
    "D11": "P21",
    "D13": "C3",
    "D21": "P8",
    "E3": "P24",
    "F2": "C1",
    "G7": "P15",
    "Q2": "Q11",
    "Q4": "Q1",
    "Q5": "Q2",
    "Q7": "Q14",
}
"""The bug of `poolproof prove --planted` that is the same mistake."""

IN_CONTRACTS = {
    "A6": "freeing",
    "A12": "touching",
    "B6": "peak_covers_a_window_anywhere",
    "B13": "requests_are_counted_apart",
    "C7": "fields_read_back",
    "G3": "window_keeps_what_is_read",
    "G3-hybrid": "window_keeps_what_is_read",
}
"""The contract of `poolproof symbolic` whose wrong version is the same mistake."""
