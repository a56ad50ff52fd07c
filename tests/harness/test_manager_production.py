"""What runs at production sizes rely on: rows, prompts that collide, cheap reads, plain answers."""

import zlib

import pytest

from poolproof.bugs.clean_groups import CleanRingManager
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.production_manager_families import FAMILIES
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, AppendTokens, Draft, Finish, Fork, Step
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness import manager_production
from poolproof.harness.extent import Extent
from poolproof.harness.manager_driver import ManagerCampaign, ManagerProductionCampaign
from poolproof.harness.manager_production import QUICK_SIZES, SCRIPTS
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.replay import replay
from poolproof.harness.token_collisions import LARGEST_TOKEN, ConfusablePrompts
from poolproof.reference.manager_legality import undefined_for_manager


def session_of(cls=CleanManager, num_blocks=12, **rows):
    profile = ManagerProfile(**rows)
    return ManagerSession(cls(num_blocks, 4, rules=profile), profile, num_blocks, 4)


def prompt(seq_id, *tokens):
    return Admit(seq_id, TokenChain(tokens), 0)


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_every_confusable_prompt_has_legal_tokens_and_differs_from_its_twin(size):
    prompts = ConfusablePrompts("seed", size)
    found = [*prompts.of_tokens(), *prompts.of_bases(64), *prompts.of_parents(80)]
    found += [*prompts.of_places(), *prompts.of_depths(40), prompts.of_chance(50)]
    for one in [*found, *prompts.of_keys()]:
        assert not set(one.cached) & set(one.asked), one.name
        for chain in (*one.cached, *one.asked):
            assert all(0 <= token <= LARGEST_TOKEN for token in chain.tokens), one.name


@pytest.mark.parametrize("base", [2, 31, 257, 4_095])
def test_two_prompts_collide_in_a_polynomial_of_every_base_below_the_bound(base):
    def value(chain):
        total = 0
        for token in chain.tokens[:4]:
            total = total * base + token
        return total

    confusions = list(ConfusablePrompts("seed", 4).of_bases(64))
    collide = [
        one for one in confusions if {*map(value, one.cached)} & {*map(value, one.asked)}
    ]  # fmt: skip
    assert collide


@pytest.mark.parametrize("base", [0x9E3779B97F4A7C15, 6_364_136_223_846_793_005])
def test_tokens_of_one_value_are_found_for_a_known_factor_in_64_bits(base):
    def value(chain):
        total = 0
        for token in chain.tokens[:-1]:
            total = (total * base + token) % 2**64
        return total

    found = [one for one in ConfusablePrompts("seed", 4).of_tokens() if "64 bits" in one.name]
    assert any(value(one.cached[0]) == value(one.asked[0]) for one in found)


def test_every_place_of_a_short_block_is_changed():
    block, *_ = ConfusablePrompts("seed", 8).of_places()
    (first,) = block.cached
    changed = [
        [place for place in range(8) if first.tokens[place] != other.tokens[place]]
        for other in block.asked
    ]
    assert [[place] for place in range(8)] == [places for places in changed if len(places) == 1]


def test_the_checksums_of_confusable_tokens_are_equal():
    confusions = ConfusablePrompts("seed", 4).of_tokens()
    (one,) = (each for each in confusions if each.name == "CRC-32 of 4 bytes each")
    ends = [chain.tokens[-5:-1] for chain in (*one.cached, *one.asked)]
    sums = {zlib.crc32(b"".join(t.to_bytes(4, "little") for t in end)) for end in ends}
    assert len(ends) == 2
    assert len(sums) == 1


def test_no_sequence_is_given_more_tokens_than_a_row_is_wide():
    session = session_of(max_tokens=6)
    model = session.model
    assert undefined_for_manager(model, prompt(0, *range(7))) is not None
    assert session.step(prompt(0, *range(5))) is None
    assert undefined_for_manager(model, Draft(0, (1, 2))) is not None
    assert session.step(Step()) is None
    assert undefined_for_manager(model, AppendTokens(0, (1, 2))) is not None
    assert session.step(AppendTokens(0, (1,))) is None


def test_lookahead_ends_where_the_row_ends():
    session = session_of(max_tokens=8, lookahead_tokens=3)
    assert session.step(prompt(0, *range(8))) is None
    assert len(session.target.block_table(0)) == 2


def test_without_a_row_a_sequence_may_wait_and_otherwise_not():
    class TwoRows(CleanManager):
        def admit(self, seq_id, tokens, **named):
            return super().admit(seq_id, tokens, **named) if len(self.sequences) < 2 else "later"

        def fork(self, seq_id, child_id):
            return super().fork(seq_id, child_id) if len(self.sequences) < 2 else "later"

    commands = (prompt(0, 1), prompt(1, 2), Step(), prompt(2, 3), Fork(0, 3), Finish(0))
    declared, silent = session_of(TwoRows, max_sequences=2), session_of(TwoRows)
    assert [declared.step(command) for command in commands] == [None] * len(commands)
    assert [getattr(silent.step(c), "invariant", None) for c in commands[:4]] == [
        None, None, None, "ADM",
    ]  # fmt: skip


