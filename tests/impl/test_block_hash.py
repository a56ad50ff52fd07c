"""Block hashes: a chain that separates whatever must not share memory."""

import hashlib
from itertools import combinations
from typing import Any

import pytest

from poolproof.impl.block_hash import (
    BlockHasher,
    Embeds,
    LoRA,
    MultiModal,
    Salt,
    encoded_key,
    encoded_tokens,
    hash_function,
)


def hasher(block_size: int = 2, function: Any = "sha256", seed: bytes = b"seed") -> BlockHasher:
    return BlockHasher(function, seed=seed, block_size=block_size)


@pytest.mark.parametrize(("function", "size_bytes"), [("sha256", 32), ("xxh128", 16), ("xxh64", 8)])
def test_each_function_gives_a_stable_digest_of_its_size(function: str, size_bytes: int) -> None:
    first, second = (hasher(function=function).hash_block(None, [1, 2]) for _ in range(2))
    assert first == second
    assert len(first) == size_bytes
    assert first != hasher(function=function).hash_block(None, [2, 1])


def test_the_encoding_is_fixed_so_that_processes_agree() -> None:
    def length(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    tokens = length((1).to_bytes(8, "little") + (2**63 - 1).to_bytes(8, "little"))
    first = hashlib.sha256(b"R" + length(b"seed") + b"T" + tokens).digest()
    assert hasher().hash_block(None, [1, 2**63 - 1]) == first
    second = hashlib.sha256(
        b"P" + length(first) + b"T" + tokens + b"M" + length(b"id") + length(b"-3")
    ).digest()
    assert hasher().hash_block(first, [1, 2**63 - 1], [MultiModal("id", -3)]) == second


def test_the_seed_is_explicit_and_decides() -> None:
    with pytest.raises(TypeError, match="seed"):
        BlockHasher("sha256", block_size=2)
    assert hasher(seed=b"a").hash_block(None, [1, 2]) != hasher(seed=b"b").hash_block(None, [1, 2])


@pytest.mark.parametrize("seed", [b"", "text", None])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be bytes and not empty"):
        hasher(seed=seed)


def test_a_block_of_one_token_is_enough() -> None:
    assert len(set(hasher(1).hash_sequence([1, 1, 2]))) == 3


@pytest.mark.parametrize("block_size", [0, -1, True, 2.0])
def test_a_block_has_at_least_one_token(block_size: Any) -> None:
    with pytest.raises(ValueError, match="block_size must be an int of at least 1"):
        hasher(block_size)


@pytest.mark.parametrize("function", ["md5", "", None, "SHA256"])
def test_an_unknown_function_is_refused_with_the_known_ones(function: Any) -> None:
    with pytest.raises(ValueError, match="must be 'sha256', 'xxh128', 'xxh64' or a callable"):
        hasher(function=function)


def test_an_injected_function_gets_all_bytes() -> None:
    seen: list[bytes] = []

    def short(data: bytes) -> bytes:
        seen.append(data)
        return b"h"

    assert hasher(function=short).hash_sequence([1, 2, 3, 4]) == [b"h", b"h"]
    assert b"seed" in seen[0]
    assert hash_function(short) is short


@pytest.mark.parametrize("result", [None, "text", b"", 7])
def test_an_injected_function_must_return_bytes(result: Any) -> None:
    with pytest.raises(TypeError, match="must return bytes"):
        hasher(function=lambda data: result).hash_block(None, [1, 2])


def test_equal_tokens_under_different_parents_differ() -> None:
    one, two = hasher().hash_sequence([1, 2, 1, 2])
    assert one != two
    assert hasher().hash_sequence([3, 4, 1, 2])[1] != two
    assert hasher().hash_sequence([1, 2, 1, 2, 9]) == [one, two]


def test_only_full_blocks_have_hashes() -> None:
    assert hasher(4).hash_sequence([]) == []
    assert [len(hasher(4).hash_sequence([1] * n)) for n in (3, 4, 5, 7, 8)] == [0, 1, 1, 1, 2]
    message = "^a full block has 4 tokens, not 3; partial blocks have no hash$"
    with pytest.raises(ValueError, match=message):
        hasher(4).hash_block(None, [1, 2, 3])


@pytest.mark.parametrize("tokens", [[1, -1], [1, 2**63], [1, True], [1, 2.0], [1, "2"], [1, None]])
def test_a_token_is_an_int_of_63_bits(tokens: Any) -> None:
    with pytest.raises(ValueError, match=r"tokens must be ints from 0 to 2\*\*63 - 1"):
        hasher().hash_block(None, tokens)


@pytest.mark.parametrize("parent", [b"", "text", 0, False])
def test_a_parent_is_a_hash_or_none(parent: Any) -> None:
    with pytest.raises(ValueError, match="parent must be None or a block hash"):
        hasher().hash_block(parent, [1, 2])


def test_a_parent_equal_to_the_seed_is_not_the_root() -> None:
    assert hasher().hash_block(b"seed", [1, 2]) != hasher().hash_block(None, [1, 2])


# Each pair of these must differ: kinds, where one field ends and the next begins, how many keys
# there are, order, and strings that UTF-8 alone cannot tell or encode.
KEYS: list[list[Any]] = [
    [],
    [LoRA("X", "")],
    [LoRA("", "X")],
    [LoRA("X", "X")],
    [LoRA("XX", "")],
    [Salt("X")],
    [Salt("")],
    [Salt(""), Salt("")],
    [Salt("X"), LoRA("X", "")],
    [LoRA("X", ""), Salt("X")],
    [MultiModal("X", 0)],
    [MultiModal("X", 1)],
    [MultiModal("X", -1)],
    [MultiModal("X", 11)],
    [MultiModal("X1", 1)],
    [MultiModal("X", 0), MultiModal("Y", 1)],
    [MultiModal("X", 1), MultiModal("Y", 0)],
    [Embeds(b"X")],
    [Embeds(b"X", b"\x00")],
    [Embeds(b"", b"X")],
    [Embeds(b"X\x00")],
    [Salt("\ud800")],
    [Salt("?")],
    [Salt("e\u0301")],
    [Salt("\u00e9")],
]


def test_no_two_sets_of_extra_keys_collide() -> None:
    messages: list[bytes] = []

    def keep(data: bytes) -> bytes:
        messages.append(data)
        return hashlib.sha256(data).digest()

    hashes = [hasher(function=keep).hash_block(None, [1, 2], keys) for keys in KEYS]
    for (i, one), (j, other) in combinations(enumerate(hashes), 2):
        assert one != other, (KEYS[i], KEYS[j])
    # Injective, and prefix-free where it matters: the bytes differ before they are hashed.
    assert len(set(messages)) == len(KEYS)


@pytest.mark.parametrize(
    ("key", "tag", "fields"),
    [
        (LoRA("name", "path"), b"L", [b"name", b"path"]),
        (Salt("secret"), b"S", [b"secret"]),
        (MultiModal("id", -3), b"M", [b"id", b"-3"]),
        (Embeds(b"digest", b"\x01"), b"E", [b"digest", b"\x01"]),
    ],
)
def test_the_encoding_of_a_key_is_its_tag_and_its_fields_behind_their_lengths(
    key: Any, tag: bytes, fields: list[bytes]
) -> None:
    expected = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    assert encoded_key(key) == tag + expected


def test_every_kind_of_field_has_a_tag_of_its_own() -> None:
    kinds = [LoRA("X", "X"), Salt("X"), MultiModal("X", 0), Embeds(b"X", b"X")]
    tags = [encoded_key(key)[:1] for key in kinds]
    assert len({*tags, b"R", b"P", encoded_tokens([1])[:1]}) == len(kinds) + 3


@pytest.mark.parametrize(
    "key",
    [
        "X",
        b"X",
        ("X", 0),
        None,
        LoRA("X", None),
        LoRA(1, "X"),
        Salt(b"X"),
        MultiModal(b"X", 0),
        MultiModal("X", True),
        MultiModal("X", 1.0),
        Embeds("X"),
        Embeds(b"X", None),
    ],
)
def test_an_untyped_extra_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="is no extra key; use LoRA, Salt, MultiModal or Embeds"):
        hasher().hash_block(None, [1, 2], [key])


