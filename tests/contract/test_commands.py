"""Commands survive the way through JSON, and what is no command is refused with a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.contract.command_json import command_from_json, command_to_json
from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    CacheChain,
    CachePartial,
    Evict,
    Free,
    Lookup,
    LookupChain,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import ContentKey, Image, TokenChain

integers = st.integers(-3, 2**70)
ids = st.lists(integers, max_size=4).map(tuple)
names = st.text(max_size=5)
loras = st.none() | st.tuples(names, names)
salts = st.none() | names
tokens = st.lists(integers, max_size=6).map(tuple)
chains = st.builds(
    TokenChain,
    tokens=tokens,
    lora=loras,
    salt=salts,
    images=st.lists(st.builds(Image, names, integers, integers), max_size=2).map(tuple),
)
keys = st.binary(max_size=8) | st.builds(
    ContentKey,
    tokens=tokens,
    lora=loras,
    salt=salts,
    images=st.lists(st.tuples(names, integers), max_size=2).map(tuple),
    group=integers,
)
some_keys = st.lists(keys, max_size=3).map(tuple)
commands = st.one_of(
    st.builds(Allocate, integers),
    st.builds(Touch, ids),
    st.builds(Free, ids),
    st.builds(Cache, ids, some_keys),
    st.builds(Lookup, keys),
    st.builds(Acquire, some_keys),
    st.builds(Evict, ids),
    st.just(Reset()),
    st.builds(CacheChain, chains, ids, integers, integers),
    st.builds(LookupChain, chains, integers, ids),
    st.builds(CachePartial, chains, integers, integers, integers),
    st.just(Usage()),
    st.just(PopLeft()),
    st.builds(PopLeftN, integers),
    st.builds(Remove, integers),
    st.builds(Append, integers),
    st.builds(AppendN, ids),
    st.builds(PrependN, ids),
)


@given(commands)
def test_a_command_comes_back_from_json_text(command):
    assert command_from_json(json.loads(json.dumps(command_to_json(command)))) == command


@given(commands)
def test_a_command_is_shown_as_a_call_of_its_verb(command):
    shown = str(command)
    assert shown.startswith(f"{command.verb}(")
    assert shown.endswith(")")


def test_a_hash_is_shown_by_its_first_eight_digits():
    assert str(Cache((3, 4), (b"\x12" * 16, b"\xab" * 16))) == "cache([3, 4], [12121212, abababab])"


def test_a_chain_is_shown_by_its_tokens_and_extra_keys():
    chain = TokenChain((1, 2), ("name", "/path"), "tenant", (Image("cat", 1, 1),))
    shown = str(LookupChain(chain, 2, (0, 1)))
    assert shown == "lookup_chain(<1 2 lora name salt tenant image cat@1>, 2, [0, 1])"


@pytest.mark.parametrize("record", [None, 3, [], "allocate", {}, {"count": 1}])
def test_what_has_no_verb_is_no_command(record):
    with pytest.raises(ValueError) as caught:
        command_from_json(record)
    assert str(caught.value) == f"not a command: {record!r}"


@pytest.mark.parametrize("verb", ["alocate", None, ["allocate"], {}])
def test_an_unknown_verb_is_named_beside_the_known_ones(verb):
    with pytest.raises(ValueError) as caught:
        command_from_json({"do": verb, "count": 1})
    assert f"unknown verb {verb!r}; known are abort, accept, acquire, " in str(caught.value)


@pytest.mark.parametrize(
    "record",
    [{"do": "allocate"}, {"do": "allocate", "count": 1, "extra": 2}, {"do": "reset", "n": 1}],
)
def test_missing_and_surplus_arguments_are_named(record):
    with pytest.raises(ValueError) as caught:
        command_from_json(record)
    given_names = sorted(set(record) - {"do"})
    assert f"{record['do']} takes exactly" in str(caught.value)
    assert str(caught.value).endswith(f"not {given_names}")


CHAIN = {"tokens": [1], "lora": None, "salt": None, "images": []}


@pytest.mark.parametrize(
    "record",
    [
        {"do": "allocate", "count": "3"},
        {"do": "allocate", "count": True},
        {"do": "allocate", "count": 1.5},
        {"do": "free", "block_ids": 3},
        {"do": "free", "block_ids": [0, None]},
        {"do": "lookup", "block_hash": "not hexadecimal"},
        {"do": "lookup", "block_hash": 3},
        {"do": "lookup", "block_hash": {**CHAIN, "group": 0, "lora": []}},
        {"do": "lookup", "block_hash": {**CHAIN, "group": None}},
        {"do": "acquire", "hashes": 4},
        {"do": "acquire", "hashes": [{"tokens": [1]}]},
        {"do": "lookup_chain", "chain": [], "num_tokens": 1, "groups": [0]},
        {"do": "lookup_chain", "chain": {}, "num_tokens": 1, "groups": [0]},
        {"do": "lookup_chain", "chain": {**CHAIN, "lora": []}, "num_tokens": 1, "groups": [0]},
        {
            "do": "lookup_chain",
            "chain": {**CHAIN, "tokens": [float("inf")]},
            "num_tokens": 1,
            "groups": [0],
        },
        {
            "do": "lookup_chain",
            "chain": {**CHAIN, "images": [["cat", 1]]},
            "num_tokens": 1,
            "groups": [0],
        },
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_with_the_verb(record):
    with pytest.raises(ValueError) as caught:
        command_from_json(record)
    assert str(caught.value).startswith(f"bad argument of {record['do']}: ")


def test_a_long_list_of_one_block_is_written_as_a_product():
    assert str(Touch((1,) * 40)) == "touch([1] * 40)"
    assert str(Touch((1, 1))) == "touch([1, 1])"
