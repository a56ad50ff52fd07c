"""Commands on token chains: contents are compared, whatever the target hashes them to."""

import pytest

from poolproof.contract.commands import (
    Allocate,
    CacheChain,
    CachePartial,
    Free,
    LookupChain,
    Usage,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.pool_session import PoolSession
from poolproof.reference.native_pool import NativeDictPool

CHAIN = TokenChain((1, 1, 2, 2))
PROFILE = Profile(keys="partial")


def session_of(cls=NativeDictPool, *, profile=PROFILE):
    return PoolSession(cls(4, profile=profile, block_size=2), profile, 4, block_size=2)


def after(session, *commands):
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


CACHED = (Allocate(3), CacheChain(CHAIN, (0, 1), 0, 0), CacheChain(CHAIN, (2,), 0, 1))


def test_chains_are_cached_and_found():
    session = session_of()
    assert after(
        session, *CACHED, LookupChain(CHAIN, 4, (0,)), LookupChain(CHAIN, 2, (0, 1)),
        LookupChain(CHAIN, 4, (0, 1)), Usage(), Free((2, 1, 0)),
    ) is None  # fmt: skip
    assert {"a chain of tokens was cached", "a lookup over several groups hit"} <= session.facts
    assert "a lookup over groups missed" in session.facts


def test_blocks_behind_cached_ones_get_the_key_of_their_place():
    session = session_of()
    assert after(session, Allocate(2), CacheChain(CHAIN, (0, 1), 1, 0)) is None
    assert session.reference.keys == {0: [], 1: [CHAIN.prefix(4, 0)], 2: [], 3: []}
    assert "a chain was cached behind cached blocks" in session.facts


def test_partial_entries_are_made_replaced_and_promoted():
    chain = TokenChain((1, 2, 3, 4))
    profile = PROFILE
    target = NativeDictPool(4, profile=profile, block_size=4)
    session = PoolSession(target, profile, 4, block_size=4)
    assert after(
        session, Allocate(1), CachePartial(chain, 0, 2, 0), CachePartial(chain, 0, 1, 0),
        CachePartial(chain, 0, 3, 0), CacheChain(chain, (0,), 0, 0),
    ) is None  # fmt: skip
    assert {
        "a partial entry was made",
        "a block carried two keys",
        "a longer partial key replaced a shorter one",
        "a partial entry was promoted to a full one",
    } <= session.facts


class IgnoresTheParent(NativeDictPool):
    """Keys by a block's own tokens: equal blocks under different parents look alike."""

    def lookup_chain(self, chain, num_tokens, groups):
        own = chain.tokens[num_tokens - 2 : num_tokens]
        for carriers in self._model.carriers.values():
            for block in carriers:
                if self._model.keys[block][0].tokens[-2:] == own:
                    return [block] * len(groups)
        return None


def test_a_hit_on_another_prefix_is_wrong_data():
    session = session_of(IgnoresTheParent)
    foreign = TokenChain((3, 3, 2, 2))
    found = after(
        session, Allocate(2), CacheChain(CHAIN, (0, 1), 0, 0), LookupChain(foreign, 4, (0,))
    )
    assert (found.invariant, found.severity) == ("IDX", Severity.WRONG_DATA_OF_ANOTHER)


@pytest.mark.parametrize(
    ("answer", "severity", "words"),
    [
        (None, Severity.LOST_HIT, "answered None; it must answer a block for each group"),
        ([0], Severity.CRASH, "answered [0]; it must answer a block for each group"),
        (0, Severity.CRASH, "answered 0; it must answer a block for each group"),
        ([0, 1], Severity.WRONG_DATA_OF_ANOTHER, "answered 1, but the key is carried by [2]"),
    ],
)
def test_a_wrong_answer_over_groups_is_named(answer, severity, words):
    class Other(NativeDictPool):
        def lookup_chain(self, chain, num_tokens, groups):
            return answer

    found = after(session_of(Other), *CACHED, LookupChain(CHAIN, 2, (0, 1)))
    assert (found.invariant, found.severity) == ("IDX", severity)
    assert words in found.sentence


def test_a_hit_where_a_group_has_none_is_named():
    class Half(NativeDictPool):
        def lookup_chain(self, chain, num_tokens, groups):
            return [0]

    found = after(session_of(Half), *CACHED, LookupChain(CHAIN, 4, (0, 1)))
    assert found.sentence.endswith("answered [0]; it must answer None")


def test_a_pool_that_may_drop_may_miss():
    class Drops(NativeDictPool):
        def lookup_chain(self, chain, num_tokens, groups):
            self._model.evict([0])
            return super().lookup_chain(chain, num_tokens, groups)

    profile = Profile(keys="partial", retention="may-drop")
    commands = (*CACHED, Free((0, 1, 2)), LookupChain(CHAIN, 2, (0, 1)))
    assert after(session_of(Drops, profile=profile), *commands) is None
    assert after(session_of(Drops), *commands).invariant == "I4"


@pytest.mark.parametrize("answer", [None, "0.25", 0.5, float("nan"), 25])
def test_a_wrong_usage_is_named(answer):
    class Other(NativeDictPool):
        def usage(self):
            return answer

    found = after(session_of(Other), Allocate(1), Usage())
    assert (found.invariant, found.severity) == ("OWN", Severity.FALSE_REFUSAL)
    assert found.sentence == f"usage() answered {answer!r}, but the share of held blocks is 0.25"


class HalfAHit(NativeDictPool):
    """Answers a list with a hole where a group has no block."""

    def lookup_chain(self, chain, num_tokens, groups, /):
        return [self.lookup(chain.prefix(num_tokens, group)) for group in groups]


def test_a_lookup_that_misses_one_group_is_no_hit():
    found = after(session_of(HalfAHit), *CACHED, LookupChain(CHAIN, 4, (0, 1)))
    assert found.invariant == "IDX"
    assert found.sentence.endswith("it must answer None where a group has no block")


class PublishesFree(NativeDictPool):
    """Refuses to cache part of a free block, and has cached it."""

    def cache_partial(self, chain, block_id, num_tokens, group, /):
        free = block_id in self._model.free
        self._model.cache_partial(block_id, chain.prefix(num_tokens, group), num_tokens)
        if free:
            raise ValueError("nobody holds the block")


def test_misuse_of_a_part_that_changed_something_is_found_in_a_pool_that_shows_little():
    class ShowsNothing(PublishesFree):
        block_hash = free_order = ref_count = take_events = None

    found = after(session_of(ShowsNothing), CachePartial(CHAIN, 0, 1, 0))
    assert found.invariant == "MISUSE"


def test_misuse_may_name_more_blocks_than_the_chain_fills():
    session = session_of()
    assert after(session, Allocate(3), CacheChain(CHAIN, (0, 1, 2, 3), 0, 0)) is None
    assert after(session, CachePartial(CHAIN, 3, 9, 0)) is None
