"""Seeded runs against indexes: small ones and those of servers, minimised, planted families."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.contract.index_commands import Insert
from poolproof.contract.profile import Profile
from poolproof.harness.choices import SeededChoices
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import FAMILIES, family_of, mixed_keys, required_index_facts
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.production import HASH_BYTES, ProductionSizes
from poolproof.reference.native_index import NativeDictIndex

SIZES = ProductionSizes(24, 2, 5_000, 4_096, 300)


def first_failure(cls, *, production=None, profile=None, runs=100):
    campaign = IndexCampaign(
        cls.__name__, lambda _n, _c: cls(), profile or Profile(), production=production
    )
    for number in range(SIZES.num_runs if production else runs):
        trace = campaign.run(number).trace
        if trace is not None:
            return trace
    return None


@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
@pytest.mark.parametrize("production", [None, SIZES])
def test_the_specification_holds_and_every_required_fact_is_reached(duplicates, production):
    profile = Profile(duplicates=duplicates)
    campaign = IndexCampaign(
        "x", lambda _n, _c: NativeDictIndex(profile=profile), profile, production=production
    )
    facts = set()
    for number in range(SIZES.num_runs if production else 60):
        run = campaign.run(number)
        assert run.trace is None, run.trace.violation
        facts |= run.facts
    can = IndexSession(NativeDictIndex(profile=profile), 4, profile).can
    assert set(required_index_facts(profile, can, is_large=production is not None)) <= facts


def test_the_same_number_gives_the_same_run():
    campaign = IndexCampaign("x", lambda _n, _c: NativeDictIndex(), Profile())
    heard = []
    for _ in range(2):
        commands = []
        campaign.run(7, commands.append)
        heard.append(commands)
    assert heard[0] == heard[1]


def test_the_extent_of_long_runs_says_how_far_they_went():
    campaign = IndexCampaign("x", lambda _n, _c: NativeDictIndex(), Profile(), production=SIZES)
    many, crowded = (
        dict(campaign.run(number).extent) for number in (SIZES.short_runs, SIZES.short_runs + 1)
    )
    assert many["blocks"] == (131_072, 131_072)
    assert many["keys"][1] > 1_000
    assert crowded["blocks under one key"][1] > 255
    assert many["commands in a run"][1] == SIZES.long_commands


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("length", HASH_BYTES)
def test_mixed_keys_are_different_and_of_one_length(kind, length):
    keys = mixed_keys(SeededChoices(length), kind, 2_000, length)
    assert len(set(keys)) == len(keys) == 2_000
    hashes = [key[0] if kind == "pair" else key for key in keys if kind != "int"]
    assert {len(found) for found in hashes} <= {length}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_has_at_least_one_key_and_none_twice(kind):
    for seed in range(200):
        keys = family_of(SeededChoices(seed), kind, 4)
        assert 1 <= len(keys) == len(set(keys)) <= 4


class Changed(NativeDictIndex):
    """What of a key and a block an index keeps; the tests say what is lost of them."""

    def key(self, key):
        return key

    def insert(self, key, block_id):
        super().insert(self.key(key), self.block(block_id))

    def block(self, block_id):
        return block_id

    def pop(self, key, block_id):
        answer = super().pop(self.key(key), self.block(block_id))
        return None if answer is None else block_id

    def get(self, key):
        return super().get(self.key(key))

    def contains(self, key, block_id):
        return super().contains(self.key(key), self.block(block_id))

    def carriers(self, key):
        return super().carriers(self.key(key))


KEYS_LOST = {
    "the beginning alone": ("bytes", lambda key: key[:4]),
    "the beginning alone, longer": ("bytes", lambda key: key[:9]),
    "the end alone": ("bytes", lambda key: key[-6:]),
    "up to the first zero": ("bytes", lambda key: key.partition(b"\0")[0]),
    "the sum of bytes": ("bytes", sum),
    "32 bits": ("int", lambda key: key & 0xFFFFFFFF),
    "48 bits": ("int", lambda key: key % 2**48),
    "as a float": ("int", float),
    "Python's hash": ("int", hash),
    "the hash of a pair": ("pair", lambda key: key[0]),
    "the group of a pair in 8 bits": ("pair", lambda key: (key[0], key[1] & 255)),
    "hash and group added": ("pair", lambda key: int.from_bytes(key[0], "big") + key[1]),
}


@pytest.mark.parametrize("name", KEYS_LOST)
def test_an_index_that_keeps_a_part_of_a_key_is_found(name):
    kind, keep = KEYS_LOST[name]
    cls = type("Keeps", (Changed,), {"key": lambda _self, key: keep(key), "key_kinds": (kind,)})
    small = first_failure(cls, runs=200)
    assert small is not None or first_failure(cls, production=SIZES) is not None


@pytest.mark.parametrize("bits", [8, 9, 12, 16])
def test_block_ids_of_few_bits_are_found_and_the_trace_says_where_they_end(bits):
    cls = type("Ids", (Changed,), {"block": lambda _self, block: block % 2**bits})
    trace = first_failure(cls, production=SIZES)
    assert trace is not None
    minimal = minimise(trace, execute_in_process(lambda _n, _c: cls()))
    assert max(command.block_id for command in minimal.commands) == 2**bits
    assert minimal.num_blocks == 2**bits + 1


@pytest.mark.parametrize("most", [20, 100, 255])
def test_a_key_that_loses_its_blocks_beyond_a_number_is_found(most):
    class Crowded(NativeDictIndex):
        def pop(self, key, block_id):
            if len(self.carriers(key)) > most:
                self._model.carriers.pop(key)
                return block_id
            return super().pop(key, block_id)

    assert first_failure(Crowded, production=SIZES) is not None


def test_a_minimal_trace_of_keys_taken_for_one_another_has_two_plain_keys():
    cls = type("Keeps", (Changed,), {"key": lambda _self, key: key[:5], "key_kinds": ("bytes",)})
    trace = first_failure(cls, production=SIZES)
    minimal = minimise(trace, execute_in_process(lambda _n, _c: cls()))
    assert len(minimal.commands) == 2
    one, other = (command.key for command in minimal.commands)
    assert one[:5] == other[:5]
    assert max(len(one), len(other)) == 6


def test_a_minimal_trace_names_plain_keys_where_keys_do_not_matter():
    class Never(NativeDictIndex):
        key_kinds = ("bytes",)

        def insert(self, key, block_id): ...

    minimal = minimise(first_failure(Never), execute_in_process(lambda _n, _c: Never()))
    assert minimal.commands == (Insert(bytes(1), 0),)
    assert minimal.num_blocks == 1
