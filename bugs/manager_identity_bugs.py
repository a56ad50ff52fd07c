"""Manager bugs of block identity: keys that forget something that flows into the KV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_manager_steps import Copies
from poolproof.bugs.clean_sequence import CleanSequence
from poolproof.bugs.content_checked import ContentCheckedManager
from poolproof.bugs.manager_specimen import ManagerSection
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["MANAGER_IDENTITY_BUGS"]

MANAGER_IDENTITY_BUGS = ManagerSection()
plant = MANAGER_IDENTITY_BUGS.plant

FOUND = ("DATA", "IDX", "ADM")
"""A wrong hit is seen by what would be read, by unexplained keys, or by room misjudged."""


def _has_cache(profile: ManagerProfile) -> bool:
    return profile.publishes != "never"


@plant(
    "C1-manager", "keys are digests of four bits, and a hit is not compared",
    thread="vllm#12621", also=("vllm#15297", "vllm#29163"), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class ShortKeys(CleanManager):
    """Its own hash collides, so this is its own fault."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        return bytes([super()._block_key(sequence, entry)[0] & 15])


@plant(
    "C1-trusted", "a hit is not compared: right as long as no two hashes are equal",
    thread="vllm#12621", also=("vllm#54727",), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=ManagerProfile(collisions="trusted"),
    weak_hashes=8, is_bug_under=_has_cache,
)  # fmt: skip
class TrustsHashes(CleanManager):
    """Not wrong under its profile; under weak hashes it is reported as collision-dependent."""


@plant(
    "C3", "a hit is compared by its own tokens, not by those before it",
    thread="openvino.genai#3722", invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, weak_hashes=4, is_bug_under=_has_cache,
)  # fmt: skip
class ComparesOneBlock(ContentCheckedManager):
    """Equal tokens behind different parents, and equal hashes."""

    def _content_of(self, sequence: CleanSequence, entry: int) -> Any:
        tokens, *rest = super()._content_of(sequence, entry)
        return tokens[-self.block_size :], *rest


@plant(
    "C4", "the adapter is not in the key",
    thread="vllm#3264", also=("vllm#3263", "vllm#8240 (C5)"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoAdapterInKey(CleanManager):
    """One prompt under two adapters shares KV."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [key for key in super()._extra_keys(extra_keys, first, end) if key[0] != "lora"]


@plant(
    "C6", "of an adapter only the name is in the key",
    thread="vllm#30931", also=("vllm#42495",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class AdapterNameOnly(CleanManager):
    """An adapter that was loaded anew under its old name hits KV of the old weights."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        keys = super()._extra_keys(extra_keys, first, end)
        return [(k, v[0], *place) if k == "lora" else (k, v, *place) for k, v, *place in keys]


@plant(
    "C7", "adapter and salt stand in the key as plain strings",
    thread="vllm#44701", also=("vllm#44706",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class UntaggedKeys(CleanManager):
    """An adapter "x" and a salt "x" are the same."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        keys = super()._extra_keys(extra_keys, first, end)
        plain = [v[0] if k == "lora" else v for k, v, *_ in keys if k != "image"]
        return [*plain, *(key for key in keys if key[0] == "image")]


@plant(
    "C9", "images are not in the key: their placeholders are all alike",
    thread="LMCache#690", also=("ATOM#1358", "TensorRT-LLM#12306"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoImagesInKey(CleanManager):
    """Two images under one text, and the answer is about the first."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [key for key in super()._extra_keys(extra_keys, first, end) if key[0] != "image"]


@plant(
    "C11", "an image is in the key, but not which positions it covers",
    thread="vllm#56655", also=("vllm#56656",), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class NoMaskInKey(CleanManager):
    """The same tokens with the same image elsewhere share KV."""

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        return [(kind, value) for kind, value, *_ in super()._extra_keys(extra_keys, first, end)]


@plant(
    "C14", "tokens are replaced in place, their keys are not",
    thread="vllm#49377", also=("vllm#49449", "vllm#49619", "vllm#52806"), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("truncate",), is_bug_under=_has_cache,
)  # fmt: skip
class KeysSurviveTruncation(CleanManager):
    """What was computed for the new tokens is found under the key of the old ones."""

    def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
        keys = list(sequence.keys)
        super()._forget_keys(sequence, full)
        sequence.keys = keys


@plant(
    "C15", "only prompts are hashed, nothing that was generated",
    thread="vllm#9972", invariants=("I4",), severity=Severity.LOST_HIT,
    is_bug_under=lambda p: _has_cache(p) and p.hits == "exact",
)  # fmt: skip
class PromptsOnly(CleanManager):
    """A preempted sequence does not find its own blocks again."""

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        sequence.num_published = max(sequence.num_published, 10**6)
        return super().append(seq_id, tokens)


@plant(
    "C17", "a block that is filled in part is cached like a full one",
    thread="atlas#1193", also=("vllm#5188", "sglang#35270 (D16)"), invariants=FOUND,
    severity=Severity.WRONG_DATA_OF_ANOTHER, is_bug_under=_has_cache,
)  # fmt: skip
class CachesPartialTail(CleanManager):
    """Its tokens may still change, and a second writer may come."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        rounded_up = -(-num_tokens // self.block_size) * self.block_size
        super()._publish_up_to(sequence, rounded_up)


@plant(
    "D12", "rejected drafts are cached with the tokens",
    thread="vllm#18668", also=("vllm#19006",), invariants=(*FOUND, "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, verbs=("draft",), is_bug_under=_has_cache,
)  # fmt: skip
class CachesDrafts(CleanManager):
    """The bound for caching is what was computed, drafts included."""

    def _publish(self, sequence: CleanSequence) -> None:
        tokens, sequence.tokens = sequence.tokens, [*sequence.tokens, *sequence.drafts]
        self._publish_up_to(sequence, min(sequence.num_computed + len(sequence.drafts),
                                          len(sequence.tokens)))  # fmt: skip
        sequence.tokens = tokens
