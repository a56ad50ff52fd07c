"""Faults of managers with states, merged tables, copies and worker tables, each named.

What any manager may do wrong is in test_manager_session.py.
"""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    Preempt,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.choices import SeededChoices
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.harness.single_invariant import SingleManagerSession
from poolproof.reference.native_manager import NativeSequenceManager

A3 = Admit(0, TokenChain((1, 2, 3)), 0)
GROWN = AppendTokens(0, (4, 5))
A5 = Admit(0, TokenChain((1, 2, 3, 4, 5)), 0)


def session_of(cls=NativeSequenceManager, num_blocks=8, *, only=None, **rows):
    """A session over blocks of two tokens; with `only` it looks for one invariant."""
    profile = ManagerProfile.from_mapping(rows)
    manager = cls(num_blocks, 2, profile=profile)
    kind, options = (ManagerSession, {}) if only is None else (SingleManagerSession, {"only": only})
    return kind(manager, profile, num_blocks, 2, enable_caching=True, check_every=1, **options)


def run(session, *commands):
    """The first violation, or None; every command has to be legal."""
    for command in commands:
        assert session.is_defined(command), command
        violation = session.step(command)
        if violation is not None:
            assert command is commands[-1], (command, violation)
            return violation
    return None


def spoiled(**methods):
    return type("Spoiled", (NativeSequenceManager,), methods)


def test_a_verb_that_the_target_lacks_is_not_defined():
    session = session_of(groups="full+full")
    run(session, A3, Step())
    assert not session.is_defined(Fork(0, 1))


def test_an_observer_that_raises_while_blocks_may_vanish_is_a_finding():
    def is_cached(self, block_id, /):
        raise KeyError(block_id)

    violation = run(session_of(spoiled(is_cached=is_cached), retention="may-drop"), A3)
    assert violation.invariant == "CRASH"
    assert violation.command_index == 0


def test_a_count_that_cannot_be_read_at_the_end_is_a_finding():
    session = session_of()
    run(session, A3, Step(), Finish(0))
    session.target.num_free = lambda: "many"
    violation = session.end()
    assert violation.invariant == "CRASH"
    assert violation.command_index == 2


def test_who_may_find_less_may_need_more():
    session = session_of(num_blocks=4, hits="sound")
    later = Admit(1, TokenChain((1, 2, 3, 4, 9, 9, 9)), 0)
    assert run(session, A5, Step(), later) is None
    assert session.calls.refused


@pytest.mark.parametrize("only", [None, "ADM", "OWN"])
def test_a_sequence_that_never_fits_is_not_told_to_wait(only):
    def admit(self, seq_id, tokens, **_):
        return "later"

    violation = run(session_of(spoiled(admit=admit), 1, only=only), A5)
    assert (violation and violation.invariant) == (None if only == "OWN" else "ADM")


def test_what_a_transfer_left_is_computed_whole_where_there_are_no_chunks():
    session = session_of(spoiled(schedule=None))
    commands = Load(0, TokenChain((1, 2, 3, 4, 5)), 2), Loaded(0)
    assert run(session, *commands) is None
    assert session.model.sequences[0].num_scheduled == 3


def test_ending_again_is_asked_for_only_where_it_is_defined():
    can = manager_capabilities_of(NativeSequenceManager(2, 2))
    fact = "a sequence was ended a second time or before it was admitted"
    assert fact in required_manager_facts(ManagerProfile(), can)
    assert fact not in required_manager_facts(ManagerProfile(finish_again="undefined"), can)


@pytest.mark.parametrize("verb", ["swap_out", "swap_in"])
@pytest.mark.parametrize("admission", ["exact", "sound"])
def test_a_swap_that_fits_is_not_refused(verb, admission):
    session = session_of(spoiled(**{verb: lambda *_: "later"}), host_blocks=8, admission=admission)
    commands = [SwapOut(0)] if verb == "swap_out" else [SwapOut(0), SwapIn(0)]
    violation = run(session, A3, Step(), *commands)
    assert session.calls.refused
    assert (violation is None) == (admission == "sound")


def test_a_table_that_a_refused_growth_changed_is_named():
    def append(self, seq_id, tokens, /):
        self._model.sequences[seq_id].tables[0][-1] = 5
        return "later"

    session = session_of(spoiled(append=append), groups="sliding:4", null_block=7)
    session.model.profile = ManagerProfile.from_mapping(
        {"groups": "sliding:4", "null_block": 7, "admission": "sound"}
    )
    violation = run(session, A3, Step(), AppendTokens(0, (4,)))
    assert violation.invariant == "ATOM"


class CopiesAtOnce(NativeSequenceManager):
    """A fork gets its own copy of a last block that is not full."""

    def fork(self, seq_id, child_id, /):
        super().fork(seq_id, child_id)
        child = self._model.sequences[child_id]
        return self._take(child, child.num_computed)


def test_a_fork_may_copy_the_last_block_at_once():
    session = session_of(CopiesAtOnce)
    assert run(session, A3, Step(), Fork(0, 1)) is None
    assert session.model.sequences[1].tables == [[0, 2]]
    assert "a block was copied on write" in session.facts


