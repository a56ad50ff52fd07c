"""The book of hashes: translation both ways, and injectivity in both directions."""

from __future__ import annotations

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.violation import Severity, ViolationError
from poolproof.targets.hash_book import HashBook

ONE = TokenChain((1, 2, 3, 4))
OTHER = TokenChain((1, 2, 3, 4), lora=("adapter", "/a"), images=(Image("cat", 1, 2),))


def test_both_ways():
    book = HashBook()
    book.learn_chain(ONE, [b"half", b"full"], 2)
    assert book.real(ONE.prefix(4, 3)) == (b"full", 3)
    assert book.key(b"half", 1) == ONE.prefix(2, 1)
    assert book.real(OTHER.prefix(4, 0)) is None
    assert book.key(b"unknown", 0) is None


def test_opaque_hashes_stand_for_themselves():
    book = HashBook()
    book.learn_opaque(b"opaque")
    assert book.real(b"opaque") == (b"opaque", 0)
    assert (book.key(b"opaque", 0), book.key(b"opaque", 1)) == (b"opaque", None)


def test_two_contents_under_one_hash_is_wrong_data():
    book = HashBook()
    book.learn_chain(ONE, [b"same"], 4)
    with pytest.raises(ViolationError) as caught:
        book.learn_chain(OTHER, [b"same"], 4)
    found = caught.value.violation
    assert (found.invariant, found.severity) == ("DATA", Severity.WRONG_DATA_OF_ANOTHER)
    assert "<1 2 3 4> with no extra keys" in found.sentence
    assert "<1 2 3 4, lora adapter at /a, image cat at token 1>" in found.sentence
    assert "(only the adapter and an image differ)" in found.sentence


def test_one_content_under_two_hashes_is_a_lost_hit():
    book = HashBook()
    book.learn_chain(ONE, [b"first"], 4)
    with pytest.raises(ViolationError) as caught:
        book.learn_chain(ONE, [b"second"], 4)
    found = caught.value.violation
    assert (found.invariant, found.severity) == ("IDX", Severity.LOST_HIT)
    assert b"first".hex() in found.sentence
    assert b"second".hex() in found.sentence