class _EqualsAll:
    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize("entry", [_EqualsAll(), True, 1.0])
def test_a_table_of_no_integers_is_found_out(entry):
    class Odd(CleanManager):
        odd = False

        def block_table(self, seq_id, group=0):
            table = super().block_table(seq_id, group)
            return [entry for _ in table] if self.odd else table

    session = session_of(Odd)
    assert session.step(prompt(0, 1)) is None
    session.target.odd = True
    assert session.step(Step()) is not None


def test_copies_that_were_answered_belong_to_the_caller():
    kept = []

    class Keeps(CleanManager):
        def append(self, seq_id, tokens):
            kept.append(super().append(seq_id, tokens))
            return kept[-1]

    session = session_of(Keeps)
    commands = (prompt(0, 1), Step(), Fork(0, 1), AppendTokens(1, (2,)))
    assert [session.step(command) for command in commands] == [None] * 4
    assert kept == [[]]


def test_a_write_by_another_is_seen_where_prompts_were_read_before():
    class HandsOutTwice(CleanManager):
        def append(self, seq_id, tokens):
            copies = super().append(seq_id, tokens)
            if len(self.sequences[seq_id].tokens) > 8:
                self.sequences[seq_id].table[-1] = self.sequences[0].table[0]
            return copies

    session = session_of(HandsOutTwice, num_blocks=100)
    found = None
    for command in (prompt(0, *range(8)), prompt(1, *range(20, 28)), Step(), Step(),
                    AppendTokens(1, (5,)), Step()):  # fmt: skip
        found = found or session.step(command)
    assert found is not None


def test_a_pair_of_values_that_collides_shrinks_to_the_smallest_one():
    variant = FAMILIES["lower bits of a token"]["8"]
    profile = ManagerProfile()
    campaign = ManagerProductionCampaign(
        "masked", lambda n, on: variant.cls(n, 4, enable_caching=on), profile, 4
    )
    number = QUICK_SIZES.scripts_for(profile).index("token values")
    small = minimise(campaign.run(number).trace, execute_in_process(campaign.make))
    assert len(small.commands) == 3
    assert small.num_blocks <= 3
    tokens = {token for c in small.commands if isinstance(c, Admit) for token in c.chain.tokens}
    assert tokens == {0, 256}


@pytest.mark.parametrize("num_layouts", [3, 5, 13, 17, 40])
def test_layouts_share_the_scripts_and_the_first_plays_them_all(num_layouts):
    profile = ManagerProfile()
    parts = [
        QUICK_SIZES.shared(place, num_layouts).scripts_for(profile) for place in range(num_layouts)
    ]
    meant = [name for name, plan in SCRIPTS.items() if plan.is_for(profile)]
    assert parts[0] == [name for name in meant if SCRIPTS[name].num_blocks(QUICK_SIZES)]
    assert {name for part in parts[1:] for name in part} == set(parts[0])
    assert all(part for part in parts)


def test_the_extent_of_a_run_is_counted_from_its_commands():
    setup = Trace("t", "manager", ManagerProfile(), 9, True, (), options={"block_size": 4})
    extent = Extent.of_run(setup, [prompt(0, 5, 7), Step(), AppendTokens(0, (2**31 - 1,))])
    assert dict(extent) == {
        "blocks": (9, 9),
        "tokens of a block": (4, 4),
        "tokens in a prompt": (2, 2),
        "token id": (5, 2**31 - 1),
        "commands in a run": (3, 3),
    }


def _shared(place):
    """A manager that keeps something of its own where all managers of its class do."""

    class Shared(CleanManager):
        books = None

        def __init__(self, num_blocks, block_size, **options):
            super().__init__(num_blocks, block_size, **options)
            where = self if place == "sequences" else self.pool
            if type(self).books is None:
                type(self).books = getattr(where, place)
            elif len(type(self).books) in (0, num_blocks):
                setattr(where, place, type(self).books)

    return Shared


@pytest.mark.parametrize("place", ["ref_counts", "hashes"])
def test_two_managers_that_share_state_are_found_out(place):
    def make(num_blocks, enable_caching):
        return cls(num_blocks, 4, enable_caching=enable_caching)

    cls = _shared(place)
    campaign = ManagerCampaign("shared", make, ManagerProfile(), 4)
    trace = campaign.run(1).trace
    assert "share state" in trace.violation.sentence
    cls.books = None
    assert "share state" in replay(trace, make).violation.sentence


def test_a_careful_run_of_a_manager_that_shares_nothing_holds():
    campaign = ManagerCampaign("clean", lambda n, _: CleanManager(n, 4), ManagerProfile(), 4)
    for number in (1, 17, 33, 49):
        assert campaign.setup(number).options["careful"]
        assert campaign.run(number).trace is None


