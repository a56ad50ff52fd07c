"""Bugs of engines with recurrent states: where a step starts, what it leaves, what a key promises.

Most were told of vLLM's cache mode "align", whose workers copy states between columns of a table;
these are planted in `AlignedStates`, which does the same and is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poolproof.bugs.clean_states import (
    AlignedRow,
    AlignedStates,
    AlignedStatesEngine,
    EarlyStateKeysEngine,
    RecomputingEngine,
    ShorterHitsEngine,
    ZeroedSlabsEngine,
)
from poolproof.bugs.engine_specimen import (
    HYBRID,
    HYBRID_ASYNC_DRAFTS,
    HYBRID_DRAFTS,
    HYBRID_LAST,
    HYBRID_STEP_END,
    HYBRID_TOLD,
    EngineSection,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine, EngineStep, LiveRequest
from poolproof.impl.running_states import RunningStates, StateGroup

__all__ = ["ENGINE_STATE_BUGS"]

ENGINE_STATE_BUGS = EngineSection()
plant = ENGINE_STATE_BUGS.plant

ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN


def _tells(profile: EngineProfile) -> bool:
    return profile.has_states and profile.state_moves == "told"


def _tells_drafts(profile: EngineProfile) -> bool:
    return _tells(profile) and profile.draft_tokens > 0


# Which of the states behind drafts counts.


@dataclass(slots=True)
class _LooksBack(AlignedStates):
    """The column from before the state was moved is taken for the one where it is now."""

    last: list[int] = field(default_factory=list)

    def _moved(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        self.last = list(self.columns)
        return super(_LooksBack, self)._moved(number, row)

    def _finished(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        old, new = self.last[number], row.column
        copies = super(_LooksBack, self)._finished(number, row)
        if old == -1:
            return copies
        back = {row.table[new + ahead]: row.table[old + ahead] for ahead in range(row.num_drafts)}
        return {
            part: [[back.get(source, source), *rest] for source, *rest in told]
            for part, told in copies.items()
        }


@plant(
    "S164", "the state at the end of a block is copied from where it stood before the step",
    thread="vllm#53505", invariants=("DATA",), severity=ANOTHER, profile=HYBRID_DRAFTS,
    is_bug_under=_tells_drafts,
)  # fmt: skip
class CopiesBackwards(AlignedStatesEngine):
    """What is kept under a key, or goes on running, is older than it says."""

    running_states_class = _LooksBack


@dataclass(slots=True)
class _KeepsTheCount(AlignedStates):
    """The state was moved to the first place of its column, and is looked for further back."""

    def _moved(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        accepted = self.accepted[number]
        copies = super(_KeepsTheCount, self)._moved(number, row)
        self.accepted[number] = accepted
        return copies


@plant(
    "S165", "a state is looked up by tokens that were accepted before it was moved",
    thread="vllm#50021", invariants=("DATA", "CRASH"), severity=OWN, profile=HYBRID_ASYNC_DRAFTS,
    is_bug_under=_tells_drafts,
)  # fmt: skip
class LooksBeyond(AlignedStatesEngine):
    """What stands there was left for others, or by drafts that were refused."""

    running_states_class = _KeepsTheCount


@dataclass(slots=True)
class _NoRoomForDrafts(AlignedStates):
    """The table has the blocks of positions, and none behind them."""

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        short = list(tables)
        for group in groups:
            short[group.index] = tables[group.index][: -group.num_scratch]
        return super(_NoRoomForDrafts, self).step(
            count, num_drafts, num_accepted, short, groups, every_block=every_block
        )


@plant(
    "S166", "the states behind drafts are looked up in a table that has no blocks for them",
    thread="vllm#41884", also=("vllm#41898",), invariants=("CRASH",), severity=Severity.CRASH,
    silent=False, profile=HYBRID_DRAFTS, is_bug_under=_tells_drafts,
)  # fmt: skip
class LooksBehindTheTable(AlignedStatesEngine):
    """The engine ends."""

    running_states_class = _NoRoomForDrafts


@dataclass(slots=True)
class _SavesOverDrafts(AlignedStates):
    """Every draft counts as right where a state is saved, and no end of a block is saved twice."""

    saved: set[int] = field(default_factory=set)

    def _finished(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        right = super(_SavesOverDrafts, self)._finished(number, row)
        kept = self.accepted[number]
        hoped = replace(row, num_accepted=row.num_drafts + 1 if row.num_accepted else 0)
        copies = super(_SavesOverDrafts, self)._finished(number, hoped)
        self.accepted[number] = kept
        entry = (row.end - 1) // row.size if row.end % row.size else row.end // row.size
        if not copies["temporal"] or entry in self.saved:
            return {part: [] for part in right} if entry in self.saved else right
        self.saved.add(entry)
        return copies


@plant(
    "S167", "a state that was saved over refused drafts stays where the key finds it",
    thread="vllm#57128", also=("vllm#43650",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID_DRAFTS, is_bug_under=_tells_drafts,
)  # fmt: skip
class KeepsStatesOfDrafts(AlignedStatesEngine):
    """Who hits the block goes on from tokens that nobody has said."""

    running_states_class = _SavesOverDrafts


@dataclass(slots=True)
class _SavesNothing(AlignedStates):
    """Nothing is copied after a step."""

    def _finished(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        copies = super(_SavesNothing, self)._finished(number, row)
        if copies["temporal"]:
            self.accepted[number] = row.num_accepted
        return {part: [] for part in copies}


@plant(
    "S168", "the end of a block that drafts pass is published, and its state is not saved",
    thread="vllm#53912", also=("vllm#43559", "vllm#47194", "vllm#47087"), invariants=("DATA",),
    severity=ANOTHER, profile=HYBRID_DRAFTS, is_bug_under=_tells_drafts,
)  # fmt: skip
class SavesNoState(AlignedStatesEngine):
    """The block holds the state of other tokens."""

    running_states_class = _SavesNothing


@dataclass(slots=True)
class _StartsAnywhere(AlignedStates):
    """A row of one token is taken for one that goes on, the first of a prompt included."""

    def _started(self, number: int, row: AlignedRow) -> tuple[Any, Any]:
        if not row.first and row.known == 1:
            return row.table[row.column], [row.table[row.column], 0]
        return super(_StartsAnywhere, self)._started(number, row)


@plant(
    "S169", "a prompt of one token counts as a row of drafts, which starts from its block",
    thread="vllm#54392", invariants=("DATA",), severity=ANOTHER, profile=HYBRID_DRAFTS,
    is_bug_under=_tells_drafts,
)  # fmt: skip
class OneTokenStartsAnywhere(AlignedStatesEngine):
    """Whatever a stranger left there is the beginning of its prompt."""

    running_states_class = _StartsAnywhere


@dataclass(slots=True)
class _FirstDraftsArePrompt(RunningStates):
    """The first row of a run that tries drafts leaves one state, behind all of them."""

    has_drafted: bool = False

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        uses = super(_FirstDraftsArePrompt, self).step(
            count, num_drafts, num_accepted, tables, groups, every_block=every_block
        )
        if num_drafts and not self.has_drafted:
            self.has_drafted = True
            for use, places in zip(uses, self.places, strict=True):
                use["leaves"] = use["leaves"][-1:]
                (_, block) = use["leaves"][0]
                places.update(dict.fromkeys(places, block))
        return uses


@plant(
    "S170", "the last token of a prompt, padded with drafts, is computed as a prompt",
    thread="vllm#55178", invariants=("DATA",), severity=OWN, profile=HYBRID_DRAFTS,
    is_bug_under=_tells_drafts,
)  # fmt: skip
class DraftsOfThePromptStay(Engine):
    """The state behind all drafts is kept, and the padding with it."""

    running_states_class = _FirstDraftsArePrompt


@dataclass(slots=True)
class _ForgetsTheCount(AlignedStates):
    """How many drafts were right is asked only where there are drafts again."""

    def _moved(self, number: int, row: AlignedRow) -> dict[str, list[list[int]]]:
        if not row.num_drafts:
            self.accepted[number] = 1
        return super(_ForgetsTheCount, self)._moved(number, row)


@plant(
    "S171", "a step without drafts does not ask how many were right in the step before",
    thread="vllm#39273", also=("vllm#40738",), invariants=("DATA",), severity=OWN,
    profile=replace(HYBRID_DRAFTS, prefix_hits="never"), is_bug_under=_tells_drafts,
)  # fmt: skip
class StepWithoutDrafts(AlignedStatesEngine):
    """It goes on from the state before them. No prefix cache is needed."""

    running_states_class = _ForgetsTheCount

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **{**arguments, "enable_caching": False})


@dataclass(slots=True)
class _WindowStays(AlignedStates):
    """The temporal part goes back with the refused drafts, and the window does not."""

    def step(
        self,
        count: int,
        num_drafts: int,
        num_accepted: int,
        tables: Sequence[Sequence[int]],
        groups: Sequence[StateGroup],
        *,
        every_block: bool,
    ) -> list[dict[str, Any]]:
        uses = super(_WindowStays, self).step(
            count, num_drafts, num_accepted, tables, groups, every_block=every_block
        )
        for use in uses:
            if use["part"] == "window":
                last, (block, _) = use["leaves"][-1]
                use["leaves"] = [*use["leaves"][: -num_drafts - 1], (last, [block, 0])]
                use["starts"] = use["starts"] and [use["starts"][0], 0]
                use["before"] = [[source, into] for source, into, _ in use["before"]]
                use["after"] = [[source, into] for source, into, _ in use["after"]]
        return uses


@plant(
    "S172", "refused drafts stay in the window of the convolution",
    thread="vllm#50272", also=("vllm#44296",), invariants=("DATA",), severity=OWN,
    profile=HYBRID_DRAFTS, is_bug_under=_tells_drafts,
)  # fmt: skip
class WindowIsNotRolledBack(AlignedStatesEngine):
    """The two parts of the state are of different prefixes."""

    running_states_class = _WindowStays


@plant(
    "S173", "what a step leaves behind refused drafts is where the next one starts",
    thread="mlx-lm#1109", also=("vllm#39273",), invariants=("DATA",), severity=OWN,
    profile=HYBRID_LAST,
    is_bug_under=lambda p: p.has_states and p.draft_states == "last" and p.draft_tokens > 0,
)  # fmt: skip
class CountsBackAlone(RecomputingEngine):
    """Counters go back, and a state cannot."""

    def _go_back(self, request: LiveRequest) -> None:
        """The tokens are counted as they should be."""


# Hits, and what a key promises.


@dataclass(slots=True)
class _SeedsWithAttention(AlignedStates):
    """The column of a hit is found with the block size of the first group."""

    @classmethod
    def after_hit(
        cls, num_cached: int, tables: Sequence[Sequence[int]], groups: Sequence[StateGroup]
    ) -> AlignedStates:
        small = [replace(group, block_size=_SMALL) for group in groups]
        return super(_SeedsWithAttention, cls).after_hit(num_cached, tables, small)


_SMALL = 4


@plant(
    "S174", "the block of the state that was hit is found with the block size of attention",
    thread="vllm#55507", also=("vllm#53142",), invariants=("DATA", "CRASH", "PLAN"),
    severity=ANOTHER,
    profile=replace(HYBRID_TOLD, groups=(CacheGroup(), CacheGroup("state", block_size=8))),
    is_bug_under=lambda p: _tells(p) and p.groups[1:] == (CacheGroup("state", block_size=8),),
)  # fmt: skip
class SeedsWithAttention(AlignedStatesEngine):
    """It is another block, or none."""

    running_states_class = _SeedsWithAttention


@plant(
    "S175", "keys of states stay when their request is preempted in the pass that planned it",
    thread="vllm#57580", also=("vllm#56525",), invariants=("DATA",), severity=ANOTHER,
    profile=replace(HYBRID, policy="priority", max_batch_tokens=10),
    is_bug_under=lambda p: p.has_states and p.policy == "priority" and p.max_batch_tokens < 16,
)  # fmt: skip
class KeysOfUnwrittenStates(EarlyStateKeysEngine):
    """Nobody has left a state where they point."""

    def _take_back(self, request: LiveRequest, num_computed: int) -> None:
        """Nothing is taken back."""


@plant(
    "S176", "a step passes the end of a block, leaves no state there, and the block gets its key",
    thread="LMCache#4984", also=("LMCache#5004",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID_STEP_END,
    is_bug_under=lambda p: p.has_states and p.states == "step-end",
)  # fmt: skip
class PassesTheEnd(Engine):
    """Whatever stood there is found as the state of that end."""

    def _until_state(self, first: int, left: int, count: int) -> int:  # noqa: ARG002 - on it goes
        return count


@plant(
    "S177", "a hit is a block shorter for attention, and its state is that of the longer one",
    thread="vllm#47861", also=("sglang#40865", "sglang#39115"), invariants=("DATA",),
    severity=ANOTHER, profile=HYBRID_TOLD, is_bug_under=_tells,
)  # fmt: skip
class StateOfTheLongerHit(ShorterHitsEngine):
    """The last block is passed twice."""

    def _admit(self, step: EngineStep, request: LiveRequest) -> bool:
        longer, num_longer = self.manager.get_computed_blocks(request)
        is_in = super()._admit(step, request)
        if is_in and 0 < request.states.num_computed < num_longer:
            for group, places in zip(self._state_groups, request.states.places, strict=True):
                places[request.states.num_computed] = longer.blocks[group.index][-1]
        return is_in


@dataclass(slots=True)
class _WritesInPlace(RunningStates):
    """The next state is left in the last whole block, which was hit, or has a key."""

    def _block(self, group: StateGroup, table: Sequence[int], until: int, known: int) -> int:
        entry = until // group.block_size - 1
        if until % group.block_size and entry >= 0 and table[entry]:
            return table[entry]
        return super(_WritesInPlace, self)._block(group, table, until, known)


@plant(
    "S178", "a request goes on in the block of the state that it has found, without a copy",
    thread="vllm#51766", also=("vllm-metal#584", "sglang#33468"), invariants=("DATA",),
    severity=ANOTHER, profile=HYBRID_TOLD,
    is_bug_under=lambda p: _tells(p) and not p.draft_tokens,
)  # fmt: skip
class WritesOverTheHit(Engine):
    """Whoever hits it next goes on from another's tokens."""

    running_states_class = _WritesInPlace


# Blocks.


@plant(
    "S179", "a slab is zeroed when it is taken for the first time, and not when it is taken again",
    thread="vllm-metal#584", invariants=("DATA",), severity=ANOTHER, profile=HYBRID_TOLD,
    is_bug_under=_tells,
)  # fmt: skip
class ZeroesOnce(ZeroedSlabsEngine):
    """A request begins with what its predecessor has left."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._zeroed: list[int] = []

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        fresh = [block for block in plan["zeroes"] if block not in self._zeroed]
        self._zeroed += fresh
        return {**plan, "zeroes": fresh}


@plant(
    "S180", "blocks for the states behind drafts are not counted where it is decided what fits",
    thread="vllm#52520", also=("vllm#28176",), invariants=("LIVE",), severity=Severity.STALL,
    profile=replace(HYBRID_DRAFTS, state_blocks=0),
    is_bug_under=lambda p: _tells_drafts(p) and p.state_blocks <= p.draft_tokens,
)  # fmt: skip
class CountsNoScratch(Engine):
    """A request is let in, for which there will never be room."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self.max_request_tokens = num_blocks * block_size
