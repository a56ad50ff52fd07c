"""Events of vLLM's shape become those of the contract: hashes, and what stands beside them."""

from types import SimpleNamespace

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.targets.hash_book import HashBook
from poolproof.targets.vllm_pool import translate_events

CHAIN = TokenChain((1, 2, 3, 4), ("cat", "/a"), "salt", (Image("image", 1, 2),))
FIRST, SECOND = CHAIN.prefix(2, 0), CHAIN.prefix(4, 0)


class BlockStored(SimpleNamespace):
    """An event with the attributes that it is given."""


class BlockRemoved(SimpleNamespace):
    """The same, of another kind."""


@pytest.fixture
def book():
    book = HashBook()
    book.learn_chain(CHAIN, [b"first", b"second"], 2)
    return book


def translated(event, book):
    return translate_events([event], book)[0]


def test_bare_events_have_hashes_and_a_group(book):
    assert translated(BlockRemoved(block_hashes=[b"first"]), book) == {
        "type": "removed", "hashes": [FIRST], "group": 0,
    }  # fmt: skip
    assert translated(BlockStored(block_hashes=[b"second"]), book) == {
        "type": "stored", "hashes": [SECOND], "group": 0,
    }  # fmt: skip


def test_parent_tokens_and_extra_keys_are_translated(book):
    event = BlockStored(
        block_hashes=[b"second"],
        parent_block_hash=b"first",
        token_ids=[3, 4],
        block_size=2,
        extra_keys=[("cat", ("image", -1))],
    )
    assert translated(event, book) == {
        "type": "stored", "hashes": [SECOND], "group": 0,
        "parent": FIRST, "tokens": [3, 4], "block_size": 2,
        "extra_keys": [[("lora", "cat"), ("image", "image", 1)]],
    }  # fmt: skip


def extra_keys(extras, book, *hashes):
    event = BlockStored(block_hashes=list(hashes), block_size=2, extra_keys=extras)
    return translated(event, book)["extra_keys"]


def test_no_extra_keys_at_all_stand_for_none_of_each_block(book):
    assert extra_keys(None, book, b"first", b"second") == [[], []]


def test_an_extra_key_of_nobody_stays_for_the_check_to_see(book):
    assert extra_keys([("cat", "dog")], book, b"first") == [[("lora", "cat"), ("unknown", "dog")]]
    assert extra_keys([("cat", "salt"), ("x",)], book, b"first") == [
        [("lora", "cat"), ("salt", "salt")],
        [("unknown", "x")],
    ]


def test_an_adapter_and_a_salt_may_be_the_same_word(book):
    chain = TokenChain((7, 8), ("cat", "/a"), "cat")
    book.learn_chain(chain, [b"seventh"], 2)
    assert extra_keys([("cat", "cat")], book, b"seventh") == [[("lora", "cat"), ("salt", "cat")]]


def test_a_hash_that_was_never_given_stays_as_it_is(book):
    event = BlockStored(block_hashes=[b"other"], parent_block_hash=b"neither")
    assert translated(event, book)["hashes"] == [b"other"]
    assert translated(event, book)["parent"] == b"neither"
