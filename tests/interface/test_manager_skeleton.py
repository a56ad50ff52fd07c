"""What `poolproof new --manager` writes besides the methods: extra keys folded into tokens."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.reference.content_names import ContentNames
from poolproof.targets.load import load_target

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "simple_manager.py"
TEMPLATE = ROOT / "interface" / "cli" / "templates" / "manager_skeleton.txt"


@pytest.fixture
def fold() -> Any:
    """The helper of a fresh skeleton."""
    return runpy.run_path(str(TEMPLATE))["fold_extra_keys"]


def test_tokens_without_extra_keys_stay(fold: Any) -> None:
    assert fold([3, 1, 2**31 - 1], None) == [3, 1, 2**31 - 1]
    assert fold([5], (("image", "cat", 1, 3),)) == [5]


def test_tokens_that_follow_are_folded_by_their_positions(fold: Any) -> None:
    keys = (("lora", ("a", "/a"), 0, None), ("image", "cat", 1, 3))
    whole = fold([7, 7, 7, 7], keys)
    assert [*fold([7, 7], keys), *fold([7, 7], keys, 2)] == whole
    assert whole[0] == whole[3]
    assert len(set(whole)) == 3


def test_folded_prefixes_are_equal_just_where_contents_are(fold: Any) -> None:
    chains = [
        TokenChain((1, 1, 1), lora, salt, images)
        for lora in (None, ("a", "/a"), ("b", "/b"))
        for salt in (None, "a", "s")
        for images in ((), (Image("cat", 0, 2),), (Image("cat", 0, 3),), (Image("cat", 1, 2),))
    ]
    names = ContentNames()
    seen: dict[tuple[int, ...], bytes] = {}
    for chain in chains:
        folded, wanted = fold(list(chain.tokens), chain.extra_keys()), names.of_chain(chain)
        for end in (1, 2, 3):
            prefix = tuple(folded[:end])
            assert seen.setdefault(prefix, wanted[end - 1]) == wanted[end - 1]
    assert len(set(seen.values())) == len(seen)


def test_a_manager_that_knows_only_tokens_holds_with_the_helper(fold: Any) -> None:
    target = load_target(f"{EXAMPLE}:Manager")
    simple: Any = target.real_class

    class Folding(simple):  # type: ignore[misc]  # loaded from a file
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.keys_of: dict[int, Any] = {}

        def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> Any:
            answer = super().admit(seq_id, fold(tokens, extra_keys))
            if not isinstance(answer, str):
                self.keys_of[seq_id] = extra_keys
            return answer

        def append(self, seq_id: int, tokens: list[int]) -> Any:
            sequence = self.sequences[seq_id]
            keys = self.keys_of[seq_id]
            return super().append(seq_id, fold(tokens, keys, len(sequence.tokens)))

    class Deaf(simple):  # type: ignore[misc]  # loaded from a file
        def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> Any:
            del extra_keys
            return super().admit(seq_id, tokens)

    def failures(cls: Any) -> int:
        def make(num_blocks: int, enable_caching: bool) -> Any:
            return cls(num_blocks, 4, enable_caching=enable_caching)

        campaign = ManagerCampaign(cls.__name__, make, target.profile, 4)
        return sum(campaign.run(number).trace is not None for number in range(60))

    assert failures(Deaf)
    assert failures(Folding) == 0
