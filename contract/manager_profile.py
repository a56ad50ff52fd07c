"""The profile of a manager: the rows of a pool's profile and those that only sequences have.

As for pools, a missing row takes its first value and is reported as assumed; unknown rows and
values are errors. docs/managers.md has the table with what each value means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile, ProfileError

__all__ = ["FULL", "KINDS", "CacheGroup", "ManagerProfile", "slots_ahead"]

KINDS = ("full", "sliding", "chunked", "state")

_CHOICES: dict[str, tuple[str, ...]] = {
    "publishes": ("computed", "scheduled", "prompts", "finish", "never"),
    "hits": ("exact", "sound"),
    "index": ("content", "exact"),
    "full_hit": ("recompute-token", "allowed"),
    "reserves": ("scheduled", "sequence"),
    "admission": ("exact", "exact-at-admission", "sound"),
    "never": ("told", "untold"),
    "release_order": ("tail-first", "head-first", "unspecified"),
    "uncached_order": ("same", "tail-first", "head-first", "unspecified"),
    "group_order": ("first-to-last", "last-to-first", "unspecified"),
    "frees": ("at-once", "after-step"),
    "finish_again": ("ignored", "undefined"),
    "window_blocks": ("freed", "reused"),
    "tables": ("append-only", "merged"),
    "held_blocks": ("shared", "exclusive"),
    "keyed": ("full", "reachable", "checkpoints"),
    "states": ("every-block", "step-end"),
    "collisions": ("checked", "trusted"),
    "sampled": ("with-append", "with-step"),
}
_NUMBERS = (
    "watermark_blocks",
    "lookahead_tokens",
    "generation_tokens",
    "proof_blocks",
    "prior_sightings",
    "host_blocks",
    "max_tokens",
    "max_sequences",
    "checkpoint_tokens",
    "hash_tokens",
    "state_blocks",
)


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """The layers that share one block table: what their attention reads, in blocks of what size.

    `kind` is "full" (every earlier position), "sliding" (the last `window` positions, the reading
    one included), "chunked" (from the start of the reader's chunk of `window` tokens) or "state"
    (one recurrent state instead of one entry a position). `block_size` 0 stands for the block
    size that the target is built with.
    """

    kind: str = "full"
    block_size: int = 0
    window: int = 0

    # Fields, not properties: sessions ask them many times a step.
    is_full: bool = field(init=False, repr=False, compare=False)
    is_sliding: bool = field(init=False, repr=False, compare=False)
    is_chunked: bool = field(init=False, repr=False, compare=False)
    is_state: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Tell the kind once and for all."""
        for kind in KINDS:
            object.__setattr__(self, f"is_{kind}", self.kind == kind)

    def first_read(self, position: int) -> int:
        """The first position whose KV, or state, a query at `position` reads."""
        if self.is_full:
            return 0
        if self.is_sliding:
            return max(0, position - self.window + 1)
        if self.is_chunked:
            return position - position % self.window
        return max(0, position - 1)

    def to_json(self) -> dict[str, Any]:
        """This group as plain JSON values."""
        return {"kind": self.kind, "block_size": self.block_size, "window": self.window}


FULL = (CacheGroup(),)


@dataclass(frozen=True, slots=True)
class ManagerProfile(Profile):
    """One value for each row, those of `Profile` included.

    A profile that is built from a target's mapping judges by content unless the mapping says
    `index`; one that is written out in full, as our own are, is exact.

    publishes: when the key of a full block can be found. "computed": once the step that computed
        its tokens is over; "scheduled": as soon as space for its tokens is taken, so that whatever
        is scheduled is computed by the next step (what accepted drafts fill: when the next space
        is taken); "prompts": as "computed", but a token that was appended alone, as sampled ones
        are, waits until a step computes more than one or the sequence finishes with nothing left
        to compute; "finish": when the sequence gives its blocks back, because it ended, was aborted
        or preempted, as far as it was computed; "never": there is no prefix cache.
    hits: "exact": the longest prefix that is in the index; "sound": whatever is reported is right,
        and may be less.
    index: what decides whether a hit, a shared block or a shown key is right: "content", what is
        read of it, so that keys may come early or late, a block may keep or regain its content,
        be shared while it is written with what it holds, and slide out of a window at any time;
        "exact", the keys that follow from the other rows.
    full_hit: "recompute-token": at least one token of a sequence is left to compute;
        "allowed": a whole prompt may be cached.
    reserves: what a sequence has blocks for: the tokens "scheduled" so far, or all of the
        "sequence".
    admission: "exact": nothing that fits is refused; "exact-at-admission": growth may be refused
        for other reasons (vLLM V0 keeps a block free for each sequence); "sound": admission, too.
    never: whether a sequence that can never fit is told apart from one that has to wait.
    release_order: in which order a sequence's blocks go back; "tail-first": the last first;
        "head-first": the first first, which is right where the block freed last is used first.
    uncached_order: the release order of a target that is built with `enable_caching=False`, where
        it is not the "same".
    group_order: in which order the groups give back what one command takes from a sequence:
        "first-to-last" as `groups` lists them, or "last-to-first".
    frees: "at-once", or "after-step": what is given back is free once the next step is over.
    finish_again: whether ending a sequence a second time, or one that was never admitted, is
        ignored.
    window_blocks: what becomes of a block that slid out of the window: "freed" (the null block
        stands in its place) or "reused" (the table is a ring over it).
    tables: "append-only", or "merged": when a full block is published whose key another block
        carries, the table may name that one from then on.
    held_blocks: what becomes of a cached block that a sequence holds when another one has the same
        prefix: it is "shared" by both, or "exclusive": nobody else finds it until it is free again,
        and what it holds is computed once more. A fork is no hit, and may share or copy.
    keyed: which full blocks get a key: every "full" one, or those that are "reachable": a hit that
        ends at a common block end of all groups needs them, and that end has been reached;
        "checkpoints": as "reachable", and of windows and states only those that a hit at a
        checkpoint needs. The checkpoints of a sequence are the end of the hit that its prompt has
        when it is sent again (with `proof_blocks` also that of a longer prompt); the end of what
        the full groups had cached where its own hit was shorter; and every multiple of
        `checkpoint_tokens`.
    states: "every-block": a recurrent state is kept at the end of each block, and one that is only
        written in this step is not found; "step-end": a step leaves one state, at its end, so it
        may not pass the end of the block in which it began, and who would start from a state of
        this step waits for the next.
    collisions: "checked": a hit is compared by content; "trusted": the hash decides.
    sampled: when a manager is told the token that a step samples: "with-append", the next time that
        its sequence grows; "with-step": `step` and `accept` are given it, before anything is
        published, and the next `append` begins with it.
    watermark_blocks: how many blocks an admission has to leave free.
    lookahead_tokens: slots that are taken beyond the scheduled tokens.
    generation_tokens: slots that an admission takes beyond the tokens that it is given, for the
        whole generation; a fork's child and a sequence that was cut have no such slots.
    proof_blocks: how many cached blocks must follow a hit, which are computed again all the same.
    prior_sightings: how often a content has to be seen before a block of it gets a key: with 1 what
        comes once is computed without one, and the second time it is taken. Where contents decide,
        what an index counts is left open: requests that ask for it, or blocks that are computed.
    host_blocks: blocks in host memory for swapping.
    max_tokens: the width of a row: no sequence is given more tokens, drafts included, and beyond
        it there are no slots, whatever `lookahead_tokens` says; 0: no such limit.
    max_sequences: how many rows there are: with as many sequences that were not preempted, a
        further one may be put off although its blocks are there; 0: no such limit.
    checkpoint_tokens: beside the other checkpoints there is one every so many tokens, a multiple
        of all block sizes; 0: none.
    hash_tokens: hits may also end inside a block, at multiples of so many tokens, and what they
        need of that block is copied when the sequence is admitted; 0: hits are of whole blocks.
        Where `states` is "step-end", a step ends at the last such multiple in a prompt, if no whole
        block ends behind it.
    state_blocks: how many blocks a sequence has in each group of states beyond one for each started
        block of its positions, in place of lookahead slots: the states behind as many drafts come
        into these. The worker moves states, the manager none; reference/state_columns.py says how.
        0: a step leaves no state but the one behind all of its drafts.
    """

    publishes: str = "computed"
    hits: str = "exact"
    index: str = "exact"
    full_hit: str = "recompute-token"
    reserves: str = "scheduled"
    admission: str = "exact"
    never: str = "told"
    release_order: str = "tail-first"
    uncached_order: str = "same"
    group_order: str = "first-to-last"
    frees: str = "at-once"
    finish_again: str = "ignored"
    window_blocks: str = "freed"
    tables: str = "append-only"
    held_blocks: str = "shared"
    keyed: str = "full"
    states: str = "every-block"
    collisions: str = "checked"
    sampled: str = "with-append"
    watermark_blocks: int = 0
    lookahead_tokens: int = 0
    generation_tokens: int = 0
    proof_blocks: int = 0
    prior_sightings: int = 0
    host_blocks: int = 0
    max_tokens: int = 0
    max_sequences: int = 0
    checkpoint_tokens: int = 0
    hash_tokens: int = 0
    state_blocks: int = 0
    groups: tuple[CacheGroup, ...] = FULL

    @classmethod
    def choices(cls) -> Mapping[str, tuple[str, ...]]:
        return {**Profile.choices(), **_CHOICES}

    @classmethod
    def from_mapping(cls, declared: Mapping[str, Any]) -> Self:
        """The profile that a target declared. Raises ProfileError."""
        profile = super(ManagerProfile, cls).from_mapping(declared)
        return replace(profile, index="content") if "index" in profile.assumed else profile

    @property
    def by_content(self) -> bool:
        """Whether what is read decides, and not which keys the other rows give."""
        return self.index == "content"

    @property
    def has_hits(self) -> bool:
        """Whether a sequence can find blocks of another one.

        Not where each is forgotten with its last holder, and shown to nobody until then.
        """
        is_hidden = self.retention == "while-held" and self.held_blocks == "exclusive"
        return self.publishes != "never" and not is_hidden

    @property
    def promises_hits(self) -> bool:
        """Whether the target said that whatever is cached is found."""
        return self.hits == "exact" and self.declares("hits")

    @property
    def may_merge(self) -> bool:
        """Whether a sequence may come to name the block of another for an equal one of its own."""
        return self.tables == "merged" or (self.by_content and not self.declares("tables"))

    def declares(self, row: str) -> bool:
        """Whether the target said so itself, and the first value was not assumed."""
        return row not in self.assumed

    @classmethod
    def check_value(cls, key: str, value: Any) -> Any:
        if key == "groups":
            return _groups(value)
        if key in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ProfileError(
                    f"profile key {shown(key)} must be a number from 0 on, not {shown(value)}"
                )
            return value
        if key == "hash_bytes" and value != "any":
            raise ProfileError(
                "profile key 'hash_bytes' is one of pools and indexes: a manager makes its hashes "
                f"itself, from tokens; leave {shown(value)} out"
            )
        allowed = _CHOICES.get(key)
        if allowed is None:
            # A dataclass with slots is made anew, so that super() without arguments finds another.
            return Profile.check_value(key, value)
        if value not in allowed:
            raise ProfileError(
                f"profile key {shown(key)} must be one of {', '.join(allowed)}, not {shown(value)}"
            )
        return value

    @property
    def layout_name(self) -> str:
        """What a layout with these groups is called: their kinds, as in "full+sliding"."""
        return "+".join(group.kind for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        rows = Profile.to_json(self)
        rows["groups"] = [group.to_json() for group in self.groups]
        return rows


def slots_ahead(profile: ManagerProfile) -> int:
    """The most slots that an admitted sequence holds beyond its tokens."""
    return max(profile.lookahead_tokens, profile.generation_tokens)


def _groups(value: Any) -> tuple[CacheGroup, ...]:
    """The groups that a mapping or a trace file lists, or a text. Raises ProfileError.

    A text is KIND[:WINDOW[:BLOCK_SIZE]] for each group, as in "full+sliding:6".
    """
    if isinstance(value, str):
        value = [_group_in_words(text) for text in value.split("+")]
    if not isinstance(value, list | tuple) or not value:
        raise ProfileError(f"profile key 'groups' must be a list of groups, not {shown(value)}")
    return tuple(_group(item.to_json() if isinstance(item, CacheGroup) else item) for item in value)


def _group_in_words(text: str) -> dict[str, Any]:
    kind, *numbers = text.split(":")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise ProfileError(f"{shown(text)} is no group; write KIND[:WINDOW[:BLOCK_SIZE]]")
    return {"kind": kind, **dict(zip(("window", "block_size"), map(int, numbers)))}


def _group(value: Any) -> CacheGroup:
    names = ("kind", "block_size", "window")
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise ProfileError(f"a group is a mapping with {', '.join(names)}, not {shown(value)}")
    numbers = {name: value.get(name, 0) for name in names[1:]}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ProfileError(f"{name} of a group must be a number from 0 on, not {shown(number)}")
    kind = value.get("kind", "full")
    if kind not in KINDS:
        raise ProfileError(f"the kind of a group is one of {', '.join(KINDS)}, not {shown(kind)}")
    if kind in {"sliding", "chunked"} and not numbers["window"]:
        raise ProfileError(f"a {kind} group needs a window of at least 1 token")
    if kind in {"full", "state"} and numbers["window"]:
        reads = "every earlier position" if kind == "full" else "its last state"
        window = numbers["window"]
        raise ProfileError(
            f"a {kind} group reads {reads} and has no window, not one of {window} tokens; blocks "
            f"of {window} tokens are written {kind}:0:{window}"
        )
    return CacheGroup(kind, **numbers)
