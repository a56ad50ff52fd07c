"""Minimised manager traces: short, with few tokens, and still of the same kind."""

from dataclasses import replace
from itertools import islice

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.replay import replay
from poolproof.harness.smaller_manager_traces import (
    lowered_manager_command,
    sequences_renamed,
    smaller_everywhere,
    weight_of,
    without_a_sequence,
)


def chain(*tokens, **setting):
    return TokenChain(tokens, **setting)


class StaleIndex(CleanManager):
    """A recycled block leaves its key in the index (nano-vllm#163)."""

    is_cached = lookup_prefix = None

    class pool_class(CleanPool):  # noqa: N801 - the name of the hook
        def _recycle(self, block_id):
            self._clear_hash(block_id)

        def _index_remove(self, key, block_id):
            if block_id in self.index.get(key, ()):
                super()._index_remove(key, block_id)


@pytest.mark.some(0)
def test_a_stale_index_is_minimised_to_one_request_that_reads_another():
    profile = ManagerProfile()
    campaign = ManagerCampaign(
        "stale", lambda n, caching: StaleIndex(n, 4, enable_caching=caching), profile, 4
    )
    failing = (t for t in (campaign.run(number).trace for number in range(50)) if t)
    # How short a trace becomes depends on the run in which it began.
    traces = list(islice(failing, 3))
    minimised = [minimise(trace, execute_in_process(campaign.make)) for trace in traces]
    for trace, smaller in zip(traces, minimised, strict=True):
        assert smaller.violation.invariant == trace.violation.invariant
        assert replay(smaller, campaign.make).violation == smaller.violation
    smallest = min(minimised, key=lambda trace: len(trace.commands))
    assert len(smallest.commands) <= 8
    assert {c.seq_id for c in smallest.commands if hasattr(c, "seq_id")} <= {0, 1, 2}


def test_a_prompt_becomes_shorter_plainer_and_lower():
    command = Admit(0, chain(1, 0, 1, lora=("x", "0"), salt="s", images=(Image("p", 2, 1),)), 2)
    found = list(lowered_manager_command(command))
    chains = [smaller.chain for smaller in found]
    assert any(c.lora is None for c in chains)
    assert any(c.salt is None for c in chains)
    assert any(not c.images and c.tokens == (1, 0, 1) for c in chains)
    assert any(c.tokens == (1, 0) and not c.images for c in chains)
    assert any(c.tokens == (0, 0, 0) for c in chains)
    assert {smaller.num_tokens for smaller in found} == {0, 1, 2}


def test_tokens_become_fewer_and_lower():
    found = list(lowered_manager_command(Draft(0, (1, 1))))
    assert Draft(0, (1,)) in found
    assert Draft(0, (0, 0)) in found
    assert {Schedule(0, 0), Schedule(0, 1)} <= set(lowered_manager_command(Schedule(0, 2)))
    assert list(lowered_manager_command(Step())) == []


def commands_of(candidate):
    return [item.command for item in candidate]


def test_symbols_and_pieces_go_from_all_prompts_at_once():
    trace = [
        RelativeCommand(Admit(0, chain(1, 1, 2, 2, 1), 0)),
        RelativeCommand(Step()),
        RelativeCommand(Admit(1, chain(1, 1, 2), 0)),
        RelativeCommand(AppendTokens(1, (2,))),
    ]
    found = [commands_of(candidate) for candidate in smaller_everywhere(trace, 2)]
    assert [Admit(0, chain(0, 0, 2, 2, 0), 0), Step(), Admit(1, chain(0, 0, 2), 0),
            AppendTokens(1, (2,))] in found  # fmt: skip
    assert [Admit(0, chain(2, 2, 1), 0), Step(), Admit(1, chain(2), 0),
            AppendTokens(1, (2,))] in found  # fmt: skip
    assert [Admit(0, chain(1, 1, 2, 2, 1), 0), Step(), Admit(1, chain(1, 1, 2, 2), 0)] in found


def test_growth_without_its_admission_stays():
    trace = [RelativeCommand(AppendTokens(3, (1,)))]
    found = [commands_of(candidate) for candidate in smaller_everywhere(trace, 2)]
    assert [AppendTokens(3, (0,))] in found
    assert all(len(candidate) == 1 for candidate in found)


def test_a_cut_that_would_leave_nothing_leaves_the_prompt():
    trace = [RelativeCommand(LookupPrefix(chain(0)))]
    found = [commands_of(candidate) for candidate in smaller_everywhere(trace, 2)]
    assert all(command == LookupPrefix(chain(0)) for (command,) in found)


def test_a_sequence_goes_with_all_its_commands():
    trace = [RelativeCommand(c) for c in (Admit(0, chain(1), 0), Admit(4, chain(2), 0), Step(),
                                          Finish(4), Finish(0))]  # fmt: skip
    assert [commands_of(candidate) for candidate in without_a_sequence(trace)] == [
        [Admit(4, chain(2), 0), Step(), Finish(4)],
        [Admit(0, chain(1), 0), Step(), Finish(0)],
    ]


