"""Unit examples of a manager, which has blocks enough for what they do unless they fill it."""

from __future__ import annotations

from operator import index
from typing import Any

from poolproof.kill_matrix.unit_examples.example import Book, Rules

__all__ = ["MANAGER_EXAMPLES"]

MANAGER_EXAMPLES = Book()
example = MANAGER_EXAMPLES.add

MOST_SEQUENCES = 100
"""More than fit into the pool of any example."""


def block_size_of(manager: Any, rules: Rules) -> int:
    """Tokens a block in the first group."""
    return int(rules.groups[0].block_size or manager.block_size)


def table_of(manager: Any, seq_id: int) -> list[int]:
    """The blocks of a sequence as plain numbers."""
    return [index(block) for block in manager.block_table(seq_id)]


def caches(rules: Rules) -> bool:
    """Whether a prefix that was computed is found, all of it."""
    return bool(rules.publishes != "never" and rules.hits == "exact")


def takes_no_more_than_it_needs(rules: Rules) -> bool:
    """Whether the length of a table follows from the number of tokens alone."""
    return not rules.lookahead_tokens


def frees_at_once(rules: Rules) -> bool:
    """Whether what is given back is free right away."""
    return bool(rules.frees == "at-once")


def compute(manager: Any, seq_id: int, tokens: list[int], cached: int = 0) -> None:
    """One forward pass over what is not cached."""
    manager.step([(seq_id, len(tokens) - cached)])


@example(suits=takes_no_more_than_it_needs)
def a_prompt_takes_the_blocks_that_it_fills(manager: Any, rules: Rules) -> None:
    """Two blocks of tokens are two distinct blocks."""
    prompt = [1] * 2 * block_size_of(manager, rules)
    assert manager.admit(0, prompt) == 0
    table = table_of(manager, 0)
    assert len(table) == len(set(table)) == 2


@example()
def two_sequences_have_blocks_of_their_own(manager: Any, rules: Rules) -> None:
    """Other tokens, other blocks."""
    length = 2 * block_size_of(manager, rules)
    manager.admit(0, [1] * length)
    manager.admit(1, [2] * length)
    assert not set(table_of(manager, 0)) & set(table_of(manager, 1))


@example("num_free", suits=frees_at_once)
def a_finished_sequence_gives_its_blocks_back(manager: Any, rules: Rules) -> None:
    """All of them."""
    num_free = manager.num_free()
    prompt = [1] * (2 * block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.num_free() == num_free


@example(suits=takes_no_more_than_it_needs)
def a_token_beyond_the_last_block_takes_another(manager: Any, rules: Rules) -> None:
    """And the one after it does not."""
    prompt = [1] * block_size_of(manager, rules)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    lengths = []
    for token in (2, 3):
        manager.append(0, [token])
        manager.step([(0, 1)])
        lengths.append(len(table_of(manager, 0)))
    assert lengths == [2, 2]


@example(suits=caches)
def the_same_prompt_is_found(manager: Any, rules: Rules) -> None:
    """After the first sequence has ended."""
    size = block_size_of(manager, rules)
    prompt = [1] * (2 * size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.admit(1, prompt) == 2 * size


@example(suits=caches)
def running_sequences_share_a_prefix(manager: Any, rules: Rules) -> None:
    """The second one's table begins with the blocks of the first."""
    size = block_size_of(manager, rules)
    prompt = [1] * (size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    assert manager.admit(1, prompt) == size
    assert table_of(manager, 0)[0] == table_of(manager, 1)[0]


@example("num_free", suits=lambda rules: caches(rules) and frees_at_once(rules))
def a_shared_prefix_outlives_its_first_owner(manager: Any, rules: Rules) -> None:
    """The blocks are free when both have ended."""
    num_free = manager.num_free()
    size = block_size_of(manager, rules)
    prompt = [1] * (size + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.admit(1, prompt)
    compute(manager, 1, prompt, size)
    manager.finish(0)
    assert manager.num_free() != num_free
    manager.finish(1)
    assert manager.num_free() == num_free


@example(suits=lambda rules: caches(rules) and rules.groups[0].kind != "chunked")
def another_prompt_is_not_found(manager: Any, rules: Rules) -> None:
    """Nor is the same one under an adapter."""
    prompt = [1] * (2 * block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    assert manager.admit(1, [2, *prompt[1:]]) == 0
    adapter = (("lora", ("name", "path"), 0, None),)
    assert manager.admit(2, prompt, extra_keys=adapter) == 0


@example("num_free", suits=lambda rules: rules.admission == "exact" and frees_at_once(rules))
def what_does_not_fit_waits_until_something_ends(manager: Any, rules: Rules) -> None:
    """A refusal takes nothing."""
    length = 2 * block_size_of(manager, rules)
    admitted = 0
    while manager.admit(admitted, [admitted] * length) != "later":
        compute(manager, admitted, [admitted] * length)
        admitted += 1
        assert admitted < MOST_SEQUENCES
    num_free = manager.num_free()
    assert manager.admit(admitted, [admitted] * length) == "later"
    assert manager.num_free() == num_free
    manager.finish(0)
    assert manager.admit(admitted, [admitted] * length) == 0


@example("num_free", suits=lambda rules: rules.never == "told")
def what_can_never_fit_is_told(manager: Any, rules: Rules) -> None:
    """It would wait for ever."""
    # Windows give back what they no longer read; this is too much for full attention.
    if rules.groups[0].kind == "full":
        assert manager.admit(0, [1] * 1000 * block_size_of(manager, rules)) == "never"


@example(
    "fork",
    "num_free",
    suits=lambda rules: frees_at_once(rules) and takes_no_more_than_it_needs(rules),
)
def a_fork_shares_the_blocks_of_its_parent(manager: Any, rules: Rules) -> None:
    """And both give them back."""
    num_free = manager.num_free()
    prompt = [1] * 2 * block_size_of(manager, rules)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.fork(0, 1)
    assert table_of(manager, 0) == table_of(manager, 1)
    manager.finish(0)
    manager.finish(1)
    assert manager.num_free() == num_free


@example("fork", suits=lambda rules: rules.window_blocks == "freed")
def a_fork_writes_into_a_block_of_its_own(manager: Any, rules: Rules) -> None:
    """A tail that is filled in part is copied before one of the two goes on."""
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.fork(0, 1)
    manager.append(1, [2])
    assert table_of(manager, 0)[1] != table_of(manager, 1)[1]


@example("preempt", "num_free", suits=frees_at_once)
def a_preempted_sequence_comes_back(manager: Any, rules: Rules) -> None:
    """Its blocks are free meanwhile."""
    num_free = manager.num_free()
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.preempt(0)
    assert manager.num_free() == num_free
    answer = manager.admit(0, prompt)
    assert answer != "later"
    assert answer != "never"


@example("abort", "num_free", suits=frees_at_once)
def an_aborted_sequence_gives_its_blocks_back(manager: Any, rules: Rules) -> None:
    """Like one that has finished."""
    num_free = manager.num_free()
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.abort(0)
    assert manager.num_free() == num_free


@example("reset", suits=lambda rules: caches(rules) and frees_at_once(rules))
def a_reset_forgets_what_is_cached(manager: Any, rules: Rules) -> None:
    """The same prompt is computed anew."""
    prompt = [1] * (block_size_of(manager, rules) + 1)
    manager.admit(0, prompt)
    compute(manager, 0, prompt)
    manager.finish(0)
    assert manager.reset() is True
    assert manager.admit(1, prompt) == 0
