"""PLAN: a step computes what can be computed, within the limits, in blocks that exist.

`requests` are those that were submitted, by number. What stands in the blocks is judged by DATA.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = [
    "part_computes_known_tokens",
    "part_has_blocks",
    "plan_keeps_limits",
    "plan_names_blocks",
    "plan_names_live_requests",
    "transfers_can_end",
    "unreadable_answer",
]


def unreadable_answer(call: object, why: str) -> Violation:
    """The violation that no sense can be made of what a call, in words, answered."""
    return Violation("CRASH", Severity.CRASH, f"{call} answered what cannot be read: {why}")


def plan_names_live_requests(
    plan: EnginePlan, known: Collection[int], live: Collection[int]
) -> Violation | None:
    """A violation of PLAN in a step for a request that is unknown, has ended or comes twice."""
    seen: set[int] = set()
    for part in plan.parts:
        number, name = part.request_id, sequence_name(part.request_id)
        if number not in known:
            return _wrong(f"the step computes tokens of request {number}, which nobody submitted")
        if number not in live:
            return _wrong(f"the step computes tokens of request {name}, which has ended")
        if number in seen:
            return _wrong(f"the step computes tokens of request {name} twice")
        seen.add(number)
    for number in plan.preempted:
        if number not in known:
            return _wrong(f"request {number} is preempted, which nobody submitted")
        if number in seen:
            return _wrong(
                f"request {sequence_name(number)} is preempted in the step that computes its tokens"
            )
    return None


def plan_keeps_limits(plan: EnginePlan, profile: EngineProfile) -> Violation | None:
    """A violation of PLAN in a step with more positions or requests than the profile allows."""
    positions = sum(part.count for part in plan.parts)
    if positions > profile.max_batch_tokens:
        return _wrong(
            f"the step computes {positions} positions; max_batch_tokens is "
            f"{profile.max_batch_tokens}"
        )
    if len(plan.parts) > profile.max_running:
        return _wrong(
            f"the step computes tokens of {len(plan.parts)} requests; max_running is "
            f"{profile.max_running}"
        )
    return None


def part_computes_known_tokens(
    part: PlannedPart, num_tokens: int, profile: EngineProfile
) -> Violation | None:
    """A violation of PLAN in positions that are none, or of tokens that nobody can know yet.

    `num_tokens` counts what the steps in flight will sample, were all their drafts accepted.
    """
    name, end = sequence_name(part.request_id), part.first + part.count
    if part.first < 0 or part.count < 1 or not 0 <= part.num_drafts <= part.count:
        return _wrong(
            f"the step computes {part.count} positions of request {name} from position "
            f"{part.first} on, {part.num_drafts} of them drafts: that is nothing"
        )
    if 0 < profile.max_request_tokens < end:
        return _wrong(
            f"the step computes position {end - 1} of request {name}; max_request_tokens is "
            f"{profile.max_request_tokens}"
        )
    if part.num_drafts > profile.draft_tokens:
        return _wrong(
            f"the step tries {part.num_drafts} drafts of request {name}; draft_tokens is "
            f"{profile.draft_tokens}"
        )
    if end > num_tokens + part.num_drafts:
        return _wrong(
            f"the step computes position {end - 1} of request {name}, which has {num_tokens} "
            f"tokens by then, and {part.num_drafts} drafts"
        )
    if part.num_drafts and end < num_tokens + part.num_drafts:
        return _wrong(
            f"the step tries {part.num_drafts} drafts of request {name} behind position {end - 1}, "
            f"before all of its {num_tokens} tokens are computed"
        )
    return None


def part_has_blocks(
    part: PlannedPart, profile: EngineProfile, block_sizes: Sequence[int], num_blocks: int
) -> Violation | None:
    """A violation of PLAN in a table that lacks a block for a position read or computed here."""
    name, end = sequence_name(part.request_id), part.first + part.count
    if len(part.blocks) != len(block_sizes):
        return _wrong(
            f"request {name} has {len(part.blocks)} block tables; there are {len(block_sizes)} "
            "cache groups"
        )
    for number, (group, size, table) in enumerate(zip(profile.groups, block_sizes, part.blocks)):
        for entry in range(group.first_read(part.first) // size, -(-end // size)):
            block = table[entry] if entry < len(table) else None
            if block is None or not 0 <= block < num_blocks or block == profile.null_block:
                what = "no block" if block is None else f"block {block}"
                return _wrong(
                    f"request {name} has {what} for position {entry * size} in group {number}, of "
                    f"blocks 0 to {num_blocks - 1}"
                    + ("" if profile.null_block is None else f" without {profile.null_block}")
                )
    return None


def plan_names_blocks(
    plan: EnginePlan, num_blocks: int, under_way: Collection[int]
) -> Violation | None:
    """A violation of PLAN in copies or transfers of blocks that do not exist, or a number twice."""
    for pair in plan.copies:
        for block in pair:
            if not 0 <= block < num_blocks:
                source, into = pair
                return _wrong(f"the step copies block {source} to {into} of {num_blocks} blocks")
    seen = set(under_way)
    for transfer in plan.transfers:
        if transfer.transfer_id in seen:
            return _wrong(f"{_named(transfer)} begins, and it is in flight already")
        seen.add(transfer.transfer_id)
        for block in transfer.blocks:
            if not 0 <= block < num_blocks:
                return _wrong(f"{_named(transfer)} moves block {block} of {num_blocks} blocks")
    return None


def transfers_can_end(plan: EnginePlan, *, hears_of_ends: bool) -> Violation | None:
    """A violation of PLAN in a transfer whose end cannot be told to an engine without arrived()."""
    for transfer in plan.transfers:
        if not transfer.waits and not hears_of_ends:
            return _wrong(
                f"{_named(transfer)} is in flight once it has begun, and the engine has no "
                "arrived() to be told of its end; write that method, or let the step wait for it"
            )
    return None


def _named(transfer: Transfer) -> str:
    return f"{'load' if transfer.is_load else 'store'} {transfer.transfer_id}"


def _wrong(sentence: str) -> Violation:
    return Violation("PLAN", Severity.CRASH, sentence)