def appending_with(pair):
    """A manager that orders a copy more than it has to."""

    def append(self, seq_id, tokens, /):
        return [*NativeSequenceManager.append(self, seq_id, tokens), pair]

    return spoiled(append=append)


def test_a_copy_to_nowhere_is_named():
    violation = run(session_of(appending_with((0, 99))), A3, Step(), AppendTokens(0, (4,)))
    assert violation is not None
    assert "their target 99 is none of 8 blocks" in violation.sentence


def test_a_copy_of_what_nobody_has_written_harms_where_it_is_read_and_nowhere_else():
    assert run(session_of(appending_with((4, 5))), A3, Step(), AppendTokens(0, (4,))) is None
    into_its_own = session_of(appending_with((4, 0)))
    violation = run(into_its_own, A3, Step(), AppendTokens(0, (4,)))
    assert violation is not None
    assert "that nobody has written" in violation.sentence


class Relocates(NativeSequenceManager):
    """A sequence that grows moves to other blocks as long as nothing of it is computed."""

    def append(self, seq_id, tokens):
        sequence = self._model.sequences[seq_id]
        answer = super().append(seq_id, tokens)
        if not sequence.num_computed and answer != "later" and self.num_free():
            (table,) = sequence.tables
            moved = [*table[:-1], next(iter(self._model.pool.free))]
            self._model.follow(sequence, [moved])
        return answer


def test_a_table_may_move_as_long_as_nothing_is_computed():
    session = session_of(Relocates)
    assert run(session, A3, AppendTokens(0, (4,)), Step(), Finish(0)) is None


# A prompt of five blocks, whose first chunk would fit into two.
LONG = TokenChain((1,) * 9)


def refusing(answer):
    """A manager that answers this to whoever comes."""

    def admit(self, seq_id, tokens, **named):
        return answer

    return spoiled(admit=admit)


@pytest.mark.parametrize(("num_blocks", "is_right"), [(4, True), (5, False)])
def test_a_prompt_that_never_fits_may_be_refused_for_ever_at_its_first_chunk(num_blocks, is_right):
    session = session_of(refusing("never"), num_blocks=num_blocks)
    violation = run(session, Admit(0, LONG, 4))
    assert (violation is None) == is_right


def test_a_key_goes_when_its_block_is_granted_to_be_written_over_or_when_it_is_written():
    class UnkeysAtOnce(NativeSequenceManager):
        def append(self, seq_id, tokens):
            answer = super().append(seq_id, tokens)
            sequence = self._model.sequences[seq_id]
            if answer != "later":
                self._model.pool.forget_keys(sequence.tables[0][sequence.num_computed // 2 :])
            return answer

    full = Admit(0, TokenChain((1, 2, 3, 4)), 0)
    commands = (
        full, Step(), Fork(0, 1), Truncate(0, 1), Finish(1), AppendTokens(0, (5,)), Finish(0),
    )  # fmt: skip
    for cls in (NativeSequenceManager, UnkeysAtOnce):
        assert run(session_of(cls), *commands) is None


STATES = {"groups": "full+state", "null_block": 7}


@pytest.mark.parametrize("states", ["every-block", "step-end"])
def test_a_state_is_written_and_read(states):
    session = session_of(**STATES, states=states, publishes="scheduled", same_step_hit="allowed")
    commands = Admit(0, TokenChain((1, 2)), 0), Step(), AppendTokens(0, (3,)), Step()
    assert run(session, *commands) is None


def test_a_state_that_was_overwritten_is_named():
    session = session_of(**STATES)
    run(session, A3, Step(), AppendTokens(0, (4,)))
    session.memory.device.slots[session.model.sequences[0].tables[1][-1]][0] = None
    assert run(session, Step()).invariant == "DATA"


def test_a_long_prefix_is_shortened():
    session = session_of(num_blocks=12)
    run(session, Admit(0, TokenChain(tuple(range(15))), 0), Step(), AppendTokens(0, (4,)))
    session.memory.device.slots[7][0] = None
    violation = run(session, Step())
    assert "<0 1 2 3 ... (15 tokens) ... 11 12 13 14>" in violation.sentence


def test_a_hit_on_what_nobody_is_going_to_write_is_named():
    session = session_of(publishes="scheduled", same_step_hit="allowed")
    run(session, A3, Step(), Admit(1, TokenChain((7, 8, 9)), 0))
    session.memory.device.slots[0][0] = None
    assert run(session, Admit(2, TokenChain((1, 2, 4)), 0)).invariant == "DATA"


def test_a_hit_on_what_this_step_writes_is_right_beside_a_sequence_that_waits():
    session = session_of(publishes="scheduled", same_step_hit="allowed")
    waiting = Admit(0, TokenChain((7, 8, 9)), 0), Step(), Preempt(0)
    writing = Admit(1, TokenChain((1, 2, 3)), 0)
    assert run(session, *waiting, writing, Admit(2, TokenChain((1, 2, 4)), 0), Step()) is None
    assert session.model.sequences[2].tables[0][0] == session.model.sequences[1].tables[0][0]


class Reports(NativeSequenceManager):
    update = None

    def take_table_update(self, seq_id, group=0):
        return self.update or (True, self.block_table(seq_id, group))


@pytest.mark.parametrize(
    ("update", "invariant", "words"),
    [
        (7, "CRASH", "answered 7; it must answer (replaced, block ids)"),
        ((True, [0, 99]), "I2", "holds 99"),
        ((True, [0]), "I2", "has 1 block, but its tokens need 2"),
        (None, None, ""),
    ],
)
def test_what_the_worker_is_told_has_to_be_a_table(update, invariant, words):
    violation = run(session_of(type("Told", (Reports,), {"update": update})), A3, Step())
    assert (violation and violation.invariant) == invariant
    assert words in (violation.sentence if violation else "")


def test_a_block_that_is_hit_twice_is_named():
    def block_table(self, seq_id, group=0):
        table = NativeSequenceManager.block_table(self, seq_id, group)
        return table if seq_id == 0 else [table[0], table[0], *table[2:]]

    again = Admit(1, TokenChain((1, 2, 3, 4, 9)), 0)
    violation = run(session_of(spoiled(block_table=block_table)), A5, Step(), again)
    assert violation.invariant in {"I2", "DATA", "IDX", "I3"}
    assert "block 0" in violation.sentence


def changed_by_growth(change):
    """A manager whose table of a sequence is another one after it has grown."""

    class Changed(NativeSequenceManager):
        has_grown = False

        def append(self, seq_id, tokens, /):
            self.has_grown = True
            return super().append(seq_id, tokens)

        def block_table(self, seq_id, group=0):
            table = super().block_table(seq_id, group)
            return change(table) if self.has_grown else table

    return Changed


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (lambda table: [6, *table[1:]], "I2"),
        (lambda table: table[:1], "ADM"),
        (lambda _: [6], "ADM"),
    ],
)
@pytest.mark.parametrize("only", [None, "I2", "OWN"])
def test_a_growth_changes_nothing_that_was_there(change, first, only):
    session = session_of(changed_by_growth(change), only=only)
    violation = run(session, A3, Step(), AppendTokens(0, (4,)))
    assert violation.invariant == (only or first)


