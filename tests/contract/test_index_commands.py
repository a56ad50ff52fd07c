"""Commands of the index level: their JSON form, how they are shown, and what an index can do."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import json

import pytest

from poolproof.contract.command_json import command_from_json, command_to_json
from poolproof.contract.index_commands import Clear, Contains, Get, Insert, Pop, index_key_text
from poolproof.contract.target import TargetError, capabilities_of

KEYS = [b"", bytes(4), b"\xff" * 64, 0, 2**64 - 1, (b"ab", 0), (bytes(32), 7)]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", [Insert, Pop, Contains])
def test_a_command_comes_back_from_json_as_it_was(command, key):
    written = json.loads(json.dumps(command_to_json(command(key, 65_536))))
    assert command_from_json(written) == command(key, 65_536)


@pytest.mark.parametrize("command", [Get(b"\0a"), Get(3), Clear()])
def test_commands_without_a_block_come_back_as_well(command):
    assert command_from_json(command_to_json(command)) == command


@pytest.mark.parametrize("key", [None, True, 1.5, [], ["00"], ["00", True], [0, 0], {}, "xy"])
def test_what_is_no_key_is_named(key):
    with pytest.raises(ValueError, match="bad argument of get"):
        command_from_json({"do": "get", "key": key})


def test_keys_that_differ_at_one_end_are_shown_differently():
    base = bytes(range(64))
    shown = {index_key_text(key) for key in (base, base[:-1] + b"x", b"x" + base[1:], base[:-1])}
    assert len(shown) == 4
    assert str(Insert((b"\1\2", 3), 4)) == "insert((0102, 3), 4)"


class Smallest:
    def insert(self, key, block_id): ...
    def pop(self, key, block_id): ...
    def get(self, key): ...


def test_an_index_is_told_by_its_verbs_and_takes_hashes_unless_it_says_more():
    can = capabilities_of(Smallest())
    assert (can.level, can.key_kinds) == ("index", ("bytes",))
    assert can.verbs == {"insert", "pop", "get"}
    assert not can.observers


def test_a_missing_verb_is_named():
    class NoPop:
        insert = Smallest.insert
        get = Smallest.get

    with pytest.raises(TargetError, match=r"NoPop lacks pop\(\), which an index target needs"):
        capabilities_of(NoPop())


@pytest.mark.parametrize("kinds", [(), ("text",), "bytes", None, 3, (["bytes"],)])
def test_kinds_of_keys_that_do_not_exist_are_named(kinds):
    target = Smallest()
    target.key_kinds = kinds
    with pytest.raises(TargetError, match="key_kinds must be a tuple with some of 'bytes', 'int'"):
        capabilities_of(target)