def test_extra_keys_reach_their_block_and_all_later_ones() -> None:
    tokens = [1, 2, 3, 4, 5, 6]
    plain = hasher().hash_sequence(tokens)
    salted = hasher().hash_sequence(tokens, {0: [Salt("tenant")]})
    image = hasher().hash_sequence(tokens, {1: [MultiModal("image", 0)]})
    assert all(a != b for a, b in zip(plain, salted, strict=True))
    assert [a == b for a, b in zip(plain, image, strict=True)] == [True, False, False]


def test_extra_keys_of_a_partial_last_block_wait_for_it() -> None:
    assert hasher().hash_sequence([1, 2, 3], {1: [Salt("x")]}) == hasher().hash_sequence([1, 2])


@pytest.mark.parametrize(("num_tokens", "index"), [(4, 2), (4, -1), (0, 1), (4, True), (4, "0")])
def test_extra_keys_of_no_block_are_refused(num_tokens: int, index: Any) -> None:
    with pytest.raises(ValueError, match=f"no block {index!r} in {num_tokens} tokens"):
        hasher().hash_sequence([1] * num_tokens, {index: []})


def test_extra_keys_behind_the_only_token_are_refused() -> None:
    with pytest.raises(ValueError, match="no block 1 in 1 tokens"):
        hasher(1).hash_sequence([1], {1: []})