def test_keys_that_two_prompts_need_go_from_both():
    """nano-vllm#219 under a salt: one prompt without it would no longer match."""
    salted = [RelativeCommand(Admit(n, chain(1, 2, salt="s"), 0)) for n in (0, 1)]
    found = [commands_of(candidate) for candidate in smaller_everywhere(salted, 2)]
    assert [Admit(0, chain(1, 2), 0), Admit(1, chain(1, 2), 0)] in found


def test_sequences_are_named_in_order_of_appearance():
    commands = [Admit(7, chain(1), 0), Step(), Fork(7, 3), Finish(3)]
    assert sequences_renamed(commands) == [
        Admit(0, chain(1), 0), Step(), Fork(0, 1), Finish(1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lighter", "heavier"),
    [
        (Admit(0, chain(1), 0), Admit(0, chain(0, 0), 0)),
        (Admit(0, chain(0, 0), 0), Admit(0, chain(0, 1), 0)),
        (Admit(0, chain(1, 1), 0), Admit(0, chain(0, 0, salt="s"), 0)),
        (Schedule(0, 1), Schedule(0, 2)),
        (Step(), AppendTokens(0, (0,))),
    ],
)
def test_weights_compare_tokens_first(lighter, heavier):
    assert weight_of(lighter) < weight_of(heavier)


def of(*commands):
    """Commands as the minimiser has them."""
    return [RelativeCommand(command) for command in commands]


def variants(*commands):
    """What is tried in the place of some commands, as plain commands."""
    return [[item.command for item in tried] for tried in smaller_everywhere(of(*commands), 4)]


def test_a_child_is_tried_as_its_parent():
    grown = (Admit(0, chain(0), 0), Step(), Fork(0, 1), AppendTokens(0, (0,)), Finish(1))
    tried = variants(*grown)
    assert [*grown[:2], AppendTokens(0, (0,)), Finish(0)] in tried
    assert [*grown[:2], Finish(0)] in tried


def test_of_a_fork_of_a_fork_each_is_tried_as_the_one():
    commands = (Admit(0, chain(0), 0), Step(), Fork(0, 1), Fork(1, 2), AppendTokens(2, (0,)))
    tried = variants(*commands)
    assert [*commands[:2], Fork(0, 2), AppendTokens(2, (0,))] in tried
    assert [*commands[:3], AppendTokens(1, (0,))] in tried


@pytest.mark.parametrize(
    ("life", "tokens"),
    [
        ((Fork(0, 1), Step()), (0, 0)),
        ((Fork(0, 1), AppendTokens(1, (0, 0)), Step()), (0, 0, 0, 0)),
        ((Fork(0, 1), Truncate(1, 1)), (0,)),
        ((Fork(0, 1), Draft(1, (0, 0, 0)), Step(), Accept(1, 2)), (0, 0, 0, 0)),
        ((Admit(1, chain(0, 0, 0), 0), Step()), (0, 0, 0)),
        ((Load(1, chain(0, 0, 0), 2), Loaded(1)), (0, 0, 0)),
    ],
)
def test_a_sequence_that_comes_back_is_tried_as_one_that_comes(life, tokens):
    begun = (Admit(0, chain(0, 0), 0), Step())
    tried = variants(*begun, *life, Preempt(1), Finish(0), Resume(1, 3), Step())
    steps = [command for command in life if isinstance(command, Step)]
    expected = [*begun, *steps, Finish(0), Admit(1, chain(*tokens), 3), Step()]
    assert expected in tried


def test_chunks_of_a_prompt_are_tried_as_one():
    chunks = (Admit(0, chain(*range(9)), 3), Step(), Schedule(0, 4), Step(), Schedule(0, 2), Step())
    tried = variants(*chunks)
    assert [Admit(0, chain(*range(9)), 0), Step()] in tried
    assert [Admit(0, chain(*range(9)), 0), Step(), Step(), Step()] in tried


class FailsAfterDrafts(CleanManager):
    """A sequence that ever had drafts cannot grow."""

    drafted: frozenset[int] = frozenset()

    def _append(self, sequence, tokens):
        if sequence.seq_id in self.drafted:
            raise KeyError(sequence.seq_id)
        return super()._append(sequence, tokens)

    def _draft(self, sequence, tokens):
        self.drafted |= {sequence.seq_id}
        return super()._draft(sequence, tokens)


def test_forks_that_a_failure_does_not_need_go():
    commands = (
        Admit(0, chain(0), 0), Step(), Fork(0, 1), AppendTokens(1, (0,)), Step(), Fork(1, 2),
        AppendTokens(2, (0,)), Draft(2, (0, 0)), Step(), Accept(2, 0), AppendTokens(2, (0,)),
    )  # fmt: skip

    def make(num_blocks, caching):
        return FailsAfterDrafts(num_blocks, 4, enable_caching=caching, rules=ManagerProfile())

    trace = Trace(
        "planted", "manager", ManagerProfile(), 6, True, commands, options={"block_size": 4}
    )
    failing = replace(trace, violation=replay(trace, make).violation)
    assert failing.violation is not None
    small = minimise(failing, execute_in_process(make))
    assert not any(isinstance(command, Fork) for command in small.commands)
    assert len(small.commands) <= 5
