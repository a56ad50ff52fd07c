"""PLAN, OUT and LIVE: what each predicate accepts, and its sentence where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.engine_outputs import Due, Output, outputs_are_due
from poolproof.invariants.engine_plans import (
    part_computes_known_tokens,
    part_has_blocks,
    part_has_images,
    plan_encodes_images,
    plan_keeps_limits,
    plan_keeps_promises,
    plan_names_blocks,
    plan_names_live_requests,
    plan_zeroes_blocks,
    transfers_can_end,
    transfers_name_ranks,
    unreadable_answer,
)
from poolproof.invariants.kv_reads import step_reads_own_prefix
from poolproof.invariants.progress import (
    MOST_EMPTY_PLANS,
    loads_get_on,
    plans_go_on,
    users_are_served,
)

PLAIN = EngineProfile()
DRAFTS = EngineProfile(draft_tokens=2)


def part(
    request_id: int = 0,
    first: int = 0,
    count: int = 1,
    num_drafts: int = 0,
    blocks: tuple[tuple[int, ...], ...] = ((0, 1),),
) -> PlannedPart:
    return PlannedPart(request_id, first, count, num_drafts, blocks)


def load(transfer_id: int, *blocks: int, is_load: bool = True) -> Transfer:
    return Transfer(transfer_id, is_load, waits=False, blocks=blocks, places=blocks)


def said(violation: Violation | None, invariant: str) -> str:
    assert violation is not None
    assert violation.invariant == invariant
    return violation.sentence


# CRASH.


def test_an_answer_that_cannot_be_read_is_named() -> None:
    violation = unreadable_answer("plan()", "a plan lacks compute")
    assert violation.invariant == "CRASH"
    assert violation.severity is Severity.CRASH
    assert violation.sentence == "plan() answered what cannot be read: a plan lacks compute"


# PLAN: whose tokens are computed.


def test_a_plan_of_live_requests_is_accepted() -> None:
    plan = EnginePlan((part(0), part(2)), preempted=(1,))
    assert plan_names_live_requests(plan, {0, 1, 2}, {0, 2}) is None


@pytest.mark.parametrize("num_instances", [2, 3, 5])
def test_all_instances_but_one_may_compute_a_request_for_nobody(num_instances: int) -> None:
    others = (replace(part(0), discards=True),) * (num_instances - 1)
    plan = EnginePlan((*others, part(0)))
    assert plan_names_live_requests(plan, {0}, {0}, num_instances) is None
    for parts in ((*others, others[0]), (*others, others[0], part(0)), (part(0), part(0))):
        violation = plan_names_live_requests(EnginePlan(parts), {0}, {0}, num_instances)
        assert said(violation, "PLAN") == "the step computes tokens of request A twice"


def test_an_instance_may_preempt_what_another_one_computes_for_nobody() -> None:
    for_nobody = replace(part(0), discards=True)
    plan = EnginePlan((for_nobody,), preempted=(0,))
    assert plan_names_live_requests(plan, {0}, {0}, num_instances=2) is None
    for alone in (
        plan_names_live_requests(plan, {0}, {0}),
        plan_names_live_requests(replace(plan, parts=(part(0),)), {0}, {0}, num_instances=2),
    ):
        assert said(alone, "PLAN") == "request A is preempted in the step that computes its tokens"


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            EnginePlan((part(7),)),
            "the step computes tokens of request 7, which nobody submitted",
        ),
        (EnginePlan((part(1),)), "the step computes tokens of request B, which has ended"),
        (EnginePlan((part(0), part(0))), "the step computes tokens of request A twice"),
        (EnginePlan(preempted=(9,)), "request 9 is preempted, which nobody submitted"),
        (
            EnginePlan((part(0),), preempted=(0,)),
            "request A is preempted in the step that computes its tokens",
        ),
    ],
)
def test_a_plan_for_others_is_named(plan: EnginePlan, sentence: str) -> None:
    violation = plan_names_live_requests(plan, {0, 1}, {0})
    assert said(violation, "PLAN") == sentence
    assert violation is not None
    assert violation.severity is Severity.CRASH


# PLAN: limits.


def test_a_plan_may_reach_its_limits() -> None:
    profile = EngineProfile(max_batch_tokens=5, max_running=2)
    assert plan_keeps_limits(EnginePlan((part(count=3), part(1, count=2))), profile) is None


def test_a_position_too_many_is_named() -> None:
    plan = EnginePlan((part(count=3), part(1, count=3)))
    violation = plan_keeps_limits(plan, EngineProfile(max_batch_tokens=5))
    assert said(violation, "PLAN") == "the step computes 6 positions; max_batch_tokens is 5"


def test_as_many_adapters_as_are_allowed_are_accepted() -> None:
    plan = EnginePlan((part(0), part(1)))
    assert plan_keeps_limits(plan, EngineProfile(max_adapters=2), {"x", "y"}) is None
    assert plan_keeps_limits(plan, PLAIN, {"x", "y"}) is None


def test_an_adapter_too_many_is_named() -> None:
    limits = EngineProfile(max_adapters=1)
    found = plan_keeps_limits(EnginePlan((part(0), part(1))), limits, {"x", "y"})
    assert "with 2 adapters; max_adapters is 1" in said(found, "PLAN")


def test_a_request_too_many_is_named() -> None:
    plan = EnginePlan((part(0), part(1), part(2)))
    violation = plan_keeps_limits(plan, EngineProfile(max_running=2))
    assert said(violation, "PLAN") == "the step computes tokens of 3 requests; max_running is 2"


# PLAN: what the profile says never happens.

NEVER = EngineProfile(preemptions="never", prefix_hits="never")


def test_a_preemption_where_there_is_none_is_named() -> None:
    plan = EnginePlan((part(0),), preempted=(1, 2))
    assert plan_keeps_promises(plan, {0}, PLAIN) is None
    sentence = said(plan_keeps_promises(plan, {0}, NEVER), "PLAN")
    assert sentence == "request B is preempted; preemptions is never"


def test_a_hit_where_there_is_none_is_named() -> None:
    plan = EnginePlan((part(0), part(1, first=4), part(2, first=1)))
    assert plan_keeps_promises(plan, {1}, PLAIN) is None
    sentence = said(plan_keeps_promises(plan, {1}, NEVER), "PLAN")
    assert sentence == "the step begins request C at position 1; prefix_hits is never"


def test_a_request_that_has_begun_goes_on_from_where_it_was() -> None:
    plan = EnginePlan((part(0), part(1, first=4)))
    assert plan_keeps_promises(plan, {1}, NEVER) is None


def test_what_one_server_of_several_samples_may_be_thrown_away() -> None:
    plan = EnginePlan((part(0), replace(part(1), discards=True)))
    for instances in (2, 3):
        assert plan_keeps_promises(plan, {0}, EngineProfile(instances=instances)) is None
    sentence = said(plan_keeps_promises(plan, {0}, PLAIN), "PLAN")
    assert sentence == (
        "the step discards what it samples for request B, though one server serves it; "
        "instances is 1"
    )


# PLAN: positions.


@pytest.mark.parametrize(
    ("planned", "num_tokens"),
    [
        (part(count=4), 4),
        (part(first=3), 4),
        (part(count=2), 4),
        (part(first=3, count=3, num_drafts=2), 4),
        # All tokens are computed, and the drafts are tried alone.
        (part(first=4, count=2, num_drafts=2), 4),
    ],
)
def test_positions_that_are_known_are_accepted(planned: PlannedPart, num_tokens: int) -> None:
    assert part_computes_known_tokens(planned, num_tokens, DRAFTS) is None


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (part(first=-1), "the step computes request A from position -1 on; positions count from 0"),
        (
            part(count=0),
            (
                "the step computes nothing of request A: its count is 0; a request of which "
                "nothing is computed is left out"
            ),
        ),
        (
            part(count=-2),
            (
                "the step computes nothing of request A: its count is -2; a request of which "
                "nothing is computed is left out"
            ),
        ),
        (
            part(count=1, num_drafts=2),
            (
                "2 of the positions that the step computes of request A are said to be drafts, of "
                "1 in all"
            ),
        ),
        (
            part(count=4, num_drafts=-1),
            (
                "-1 of the positions that the step computes of request A are said to be drafts, of "
                "4 in all"
            ),
        ),
        (
            part(first=3, count=4, num_drafts=3),
            "the step tries 3 drafts of request A; draft_tokens is 2",
        ),
        (
            part(count=5),
            "the step computes position 4 of request A, which has 4 tokens by then, and 0 drafts",
        ),
        (
            part(first=3, count=4, num_drafts=2),
            "the step computes position 6 of request A, which has 4 tokens by then, and 2 drafts",
        ),
        (
            part(count=3, num_drafts=1),
            (
                "the step tries 1 drafts of request A behind position 2, before all of its 4 "
                "tokens are computed"
            ),
        ),
    ],
)
def test_positions_that_nobody_can_know_are_named(planned: PlannedPart, sentence: str) -> None:
    assert said(part_computes_known_tokens(planned, 4, DRAFTS), "PLAN") == sentence


@pytest.mark.parametrize(("most", "count"), [(4, 4), (0, 5)])
def test_a_request_may_reach_its_longest(most: int, count: int) -> None:
    profile = EngineProfile(max_request_tokens=most)
    assert part_computes_known_tokens(part(count=count), 9, profile) is None


@pytest.mark.parametrize(("most", "count"), [(1, 2), (4, 5)])
def test_a_request_beyond_its_longest_is_named(most: int, count: int) -> None:
    violation = part_computes_known_tokens(
        part(count=count), 9, EngineProfile(max_request_tokens=most)
    )
    assert said(violation, "PLAN") == (
        f"the step computes position {count - 1} of request A; max_request_tokens is {most}"
    )


# PLAN: blocks.


def covered(planned: PlannedPart, profile: EngineProfile = PLAIN) -> Violation | None:
    sizes = [group.block_size or 4 for group in profile.groups]
    return part_has_blocks(planned, profile, sizes, 6)


@pytest.mark.parametrize(
    "planned",
    [
        part(count=8),
        part(count=1, blocks=((5,),)),
        # What nobody reads or computes now may be anything: an id is reserved ahead, or missing.
        part(count=4, blocks=((3, 99),)),
    ],
)
def test_a_table_with_a_block_for_each_position_is_accepted(planned: PlannedPart) -> None:
    assert covered(planned) is None


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (
            part(count=9),
            "request A has no block for position 8 in group 0, of blocks 0 to 5",
        ),
        (
            part(count=1, blocks=((6,),)),
            "request A has block 6 for position 0 in group 0, of blocks 0 to 5",
        ),
        (
            part(first=4, count=1, blocks=((-1, 2),)),
            "request A has block -1 for position 0 in group 0, of blocks 0 to 5",
        ),
        (
            part(blocks=((0,), (1,))),
            "the number of block tables of request A is 2; that of cache groups is 1",
        ),
    ],
)
def test_a_block_that_is_missing_is_named(planned: PlannedPart, sentence: str) -> None:
    assert said(covered(planned), "PLAN") == sentence


def test_the_null_block_serves_no_position_that_is_read() -> None:
    sentence = said(covered(part(blocks=((0,),)), EngineProfile(null_block=0)), "PLAN")
    assert sentence == (
        "request A has the null block, 0, for position 0 in group 0, which needs a block of its own"
    )


@pytest.mark.parametrize(("table", "what"), [((), "no block"), ((6,), "block 6")])
def test_where_there_is_a_null_block_it_is_left_out_of_those_to_choose_from(
    table: tuple[int, ...], what: str
) -> None:
    sentence = said(covered(part(blocks=(table,)), EngineProfile(null_block=0)), "PLAN")
    assert sentence == (
        f"request A has {what} for position 0 in group 0, of blocks 0 to 5 without the null "
        "block, 0"
    )


def test_what_is_outside_a_window_needs_no_block() -> None:
    profile = EngineProfile(null_block=0, groups=(CacheGroup("sliding", window=4),))
    assert covered(part(first=8, count=1, blocks=((0, 1, 2),)), profile) is None
    assert said(covered(part(first=6, count=1, blocks=((0, 1),)), profile), "PLAN")


def test_each_group_counts_blocks_of_its_own_size() -> None:
    profile = EngineProfile(
        groups=(CacheGroup(block_size=8), CacheGroup("chunked", block_size=2, window=4))
    )
    assert covered(part(count=8, blocks=((1,), (2, 3, 4, 5))), profile) is None
    sentence = said(covered(part(count=8, blocks=((1,), (2, 3, 4))), profile), "PLAN")
    assert sentence == "request A has no block for position 6 in group 1, of blocks 0 to 5"


@pytest.mark.parametrize("block", [0, 5])
def test_blocks_that_exist_are_zeroed(block: int) -> None:
    assert plan_zeroes_blocks(EnginePlan(zeroes=(block,)), 6) is None


@pytest.mark.parametrize("block", [-1, 6])
def test_zeroing_a_block_that_does_not_exist_is_named(block: int) -> None:
    sentence = said(plan_zeroes_blocks(EnginePlan(zeroes=(2, block)), 6), "PLAN")
    assert sentence == f"the step zeroes block {block} of 6 blocks"


def test_copies_and_transfers_of_blocks_that_exist_are_accepted() -> None:
    plan = EnginePlan(copies=((0, 5),), transfers=(load(1, 0, 5), load(2, 3)), flushes=(3, 1))
    assert plan_names_blocks(plan, 6, {3}) is None


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (EnginePlan(copies=((0, 6),)), "the step copies block 0 to 6 of 6 blocks"),
        (EnginePlan(copies=((-1, 2),)), "the step copies block -1 to 2 of 6 blocks"),
        (EnginePlan(transfers=(load(3, 1),)), "load 3 begins, and it is in flight already"),
        (
            EnginePlan(transfers=(load(1, 1), load(1, 2, is_load=False))),
            "store 1 begins, and it is in flight already",
        ),
        (EnginePlan(transfers=(load(1, 0, 6),)), "load 1 moves block 6 of 6 blocks"),
        (EnginePlan(flushes=(4,)), "the step waits for transfer 4, which is not in flight"),
    ],
)
def test_copies_and_transfers_that_cannot_be_are_named(plan: EnginePlan, sentence: str) -> None:
    assert said(plan_names_blocks(plan, 6, {3}), "PLAN") == sentence


def of_rank(rank: int | None, *, is_load: bool = True) -> EnginePlan:
    return EnginePlan(transfers=(Transfer(3, is_load, False, (1,), (1,), rank=rank),))


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_transfers_of_ranks_that_exist_are_accepted(rank: int | None) -> None:
    assert transfers_name_ranks(of_rank(rank), 2) is None


@pytest.mark.parametrize(("rank", "is_load", "kind"), [(-1, True, "load"), (2, False, "store")])
def test_a_rank_that_does_not_exist_is_named(rank: int, is_load: bool, kind: str) -> None:
    sentence = said(transfers_name_ranks(of_rank(rank, is_load=is_load), 2), "PLAN")
    assert sentence == f"{kind} 3 is that of rank {rank}, and the ranks are 0 to 1"


def test_a_transfer_whose_end_nobody_is_told_is_named() -> None:
    plan = EnginePlan(transfers=(load(2, 3),))
    assert transfers_can_end(plan, hears_of_ends=True) is None
    waited = EnginePlan(transfers=(replace(load(2, 3), waits=True),))
    assert transfers_can_end(waited, hears_of_ends=False) is None
    sentence = said(transfers_can_end(plan, hears_of_ends=False), "PLAN")
    assert sentence.startswith("load 2 is in flight once it has begun, and the engine has no arriv")


# PLAN: images are encoded before they are computed.

SEEING = EngineProfile(image_tokens=4, encoder_cache_tokens=7, max_encoder_tokens=4)
SIZES = {"a": 3, "b": 4, "c": 2}
PICTURES = TokenChain((1,) * 9, images=(Image("a", 1, 3), Image("b", 4, 4)))


@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        (EnginePlan(), {"a", "b"}),
        (EnginePlan(encodes=("b",)), {"a", "b"}),
        (EnginePlan(encodes=("b",), forgets=("b", "c")), {"b"}),
    ],
)
def test_images_within_the_limits_are_accepted(plan: EnginePlan, kept: set[str]) -> None:
    assert plan_encodes_images(plan, SIZES, kept, SEEING) is None


@pytest.mark.parametrize(
    ("plan", "kept", "sentence"),
    [
        (EnginePlan(encodes=("d",)), {"d"}, "image 'd', which nobody submitted"),
        (EnginePlan(forgets=("d",)), set(), "image 'd', which nobody submitted"),
        (EnginePlan(encodes=("a", "c")), {"a", "c"}, "encodes 5 positions"),
        (EnginePlan(encodes=("c",)), {"b", "c", "a"}, "outputs for 9 positions"),
    ],
)
def test_images_beyond_the_limits_are_named(
    plan: EnginePlan, kept: set[str], sentence: str
) -> None:
    assert sentence in said(plan_encodes_images(plan, SIZES, kept, SEEING), "PLAN")


def test_an_encoder_for_one_position_takes_no_image_of_two() -> None:
    profile = replace(SEEING, max_encoder_tokens=1)
    violation = plan_encodes_images(EnginePlan(encodes=("c",)), SIZES, {"c"}, profile)
    assert said(violation, "PLAN") == (
        "the step encodes 2 positions of images; max_encoder_tokens is 1"
    )


def test_a_step_encodes_any_number_where_no_limit_is_stated() -> None:
    profile = replace(SEEING, max_encoder_tokens=0)
    assert plan_encodes_images(EnginePlan(encodes=("a", "b")), SIZES, {"a", "b"}, profile) is None


@pytest.mark.parametrize(
    ("first", "count", "kept"),
    [(0, 1, ""), (0, 4, "a"), (2, 1, "a"), (3, 2, "ab"), (7, 1, "b"), (8, 1, "")],
)
def test_positions_of_images_that_are_encoded_are_accepted(
    first: int, count: int, kept: str
) -> None:
    assert part_has_images(part(0, first, count), PICTURES, set(kept)) is None


@pytest.mark.parametrize(
    ("first", "count", "kept", "sentence"),
    [
        (0, 2, "b", "position 1 of request A, in image 'a'"),
        (3, 1, "b", "position 3 of request A, in image 'a'"),
        (0, 5, "a", "position 4 of request A, in image 'b'"),
        (6, 3, "a", "position 6 of request A, in image 'b'"),
    ],
)
def test_a_position_of_an_image_that_is_not_encoded_is_named(
    first: int, count: int, kept: str, sentence: str
) -> None:
    found = part_has_images(part(0, first, count), PICTURES, set(kept))
    assert said(found, "PLAN") == (
        f"the step computes {sentence}, for which the worker has no output of the encoder"
    )


# OUT.

DUE: dict[int, Due] = {0: ((4, 5), False, False), 1: ((0,), True, False)}


@pytest.mark.parametrize(
    ("outputs", "due"),
    [
        ([], {}),
        ([(0, (4, 5), False), (1, (0,), True)], DUE),
        ([(1, (0,), True), (0, (4, 5), False)], DUE),
        # Nothing is said of somebody for whom nothing was sampled.
        ([(2, (), False)], {}),
        ([], {0: ((4,), False, True)}),
        ([(0, (), False)], {0: ((4,), True, True)}),
        ([(0, (4,), True)], {0: ((4,), True, True)}),
    ],
)
def test_outputs_that_are_due_are_accepted(outputs: Sequence[Output], due: Any) -> None:
    assert outputs_are_due(outputs, due, {}) is None


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        (
            [(0, (4, 5), False), (0, (4, 5), False)],
            "request A is given tokens twice in one step",
        ),
        (
            [(2, (7,), False)],
            "request C is given <7>; nothing was sampled for it that anybody waits for",
        ),
        (
            [(2, (), True)],
            (
                "request C is given no token and ends; nothing was sampled for it that anybody "
                "waits for"
            ),
        ),
        (
            [(0, (4,), False)],
            "request A is given <4> and goes on; it was to be given <4 5> and to go on",
        ),
        (
            [(0, (4, 5), True)],
            "request A is given <4 5> and ends; it was to be given <4 5> and to go on",
        ),
        (
            [(1, (0, 6), True)],
            "request B is given <0 6> and ends; it was to be given <0> and to end",
        ),
        (
            [(0, (), False)],
            "request A is given no token and goes on; it was to be given <4 5> and to go on",
        ),
        (
            [(1, (0,), True)],
            "request A is given nothing; it was to be given <4 5> and to go on",
        ),
        (
            [(0, (4, 5), False)],
            "request B is given nothing; it was to be given <0> and to end",
        ),
    ],
)
def test_outputs_that_are_not_due_are_named(outputs: Sequence[Output], sentence: str) -> None:
    violation = outputs_are_due(outputs, DUE, {})
    assert said(violation, "OUT") == sentence
    assert violation is not None
    assert violation.severity is Severity.WRONG_DATA_OF_ONES_OWN


@pytest.mark.parametrize(
    "first",
    [
        # Ended without a token, as it may; dropped, as it may be; nothing said.
        (3, (), True),
        (4, (), False),
        (5, (), False),
    ],
)
def test_an_output_behind_one_that_is_accepted_is_judged_too(first: Output) -> None:
    due: dict[int, Due] = {4: ((1,), True, True)}
    violation = outputs_are_due([first, (2, (7,), False)], due, {}, may_end={3})
    assert said(violation, "OUT").startswith("request C is given <7>; nothing was sampled")


def test_a_request_that_may_end_without_a_token_is_given_none() -> None:
    assert outputs_are_due([(3, (), True)], {}, {}, may_end={3}) is None
    violation = outputs_are_due([(3, (7,), True)], {}, {}, may_end={3})
    assert said(violation, "OUT").startswith("request D is given <7> and ends; nothing was")


def test_what_may_be_dropped_is_dropped_whole() -> None:
    violation = outputs_are_due([(0, (4,), False)], {0: ((4, 5), False, True)}, {})
    assert said(violation, "OUT").startswith("request A is given <4> and goes on")


def test_a_request_that_is_dropped_does_not_end() -> None:
    violation = outputs_are_due([(0, (), True)], {0: ((4,), True, True)}, {})
    assert said(violation, "OUT").startswith("request A is given no token and ends")


@pytest.mark.parametrize("ends", [False, True])
def test_what_was_in_flight_at_a_cancel_may_come(ends: bool) -> None:
    assert outputs_are_due([(2, (7,), ends)], {}, {2: (7,)}) is None
    assert outputs_are_due([], {}, {2: (7,)}) is None


@pytest.mark.parametrize("tokens", [(7, 7), (8,)])
def test_what_comes_late_is_what_was_sampled(tokens: tuple[int, ...]) -> None:
    violation = outputs_are_due([(2, tokens, False)], {}, {2: (7,)})
    assert said(violation, "OUT").endswith("nothing was sampled for it that anybody waits for")


def test_late_outputs_are_of_one_request() -> None:
    assert outputs_are_due([(3, (7,), False)], {}, {2: (7,)}) is not None
    assert outputs_are_due([(2, (), True)], {}, {2: ()}) is not None


# DATA.


@pytest.mark.parametrize(
    ("is_own", "severity"),
    [(True, Severity.WRONG_DATA_OF_ONES_OWN), (False, Severity.WRONG_DATA_OF_ANOTHER)],
)
def test_what_a_step_reads_is_the_worse_if_another_request_computed_it(
    is_own: bool, severity: Severity
) -> None:
    violation = step_reads_own_prefix("request A reads ...", 3, is_own=is_own)
    assert violation == Violation("DATA", severity, "request A reads ...", (3,))


def test_what_is_read_of_no_block_names_none() -> None:
    assert step_reads_own_prefix("request A reads ...", None, is_own=True).blocks == ()


# LIVE.


@pytest.mark.parametrize(
    ("num_empty", "waiting"), [(MOST_EMPTY_PLANS - 1, [0]), (100, []), (0, [0, 1])]
)
def test_a_few_empty_plans_are_accepted(num_empty: int, waiting: Sequence[int]) -> None:
    assert plans_go_on(num_empty, waiting) is None


@pytest.mark.parametrize(
    ("waiting", "names"),
    [
        ([1], "request B is"),
        ([0, 2], "requests A, C are"),
        (range(6), "requests A, B, C, D, E, F are"),
        (range(7), "requests A, B, C, D, E, F, ... are"),
    ],
)
def test_an_engine_that_is_stuck_is_named(waiting: Sequence[int], names: str) -> None:
    violation = plans_go_on(MOST_EMPTY_PLANS, waiting)
    assert said(violation, "LIVE") == (
        f"{names} waiting, nothing is in flight, and 8 plans in a row computed nothing"
    )
    assert violation is not None
    assert violation.severity is Severity.STALL


def test_steps_that_give_tokens_in_time_are_accepted() -> None:
    assert users_are_served(16, [0], 0) is None
    assert users_are_served(36, [0], 10) is None
    assert users_are_served(1_000, [], 0) is None


def test_an_engine_that_turns_in_a_circle_is_named() -> None:
    violation = users_are_served(37, [0, 1], 10)
    assert said(violation, "LIVE") == (
        "requests A, B are waiting, and in 37 steps nobody was given a token; their 10 tokens take "
        "36 steps at most"
    )
    assert violation is not None
    assert violation.severity is Severity.STALL


def test_loads_that_may_serve_somebody_are_accepted() -> None:
    assert loads_get_on(16, [0], 0) is None
    assert loads_get_on(36, [0], 10) is None
    assert loads_get_on(1_000, [], 0) is None


def test_loads_that_serve_nobody_are_named() -> None:
    violation = loads_get_on(37, [0, 1], 10)
    assert said(violation, "LIVE") == (
        "requests A, B are waiting, and 37 loads have arrived since anybody was given a token; "
        "their 10 tokens take 36 at most"
    )
    assert violation is not None
    assert violation.severity is Severity.STALL
