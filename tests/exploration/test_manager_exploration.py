"""Bounded exploration of managers: right ones show nothing, planted bugs their shortest trace."""

import pytest

from poolproof.bugs.catalogue import manager_specimen
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.manager_commands import Admit, AppendTokens, Finish, Fork, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.exploration.grammars import identities_for, prompts_for
from poolproof.exploration.shortest import shortest_manager_failure

PROFILE = ManagerProfile()


def search(cls=CleanManager, profile=PROFILE, **bounds):
    return shortest_manager_failure(
        lambda n, caching: cls(n, 2, enable_caching=caching, rules=profile), profile, 3, 2, **bounds
    )


class StalePool(CleanPool):
    def _recycle(self, block_id):
        self._clear_hash(block_id)

    def _index_remove(self, key, block_id):
        if block_id in self.index.get(key, ()):
            super()._index_remove(key, block_id)


class StaleIndex(CleanManager):
    """A recycled block stays in the index (nano-vllm#163)."""

    pool_class = StalePool
    is_cached = lookup_prefix = load = fork = draft = truncate = schedule = None


class ForksWithoutCounting(CleanManager):
    """A fork takes no references (apache/tvm#16666)."""

    def _share(self, parent, child):
        child.table = list(parent.table)


class CannotBePickled(CleanManager):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.hook = lambda: None


def test_a_right_manager_shows_nothing_up_to_the_bound():
    found = search(max_commands=3)
    assert found.violation is None
    assert found.depth == 3
    assert found.num_states > 100


def test_a_manager_that_cannot_be_pickled_is_told_apart_by_what_it_shows():
    exact, shown = search(max_commands=3), search(CannotBePickled, max_commands=3)
    assert shown.violation is None
    # Renaming blocks merges states, and what the target keeps to itself tells none apart.
    assert shown.num_states <= exact.num_states


def test_a_fork_without_references_is_found_after_three_commands():
    found = search(ForksWithoutCounting, max_commands=4)
    assert [type(command) for command in found.commands] == [Admit, Step, Fork]
    assert found.violation.invariant == "OWN"


@pytest.mark.deep
def test_a_stale_index_is_found_after_six_commands():
    class Fewer(StaleIndex):
        preempt = abort = reset = accept = loaded = None

    found = search(Fewer, max_commands=6, max_states=100_000)
    assert [type(c) for c in found.commands] == [Admit, Step, Finish, Admit, Finish, Admit]


def test_a_state_bound_ends_the_search():
    found = search(max_commands=8, max_states=200)
    assert found.violation is None
    assert found.depth < 8


def test_prompts_share_a_block_behind_two_parents():
    single, block, short, long, behind, whole = prompts_for(2)
    assert [len(single.tokens), len(block.tokens)] == [1, 2]
    assert long.tokens[:2] == short.tokens[:2] == whole.tokens[:2]
    assert behind.tokens[2:4] == long.tokens[2:4]
    assert len(whole.tokens) % 2 == 0


def test_identities_differ_in_one_thing_each():
    prompts = identities_for(4)
    assert len({prompt.prefix(5, 0) for prompt in prompts}) == len(prompts)
    assert {len(prompt.tokens) for prompt in prompts} == {5}


def test_a_key_that_leaves_the_salt_out_is_found_by_the_prompts_that_differ_in_it():
    found = manager_specimen("C4")
    plain = shortest_manager_failure(found.make, found.profile, 3, 4, max_commands=3)
    keyed = shortest_manager_failure(found.make, found.profile, 3, 4, identities=True)
    assert plain.violation is None
    assert [type(command) for command in keyed.commands] == [Admit, Step, Admit]
    assert keyed.violation.invariant == "DATA"


class FailsWhereNothingFits(CleanManager):
    def admit(self, seq_id, tokens, **named):
        if len(tokens) > 6:
            raise KeyError(seq_id)
        return super().admit(seq_id, tokens, **named)


def test_a_prompt_longer_than_the_pool_is_among_the_first_commands():
    found = search(FailsWhereNothingFits, max_commands=1)
    assert [type(command) for command in found.commands] == [Admit]
    assert len(found.commands[0].chain.tokens) == 7


def test_filling_a_block_takes_one_command():
    found = shortest_manager_failure(
        lambda n, caching: FailsAtTheEndOfABlock(n, 4, enable_caching=caching),
        PROFILE, 3, 4, max_commands=3,
    )  # fmt: skip
    assert [type(command) for command in found.commands] == [Admit, AppendTokens]
    assert len(found.commands[1].tokens) == 3


class FailsAtTheEndOfABlock(CleanManager):
    def append(self, seq_id, tokens):
        if len(tokens) > 2:
            raise KeyError(seq_id)
        return super().append(seq_id, tokens)


class FailsLater(CleanManager):
    num_built = 0

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        type(self).num_built += 1
        self.is_late = self.num_built > 12

    def admit(self, *arguments, **named):
        if self.is_late:
            raise KeyError
        return super().admit(*arguments, **named)


def test_a_manager_that_does_not_behave_the_same_way_twice_is_said_to():
    found = search(FailsLater, max_commands=3)
    assert found.violation.invariant == "CRASH"
    assert "does not behave the same way twice" in found.violation.sentence
    assert [type(command) for command in found.commands] == [Admit]


def test_each_command_is_announced_before_it_is_applied():
    heard = []
    search(max_commands=1, announce=heard.append)
    assert [command for command in heard if type(command) is Step]


def test_a_right_manager_tells_all_identities_apart():
    found = search(max_commands=3, identities=True)
    assert found.violation is None
    assert found.depth == 3
