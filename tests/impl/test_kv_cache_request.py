"""Requests: hashes made when they are asked for, over everything that makes KV differ."""

import pytest

from poolproof.impl.block_hash import BlockHasher, LoRA, MultiModal, Salt
from poolproof.impl.kv_cache_request import ImageSpan, Request

HASHER = BlockHasher(seed=b"s", block_size=4)


def request(tokens=range(8), **kwargs):
    return Request("r", tokens, hasher=HASHER, **kwargs)


def test_hashes_are_those_of_the_full_blocks():
    assert request(range(11)).block_hashes == HASHER.hash_sequence(list(range(8)))


def test_hashes_cover_output_tokens():
    grown = request(range(7))
    assert len(grown.block_hashes) == 1
    grown.append([7, 8])
    assert grown.block_hashes == HASHER.hash_sequence(list(range(8)))


def test_no_block_is_hashed_twice():
    calls = []

    def digest(data):
        calls.append(data)
        return data[-8:]

    counted = Request("r", range(8), hasher=BlockHasher(digest, seed=b"s", block_size=4))
    assert not calls
    assert len(counted.block_hashes) == len(counted.block_hashes) == len(calls) == 2


def test_without_a_hasher_there_are_no_hashes():
    plain = Request("r", range(8))
    assert plain.block_hashes == []
    plain.truncate(2)
    assert plain.num_tokens == 2


def test_truncation_drops_the_hashes_of_what_is_cut():
    cut = request(range(12))
    kept = cut.block_hashes[:1]
    cut.truncate(7)
    assert cut.block_hashes == kept
    cut.append([99, 8, 9, 10, 11])
    assert cut.block_hashes == HASHER.hash_sequence([0, 1, 2, 3, 4, 5, 6, 99, 8, 9, 10, 11])


def test_truncation_keeps_computed_tokens():
    computed = request(range(8))
    computed.num_computed_tokens = 5
    message = (
        "^truncate: request 'r' has 8 tokens, 5 of them computed, and cannot be cut to 4; "
        "KVCacheManager.truncate says how many computed tokens may stay$"
    )
    with pytest.raises(ValueError, match=message):
        computed.truncate(4)
    with pytest.raises(ValueError, match="cannot be cut to 9"):
        computed.truncate(9)
    assert computed.num_tokens == 8


def test_truncation_may_keep_all_tokens_or_no_more_than_are_computed():
    computed = request(range(8))
    computed.num_computed_tokens = 5
    computed.truncate(8)
    assert computed.num_tokens == 8
    computed.truncate(5)
    assert computed.token_ids == [0, 1, 2, 3, 4]


def test_an_adapter_stands_in_every_block():
    lora = LoRA("a", "/a")
    wanted = HASHER.hash_sequence(list(range(8)), {0: [lora], 1: [lora]})
    assert request(lora=lora).block_hashes == wanted


def test_a_salt_stands_in_the_first_block():
    wanted = HASHER.hash_sequence(list(range(8)), {0: [Salt("t")]})
    assert request(salt=Salt("t")).block_hashes == wanted


def test_an_image_stands_in_every_block_that_it_reaches_into():
    tokens = list(range(16))
    wanted = HASHER.hash_sequence(tokens, {1: [MultiModal("cat", 3)], 2: [MultiModal("cat", -1)]})
    assert request(tokens, images=[ImageSpan("cat", 7, 3)]).block_hashes == wanted


def test_an_image_that_fills_a_block_stands_in_no_other():
    tokens = list(range(12))
    wanted = HASHER.hash_sequence(tokens, {1: [MultiModal("cat", 0)]})
    assert request(tokens, images=[ImageSpan("cat", 4, 4)]).block_hashes == wanted


def test_equal_placeholders_of_other_images_are_other_blocks():
    one, other = (request(images=[ImageSpan(name, 5, 2)]).block_hashes for name in ("cat", "dog"))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_a_token_that_cannot_be_hashed_is_refused():
    bad = request([1, 2, 3, -4])
    with pytest.raises(ValueError, match="tokens must be ints"):
        _ = bad.block_hashes