MERGED = {"tables": "merged", "duplicates": "first"}


class Merges(NativeSequenceManager):
    """Shows `merged` as the table of sequence 1 from its first step on."""

    merged = ()

    def step(self, batch, /):
        super().step(batch)
        if self.merged:
            self._model.merge(self._model.sequences[1], [[*self.merged]])


def merging(*table):
    return type("MergesThem", (Merges,), {"merged": table})


def test_accepted_drafts_of_a_merged_table_are_right():
    session = session_of(**MERGED)
    assert run(session, A3, Draft(0, (4, 5)), Step(), Accept(0, 1)) is None


@pytest.mark.parametrize(
    ("table", "first", "alone"),
    [((0, 3), None, None), ((4, 3), "IDX", None), ((2, 5), "I2", "I2"), ((0,), "I2", "I2")],
)
@pytest.mark.parametrize("only", [None, "I2"])
def test_a_merged_entry_names_a_carrier_of_its_key(table, first, alone, only):
    session = session_of(merging(*table), only=only, **MERGED)
    run(session, A3, Admit(1, TokenChain((1, 2, 4)), 0))
    violation = run(session, Step())
    assert (violation and violation.invariant) == (alone if only else first)


def test_atom_alone_names_what_a_refusal_changed():
    def append(self, seq_id, tokens, /):
        self._model.sequences[seq_id].tables[0][-1] = 5
        return "later"

    violation = run(session_of(spoiled(append=append), 2, only="ATOM"), A3, Step(), GROWN)
    assert violation is not None


def test_who_is_on_the_host_and_cannot_be_aborted_comes_back_to_end():
    session = session_of(spoiled(abort=None), host_blocks=8)
    run(session, A3, Step(), SwapOut(0))
    workload = ManagerWorkload(SeededChoices("0"), session.model, session.can)
    assert workload.drain() == SwapIn(0)
    assert run(session, SwapIn(0), Finish(0)) is None
    assert workload.drain() is None


INSIDE = {"groups": "full+state", "null_block": 7, "hash_tokens": 2, "eviction": "unspecified"}


def test_a_state_that_is_kept_goes_into_a_free_block():
    session = session_of(appending_with((4, 5)), **INSIDE)
    assert run(session, A3, Step(), AppendTokens(0, (4,))) is None
    assert "a state was kept before its sequence went on" in session.facts
    assert "a block was copied on write" not in session.facts


def test_a_state_is_not_kept_in_a_block_of_somebody_else():
    session = session_of(appending_with((4, 0)), 16, **INSIDE)
    commands = (A3, Admit(1, TokenChain((5, 6, 7)), 0), Step(), AppendTokens(1, (4,)))
    violation = run(session, *commands)
    assert violation is not None
    assert violation.invariant == "I2"
