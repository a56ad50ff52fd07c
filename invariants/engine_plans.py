"""PLAN: a step computes what can be computed, within the limits, in blocks that exist.

`requests` are those that were submitted, by number. What stands in the blocks is judged by DATA; an
answer that cannot be read at all is worded as CRASH.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import PARTS, StateUse
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = [
    "part_can_leave_states",
    "part_computes_known_tokens",
    "part_has_blocks",
    "part_has_images",
    "part_tells_states",
    "plan_encodes_images",
    "plan_keeps_limits",
    "plan_keeps_promises",
    "plan_names_blocks",
    "plan_names_live_requests",
    "plan_zeroes_blocks",
    "transfers_can_end",
    "transfers_name_ranks",
    "unreadable_answer",
]


def unreadable_answer(call: object, why: str) -> Violation:
    """The violation that no sense can be made of what a call, in words, answered."""
    return Violation("CRASH", Severity.CRASH, f"{call} answered what cannot be read: {why}")


def plan_names_live_requests(
    plan: EnginePlan, known: Collection[int], live: Collection[int], num_instances: int = 1
) -> Violation | None:
    """A violation of PLAN in a step for a request that is unknown, has ended or comes twice.

    Several instances may compute a request in one step, all but one of them for nobody.
    """
    most_discarded = max(1, num_instances - 1)
    times = Counter((part.request_id, part.discards) for part in plan.parts)
    for part in plan.parts:
        number, name = part.request_id, sequence_name(part.request_id)
        if number not in known:
            return _wrong(f"the step computes tokens of request {number}, which nobody submitted")
        if number not in live:
            return _wrong(f"the step computes tokens of request {name}, which has ended")
        if times[number, False] > 1 or times[number, True] > most_discarded:
            return _wrong(f"the step computes tokens of request {name} twice")
    # One instance may preempt what another one still computes, for nobody.
    is_alone = num_instances == 1
    seen = {part.request_id for part in plan.parts if is_alone or not part.discards}
    for number in plan.preempted:
        if number not in known:
            return _wrong(f"request {number} is preempted, which nobody submitted")
        if number in seen:
            return _wrong(
                f"request {sequence_name(number)} is preempted in the step that computes its tokens"
            )
    return None


def plan_keeps_limits(
    plan: EnginePlan, profile: EngineProfile, adapters: Collection[object] = ()
) -> Violation | None:
    """A violation of PLAN in a step with more positions, requests or adapters than are allowed.

    `adapters` are the different LoRA adapters of the requests in the step.
    """
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
    if 0 < profile.max_adapters < len(adapters):
        return _wrong(
            f"the step computes tokens with {len(adapters)} adapters; max_adapters is "
            f"{profile.max_adapters}"
        )
    return None


def plan_keeps_promises(
    plan: EnginePlan, begun: Collection[int], profile: EngineProfile
) -> Violation | None:
    """A violation of PLAN in a hit, a preemption or a discarded token, where there is to be none.

    `begun` are the requests of which some step has computed something.
    """
    if profile.preemptions == "never" and plan.preempted:
        return _wrong(
            f"request {sequence_name(plan.preempted[0])} is preempted; preemptions is never"
        )
    if profile.prefix_hits == "never":
        for part in plan.parts:
            if part.first > 0 and part.request_id not in begun:
                return _wrong(
                    f"the step begins request {sequence_name(part.request_id)} at position "
                    f"{part.first}; prefix_hits is never"
                )
    if profile.instances == 1:
        for part in plan.parts:
            if part.discards:
                return _wrong(
                    f"the step discards what it samples for request "
                    f"{sequence_name(part.request_id)}, though one server serves it; instances is 1"
                )
    return None


def part_computes_known_tokens(
    part: PlannedPart, num_tokens: int, profile: EngineProfile
) -> Violation | None:
    """A violation of PLAN in positions that are none, or of tokens that nobody can know yet.

    `num_tokens` counts what the steps in flight will sample, were all their drafts accepted.
    """
    name, end = sequence_name(part.request_id), part.first + part.count
    if part.count < 1:
        return _wrong(
            f"the step computes nothing of request {name}: its count is {part.count}; a request of "
            "which nothing is computed is left out"
        )
    if part.first < 0:
        return _wrong(
            f"the step computes request {name} from position {part.first} on; positions count "
            "from 0"
        )
    if not 0 <= part.num_drafts <= part.count:
        return _wrong(
            f"{part.num_drafts} of the positions that the step computes of request {name} are said "
            f"to be drafts, of {part.count} in all"
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
    name = sequence_name(part.request_id)
    if len(part.blocks) != len(block_sizes):
        return _wrong(
            f"the number of block tables of request {name} is {len(part.blocks)}; that of cache "
            f"groups is {len(block_sizes)}"
        )
    for number, (group, size, table) in enumerate(zip(profile.groups, block_sizes, part.blocks)):
        for entry in _entries_needed(part, group, size, profile):
            block = table[entry] if entry < len(table) else None
            if block is None or not 0 <= block < num_blocks or block == profile.null_block:
                where = f"for position {entry * size} in group {number}"
                return _wrong(
                    f"request {name} has {_no_block_of_its_own(block, where, num_blocks, profile)}"
                )
    return None


def _no_block_of_its_own(
    block: int | None, where: str, num_blocks: int, profile: EngineProfile
) -> str:
    """What stands where a request needs a block of its own, and what may stand there."""
    null = profile.null_block
    if block is not None and block == null:
        return f"the null block, {null}, {where}, which needs a block of its own"
    what = "no block" if block is None else f"block {block}"
    others = "" if null is None else f" without the null block, {null}"
    return f"{what} {where}, of blocks 0 to {num_blocks - 1}{others}"


def _entries_needed(
    part: PlannedPart, group: CacheGroup, size: int, profile: EngineProfile
) -> Iterable[int]:
    """The entries of a table with the blocks that a step reads or writes.

    Of states none where they are told, and where a step leaves one only, those of its two ends.
    """
    end = part.first + part.count
    entries = range(group.first_read(part.first) // size, -(-end // size))
    if not group.is_state:
        return entries
    if profile.state_moves == "told":
        return ()
    return entries if profile.states == "every-block" else sorted({*entries[:1], *entries[-1:]})


def plan_encodes_images(
    plan: EnginePlan, sizes: Mapping[str, int], kept: Collection[str], profile: EngineProfile
) -> Violation | None:
    """A violation of PLAN in images that are unknown, or too many for the encoder or its cache.

    `sizes` are the positions of each image that was ever submitted, `kept` those images whose
    outputs the worker has once the step is carried out.
    """
    for image in (*plan.encodes, *plan.forgets):
        if image not in sizes:
            return _wrong(f"the step names image {image!r}, which nobody submitted")
    encoded = sum(sizes[image] for image in plan.encodes)
    if 0 < profile.max_encoder_tokens < encoded:
        return _wrong(
            f"the step encodes {encoded} positions of images; max_encoder_tokens is "
            f"{profile.max_encoder_tokens}"
        )
    held = sum(sizes[image] for image in kept)
    if held > profile.encoder_cache_tokens:
        return _wrong(
            f"the worker keeps the encoder's outputs for {held} positions; encoder_cache_tokens is "
            f"{profile.encoder_cache_tokens}"
        )
    return None


def part_has_images(
    part: PlannedPart, chain: TokenChain, kept: Collection[str]
) -> Violation | None:
    """A violation of PLAN in positions of an image that is not `kept`, and not encoded now."""
    for image in chain.images:
        begin, end = image.offset, image.offset + image.length
        is_computed = begin < part.first + part.count and part.first < end
        if is_computed and image.identifier not in kept:
            return _wrong(
                f"the step computes position {max(begin, part.first)} of request "
                f"{sequence_name(part.request_id)}, in image {image.identifier!r}, for which the "
                "worker has no output of the encoder"
            )
    return None


def plan_zeroes_blocks(plan: EnginePlan, num_blocks: int) -> Violation | None:
    """A violation of PLAN in blocks to be zeroed that do not exist."""
    for block in plan.zeroes:
        if not 0 <= block < num_blocks:
            return _wrong(f"the step zeroes block {block} of {num_blocks} blocks")
    return None


def part_tells_states(
    part: PlannedPart, uses: Sequence[StateUse], profile: EngineProfile, num_blocks: int
) -> Violation | None:
    """A violation of PLAN in uses of states that are missing, told twice, or of no block.

    Each part of the state of each group of states starts somewhere, once. Where the tables say what
    becomes of states, nothing is told.
    """
    name = sequence_name(part.request_id)
    if profile.state_moves == "by-table":
        if not uses:
            return None
        return _wrong(
            f"the step says what becomes of the states of request {name}; state_moves is by-table"
        )
    told = [(use.group, kind) for use in uses for kind in use.parts]
    for number, group in enumerate(profile.groups):
        for kind in PARTS if group.is_state else ():
            times = told.count((number, kind))
            if times != 1:
                return _wrong(
                    f"the step says {times} times where the {kind} state of request {name} in "
                    f"group {number} starts; it must say it once"
                )
    for use in uses:
        if not 0 <= use.group < len(profile.groups) or not profile.groups[use.group].is_state:
            return _wrong(
                f"the step uses states of request {name} in group {use.group}, which has none"
            )
        for block in use.blocks():
            if not 0 <= block < num_blocks or block == profile.null_block:
                where = f"for a state of request {name} in group {use.group}"
                return _wrong(
                    f"the step uses {_no_block_of_its_own(block, where, num_blocks, profile)}"
                )
    return None


def part_can_leave_states(
    part: PlannedPart,
    first: int,
    uses: Sequence[StateUse],
    profile: EngineProfile,
    block_sizes: Sequence[int],
) -> Violation | None:
    """A violation of PLAN in a state that the step, from position `first` on, cannot leave."""
    name, end = sequence_name(part.request_id), first + part.count
    known = end - part.num_drafts
    for use in uses:
        size = block_sizes[use.group]
        for until, (_, at) in use.leaves:
            where = f"a state of request {name} after position {until - 1} in group {use.group}"
            if not first < until <= end:
                return _wrong(
                    f"the step leaves {where}; it computes positions {first} to {end - 1}"
                )
            if not 0 <= at <= profile.draft_tokens:
                return _wrong(
                    f"the step leaves {where} as state {at} of a block; there is one for each of "
                    f"{profile.draft_tokens} drafts behind the first"
                )
            if profile.states == "every-token" or until == end:
                continue
            if part.num_drafts and until >= known and _leaves_each(profile):
                continue
            if profile.states == "step-end" or until % size:
                others = "" if profile.states == "step-end" else f", or of a block of {size}"
                return _wrong(
                    f"the step leaves {where}, which is not its own end{others}; states is "
                    f"{profile.states}, draft_states is {profile.draft_states}"
                )
    return None


def _leaves_each(profile: EngineProfile) -> bool:
    return profile.draft_states == "each"


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
    for transfer_id in plan.flushes:
        if transfer_id not in seen:
            return _wrong(f"the step waits for transfer {transfer_id}, which is not in flight")
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


def transfers_name_ranks(plan: EnginePlan, num_ranks: int) -> Violation | None:
    """A violation of PLAN in a transfer of a rank that does not exist."""
    for transfer in plan.transfers:
        if transfer.rank is not None and not 0 <= transfer.rank < num_ranks:
            return _wrong(
                f"{_named(transfer)} is that of rank {transfer.rank}, and the ranks are 0 to "
                f"{num_ranks - 1}"
            )
    return None


def _named(transfer: Transfer) -> str:
    return f"{'load' if transfer.is_load else 'store'} {transfer.transfer_id}"


def _wrong(sentence: str) -> Violation:
    return Violation("PLAN", Severity.CRASH, sentence)
