"""The sequence of the nano-vLLM-shaped manager."""

import pytest

from poolproof.impl.nano_sequence import Sequence


def test_a_sequence_starts_without_blocks() -> None:
    seq = Sequence([1, 2])
    assert (len(seq), seq.block_table, seq.num_cached_tokens, seq.num_scheduled_tokens) == (
        2,
        [],
        0,
        0,
    )


def test_the_prompt_is_copied() -> None:
    prompt = [1]
    seq = Sequence(prompt)
    seq.append_token(2)
    assert (prompt, seq.token_ids) == ([1], [1, 2])


def test_a_prompt_has_a_token() -> None:
    with pytest.raises(ValueError, match=r"^a sequence needs at least one token$"):
        Sequence([])


def test_sequences_with_equal_tokens_are_different() -> None:
    assert Sequence([1]) != Sequence([1])
