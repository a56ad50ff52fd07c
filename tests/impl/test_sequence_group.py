"""Sequences of logical blocks, and their group."""

from typing import Any

import pytest

from poolproof.impl.sequence_group import Sequence, SequenceGroup, SequenceStatus


def test_tokens_fill_logical_blocks_in_order() -> None:
    seq = Sequence(0, range(5), 2)
    seq.append_tokens([5, 6])
    assert [block.token_ids for block in seq.logical_token_blocks] == [[0, 1], [2, 3], [4, 5], [6]]
    assert [block.block_number for block in seq.logical_token_blocks] == [0, 1, 2, 3]
    assert (seq.num_tokens, seq.get_token_ids()) == (7, list(range(7)))


@pytest.mark.parametrize("num_tokens", [3, 4])
def test_a_fork_grows_by_itself(num_tokens: int) -> None:
    parent = Sequence(0, range(num_tokens), 2)
    parent.status = SequenceStatus.RUNNING
    child = parent.fork(1)
    child.append_tokens([8])
    parent.append_tokens([9])
    assert parent.get_token_ids() == [*range(num_tokens), 9]
    assert child.get_token_ids() == [*range(num_tokens), 8]
    assert (child.seq_id, child.status) == (1, SequenceStatus.RUNNING)
    assert child.logical_token_blocks[0] is parent.logical_token_blocks[0]


def test_a_prompt_has_a_token() -> None:
    with pytest.raises(ValueError, match="sequence 7 needs at least one token"):
        Sequence(7, [], 2)


@pytest.mark.parametrize("block_size", [0, True, 2.0])
def test_the_block_size_is_a_positive_int(block_size: Any) -> None:
    with pytest.raises(ValueError, match="block_size must be an int of at least 1"):
        Sequence(0, [1], block_size)


def test_a_group_tells_its_sequences_by_status() -> None:
    first, second = Sequence(0, [1], 2), Sequence(1, [1], 2)
    second.status = SequenceStatus.RUNNING
    group = SequenceGroup("r", [first, second])
    assert group.get_seqs() == [first, second]
    assert group.get_seqs(SequenceStatus.RUNNING) == [second]
    assert not group.is_finished()


def test_a_group_is_finished_with_its_last_sequence() -> None:
    first, second = Sequence(0, [1], 2), Sequence(1, [1], 2)
    group = SequenceGroup("r", [first, second])
    first.status = SequenceStatus.FINISHED
    assert not group.is_finished()
    group.remove(1)
    assert group.is_finished()


def test_an_id_stands_once_in_a_group() -> None:
    group = SequenceGroup("r", [Sequence(0, [1], 2)])
    with pytest.raises(ValueError, match="request 'r' has a sequence 0 already"):
        group.add(Sequence(0, [1], 2))


def test_only_a_sequence_of_the_group_is_removed() -> None:
    with pytest.raises(ValueError, match="request 'r' has no sequence 3"):
        SequenceGroup("r", []).remove(3)


def test_a_sequence_says_what_it_is() -> None:
    assert repr(Sequence(3, [1, 2], 2)) == "sequence 3 (waiting, 2 tokens)"
