"""The profile of an engine: how it is set up, and what it promises of its steps.

Unlike a manager's it has no rows on caching: what a hit or a shared block means is decided by what
is read. The limits are those of the scheduler's own configuration. docs/engines.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poolproof.contract.manager_profile import FULL, CacheGroup, ManagerProfile
from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile, ProfileError

__all__ = ["EngineProfile"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "policy": ("fcfs", "priority"),
    "stale_outputs": ("delivered", "may-drop"),
    "reset": ("idle", "preempts"),
    "transfers": ("may-fail", "never-fail"),
    "transfer_order": ("any", "fifo"),
    "lost_transfers": ("move-some", "move-nothing"),
    "notices": ("once", "may-repeat"),
    "cancelled_outputs": ("none", "may-come", "one-more"),
    "prefix_hits": ("some", "never"),
    "preemptions": ("some", "never"),
    "failed_loads": ("recomputed", "may-end-requests"),
    "answers": ("any-time", "when-full"),
    "state_moves": ("by-table", "told"),
    "states": ("every-block", "step-end", "every-token"),
    "draft_states": ("each", "last"),
}
_LEAST = {
    "max_batch_tokens": 1,
    "max_running": 1,
    "max_request_tokens": 0,
    "steps_in_flight": 1,
    "draft_tokens": 0,
    "spare_tokens": 0,
    "max_adapters": 0,
    "image_tokens": 0,
    "encoder_cache_tokens": 0,
    "max_encoder_tokens": 0,
    "state_blocks": 0,
    "headroom_percent": 0,
    "instances": 1,
    "ranks": 1,
}
_MOST = {"headroom_percent": 99}
_ROWS = ("null_block", *_CHOICES, *_LEAST, "groups")


@dataclass(frozen=True, slots=True)
class EngineProfile(Profile):
    """One value for each row.

    policy: whether requests go first come first served, or the smallest `priority` first. Nothing
        is judged by it; it says whether priorities are drawn.
    stale_outputs: what becomes of a token that was sampled for a request which was preempted
        meanwhile: "delivered", or it "may-drop" and be sampled again.
    reset: whether a reset that empties the cache lets running requests be ("idle": it is done when
        nobody holds a block), or "preempts" them all: they are computed anew, and what is in flight
        for them may be dropped.
    transfers: whether a transfer that nobody waits for "may-fail", which the engine is told, or the
        worker has no way to say so, and none is lost: "never-fail".
    transfer_order: whether transfers end in "any" order, or loads in the order in which they began,
        and stores likewise, on each rank for itself: "fifo".
    lost_transfers: what a transfer that is lost has done before: it may have moved some of its
        blocks, the first ones, or all of them ("move-some"), or "move-nothing".
    notices: whether the engine is told "once" that a transfer has ended, or "may-repeat" it: who
        hears of ends over a network that delivers at least once.
    cancelled_outputs: what becomes of a token of a step that was in flight when its user cancelled
        the request: "none" is given, or it "may-come", where a cancel waits for the next step.
        With "one-more" it may come, and a request that has begun may be computed until the engine
        is given what it samples in a step that was planned after the cancel.
    prefix_hits: whether a request may find its beginning computed by others; "never" where there is
        no prefix cache.
    preemptions: whether a request that runs may lose its blocks; "never" where it is let in only if
        all that it may become fits.
    failed_loads: what was not loaded is "recomputed", or a request whose load failed "may end" at
        once without a token: "may-end-requests".
    answers: when a step may be answered: at "any-time", or only when no more steps may be planned
        ("when-full"), as long as a request lives: where the worker counts on the next step being
        planned before it has answered.
    max_batch_tokens: the most positions that one step computes.
    max_running: the most requests of one step.
    max_request_tokens: the most tokens of a request, those that are sampled included; 0: as many as
        the blocks hold.
    steps_in_flight: how many steps may be planned before the first of them is answered; more than
        1 is asynchronous scheduling.
    draft_tokens: the most drafts that a request is given for one step.
    spare_tokens: slots that a request may take beyond its tokens, drafts aside: what fits is
        counted with them.
    max_adapters: the most different LoRA adapters in one step; 0: any number.
    image_tokens: the most positions of one image in a prompt; 0: prompts have no images.
    encoder_cache_tokens: how many positions of images the worker keeps the encoder's outputs for;
        plans say what is encoded and what is forgotten. 0: images are encoded where they are
        computed, and plans say nothing of it.
    max_encoder_tokens: the most positions of images that are encoded in one step; 0: any number.
    state_moves: who says where recurrent states stand. "by-table": nobody does, and the worker
        keeps the state after a position in the block of that position, one for each block; "told":
        the plan says it, or `states` does once it is known which drafts were right.
    states: which states a step can leave: one at the end of "every-block" and at its own end, only
        the latter ("step-end"), or one behind each of its tokens ("every-token").
    draft_states: whether a step that tries drafts can leave a state behind "each" of them and the
        last token before them, or only behind the "last".
    state_blocks: blocks that a request may take in each state group beyond one for each started
        block of its positions: what fits is counted with them.
    headroom_percent: so much of all blocks may be kept free of a request that is let in: what fits
        is counted without it.
    instances: into how many equal parts the blocks are divided, because so many servers, each with
        its part, serve a request one after the other: it has to fit into a part.
    ranks: how many workers share every step, each with a device memory, and places outside, of its
        own. A transfer may be that of one rank, and end before or after the others'.
    groups: the layers that share a block table, as in a manager's profile.
    """

    policy: str = "fcfs"
    stale_outputs: str = "delivered"
    reset: str = "idle"
    transfers: str = "may-fail"
    transfer_order: str = "any"
    lost_transfers: str = "move-some"
    notices: str = "once"
    cancelled_outputs: str = "none"
    prefix_hits: str = "some"
    preemptions: str = "some"
    failed_loads: str = "recomputed"
    answers: str = "any-time"
    state_moves: str = "by-table"
    states: str = "every-block"
    draft_states: str = "each"
    max_batch_tokens: int = 64
    max_running: int = 8
    max_request_tokens: int = 0
    steps_in_flight: int = 1
    draft_tokens: int = 0
    spare_tokens: int = 0
    max_adapters: int = 0
    image_tokens: int = 0
    encoder_cache_tokens: int = 0
    max_encoder_tokens: int = 0
    state_blocks: int = 0
    headroom_percent: int = 0
    instances: int = 1
    ranks: int = 1
    groups: tuple[CacheGroup, ...] = FULL

    @classmethod
    def rows(cls) -> tuple[str, ...]:
        """The rows that an engine has; those of pools and managers mean nothing here."""
        return _ROWS

    @classmethod
    def choices(cls) -> Mapping[str, tuple[str, ...]]:
        return _CHOICES

    @classmethod
    def check_value(cls, key: str, value: Any) -> Any:
        if key == "groups":
            return ManagerProfile.check_value(key, value)
        if key in _LEAST:
            least, most = _LEAST[key], _MOST.get(key)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or value < least or (most is not None and value > most):
                allowed = f"from {least} on" if most is None else f"from {least} to {most}"
                raise ProfileError(
                    f"profile key {shown(key)} must be a number {allowed}, not {shown(value)}"
                )
            return value
        if key in _CHOICES:
            if value not in _CHOICES[key]:
                raise ProfileError(
                    f"profile key {shown(key)} must be one of {', '.join(_CHOICES[key])}, not "
                    f"{shown(value)}"
                )
            return value
        # A dataclass with slots is made anew, so that super() without arguments finds another.
        return Profile.check_value(key, value)

    def to_json(self) -> dict[str, Any]:
        rows = {name: getattr(self, name) for name in _ROWS}
        rows["groups"] = [group.to_json() for group in self.groups]
        return rows

    @property
    def layout_name(self) -> str:
        """What a set-up with these rows is called, as in "priority+async+sliding"."""
        words = [self.policy]
        if self.steps_in_flight > 1:
            words.append("async")
        if self.draft_tokens:
            words.append("drafts")
        if self.image_tokens:
            words.append("images")
        if self.max_adapters:
            words.append("adapters")
        if self.reset == "preempts":
            words.append("reset")
        if self.has_states and self.states == "step-end":
            words.append("step-end")
        if self.instances > 1:
            words.append("instances")
        if self.ranks > 1:
            words.append("ranks")
        kinds = "+".join(group.kind for group in self.groups)
        return "+".join(words if kinds == "full" else [*words, kinds])

    @property
    def has_states(self) -> bool:
        """Whether one of the groups holds recurrent states."""
        return any(group.is_state for group in self.groups)

    @property
    def num_state_blocks(self) -> int:
        """Blocks that a request may take for states beyond those of its positions, at most."""
        return self.state_blocks * sum(group.is_state for group in self.groups)

    def most_request_tokens(self, num_blocks: int, block_size: int) -> int:
        """The most tokens of a request, its sampled ones included, that `num_blocks` serve.

        So many fit while nobody else holds a block, whatever a window would free: each group holds
        a block for every started `block_size` tokens, drafts and spare slots included, and a group
        of states `state_blocks` more; `headroom_percent` of all blocks stay free.
        """
        usable = (num_blocks - (self.null_block is not None)) // self.instances
        usable -= -(-usable * self.headroom_percent // 100)
        usable -= self.num_state_blocks
        sizes = [group.block_size or block_size for group in self.groups]
        ahead = self.draft_tokens + self.spare_tokens
        most = 0
        while sum(-(-(most + 1 + ahead) // size) for size in sizes) <= usable:
            most += 1
        return min(most, self.max_request_tokens) if self.max_request_tokens else most

    def num_blocks_with(self, usable: int) -> int:
        """The least blocks of which one request may take `usable`, those for states included."""
        usable = -(-usable * 100 // (100 - self.headroom_percent)) * self.instances
        null = self.null_block
        return usable if null is None else max(usable, null) + 1
