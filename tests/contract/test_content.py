"""A content key holds everything that flows into the KV of its last position, and nothing else."""

import pytest

from poolproof.contract.content import Image, TokenChain, key_from_json, key_to_json


def test_a_prefix_knows_all_tokens_before_it():
    chain = TokenChain((1, 2, 3, 4))
    assert chain.prefix(3, 0).tokens == (1, 2, 3)
    assert TokenChain((9, 2, 3)).prefix(3, 0) != chain.prefix(3, 0)


@pytest.mark.parametrize(
    "other",
    [
        TokenChain((1, 2), ("a", "/b")),
        TokenChain((1, 2), salt="a"),
        TokenChain((1, 2), images=(Image("a", 1, 1),)),
    ],
)
def test_an_extra_key_makes_another_content(other):
    assert other.prefix(2, 0) != TokenChain((1, 2)).prefix(2, 0)


def test_an_adapter_and_a_salt_of_one_name_are_different_contents():
    assert TokenChain((1,), ("x", "x")).prefix(1, 0) != TokenChain((1,), salt="x").prefix(1, 0)


def test_an_image_behind_the_prefix_does_not_count():
    chain = TokenChain((1, 2, 3), images=(Image("early", 0, 1), Image("late", 2, 1)))
    assert chain.prefix(2, 0).images == (("early", 0),)
    assert chain.prefix(3, 0).images == (("early", 0), ("late", 2))


def test_the_group_belongs_to_the_content():
    chain = TokenChain((1,))
    assert chain.prefix(1, 0) != chain.prefix(1, 1)


@pytest.mark.parametrize("num_tokens", [0, 3, -1])
def test_a_prefix_must_lie_inside_the_chain(num_tokens):
    with pytest.raises(AssertionError):
        TokenChain((1, 2)).prefix(num_tokens, 0)


def test_an_opaque_hash_is_hexadecimal_text_in_json():
    assert key_to_json(b"\x00\xff") == "00ff"
    assert key_from_json("00ff") == b"\x00\xff"