def test_that_no_second_manager_can_be_built_is_said_and_no_finding():
    built = []

    def make(num_blocks, _caching):
        built.append(num_blocks)
        if len(built) > 1:
            raise RuntimeError("one at a time")
        return CleanManager(num_blocks, 4)

    run = ManagerCampaign("alone", make, ManagerProfile(), 4).run(1)
    assert run.trace is None
    assert [remark.split(":")[0] for remark in run.remarks] == [
        "building a second instance beside the first raised RuntimeError"
    ]


class Stubborn(CleanManager):
    """Finds room for a prompt and for nothing more."""

    def append(self, seq_id, tokens):
        return "later"

    schedule = append


def played(cls, script, **rows):
    """The trace of a run of one script that fails, or None."""
    profile = ManagerProfile(**rows)
    campaign = ManagerProductionCampaign(
        "x", lambda n, on: cls(n, 4, enable_caching=on, rules=profile), profile, 4
    )
    return campaign.run(list(campaign.plans()).index(script)).trace


@pytest.mark.parametrize("script", ["every length", "chunks"])
def test_a_target_that_puts_everything_off_comes_to_an_end(script):
    assert played(Stubborn, script, admission="sound") is None


def test_a_ring_grows_through_every_length_by_single_tokens():
    ring = {"publishes": "never", "window_blocks": "reused"}
    groups = (CacheGroup("sliding", window=6),)
    assert played(CleanRingManager, "every length", groups=groups, **ring) is None


class _FewBits(CleanManager):
    """Of each hash two bytes are the key."""

    def _block_key(self, sequence, entry):
        return super()._block_key(sequence, entry)[:2]


@pytest.mark.parametrize("rows", [{}, {"prior_sightings": 1}, {"held_blocks": "exclusive"}])
def test_keys_of_few_bits_are_found_out_however_late_an_index_takes_them(rows):
    violation = played(_FewBits, "many prompts", **rows).violation
    assert violation.invariant in ("DATA", "IDX")


@pytest.mark.parametrize("num_prior", [0, 1, 3])
def test_where_misses_pass_it_is_tried_out_how_often_a_prompt_has_to_come(num_prior, monkeypatch):
    class Late(_FewBits):
        def _is_taken(self, key):
            self.sightings[key] = self.sightings.get(key, 0) + 1
            return self.sightings[key] > num_prior

    assert played(Late, "many prompts", hits="sound") is not None
    monkeypatch.setattr(manager_production, "_MOST_TIMES", -1)
    assert (played(Late, "many prompts", hits="sound") is None) == (num_prior > 0)


class _GoesOver(CleanManager):
    """At an admission the first sequence goes over to a free block that holds what its own does."""

    def _admit(self, sequence, num_tokens):
        granted = super()._admit(sequence, num_tokens)
        first = self.sequences[0]
        carriers = self.pool.index.get(self._key(first, 0), ())
        spare = next((block for block in carriers if not self.pool.ref_count(block)), None)
        if spare is not None:
            self.pool.touch([spare])
            self.pool.free(first.table[:1])
            first.table[0] = spare
        return granted


class _LosesABlock(_GoesOver):
    """The third sequence has a block of the first besides."""

    def _admit(self, sequence, num_tokens):
        granted = super()._admit(sequence, num_tokens)
        if sequence.seq_id == 2:
            sequence.table[-1] = self.sequences[0].table[0]
        return granted


BY_CONTENT = ManagerProfile(index="content", tables="merged")


def takes_what_was_left(_run=None):
    """Two equal prompts in one step, one ends; the other goes over, and all blocks are used."""
    yield from (prompt(0, 1, 2, 3, 4, 5), prompt(1, 1, 2, 3, 4, 5), Step(), Finish(1))
    yield prompt(2, 9)
    yield prompt(3, *range(20, 20 + 4 * 97))


class _OneScript(ManagerProductionCampaign):
    def plans(self):
        return {"goes over": manager_production.Plan(takes_what_was_left, lambda _: 100)}


def by_content(cls):
    return lambda num_blocks, on: cls(num_blocks, 4, enable_caching=on, rules=BY_CONTENT)


@pytest.mark.parametrize("follows_seldom", [False, True])
def test_who_is_followed_seldom_may_have_left_what_is_believed_to_be_in_use(follows_seldom):
    target = by_content(_GoesOver)(100, True)
    session = ManagerSession(target, BY_CONTENT, 100, 4, follows_seldom=follows_seldom)
    violations = [session.step(command) for command in takes_what_was_left()]
    assert any(violations) == follows_seldom


def test_a_run_that_fails_where_tables_are_followed_seldom_counts_if_it_fails_again():
    assert _OneScript("goes over", by_content(_GoesOver), BY_CONTENT, 4).run(0).trace is None
    found = _OneScript("loses", by_content(_LosesABlock), BY_CONTENT, 4).run(0).trace
    assert len(found.commands) == 5
