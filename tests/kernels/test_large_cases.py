"""Large cases: each run has the sizes in which faults begin, within what a target declares."""

import random
from itertools import pairwise

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.kernels.arguments import check_shapes, check_values
from poolproof.kernels.case import Case, build
from poolproof.kernels.check_run import certify_check, in_order
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.faulty_families import FAMILIES
from poolproof.kernels.faulty_kernels import FAULTY_KERNELS
from poolproof.kernels.functions.faulty import FUNCTION_FAMILIES
from poolproof.kernels.large_cases import KINDS, draw_at_kind
from poolproof.kernels.layouts import REACHES
from poolproof.kernels.target import gather_target, paged_target
from poolproof.kernels.torch_attention import TorchAttention


def drawn(declared: Declaration, seed: int = 0) -> list[Case]:
    draw = random.Random(seed)
    return [draw_at_kind(number)(draw.randrange, declared) for number in range(len(KINDS))]


@pytest.mark.parametrize("seed", range(3))
def test_one_of_each_kind_has_the_most_of_everything(seed):
    cases = drawn(Declaration(), seed)
    pairs = [pair for case in cases for pair in case.sequences]
    assert max(keys for queries, keys in pairs if queries == 1) > 2040
    assert max(keys for queries, keys in pairs if queries > 1) > 2040
    assert max(queries for queries, _ in pairs) > 280
    assert max(len(case.sequences) for case in cases) > 30
    assert max(case.queries_per_kv_head for case in cases) == 16
    assert max(case.num_kv_heads for case in cases) > 5
    assert max(case.head_size for case in cases) == 256
    assert any(queries == 0 for case in cases for queries, _ in case.sequences[:-1])
    assert {case.distribution for case in cases} >= {"even", "high"}


def test_large_cases_stay_within_a_declaration():
    declared = Declaration(
        modes=("decode",), grouped=False, head_sizes=(64,), block_sizes=(32,), dtypes=("float16",),
        features=(), views=(), layouts=("slots-heads",), scale="head-size",
    )  # fmt: skip
    for case in drawn(declared):
        assert {queries for queries, _ in case.sequences} == {1}
        assert (case.queries_per_kv_head, case.head_size, case.block_size) == (1, 64, 32)
        assert (case.dtype, case.layout, case.views, case.scale) == (
            "float16", "slots-heads", (), None,
        )  # fmt: skip


def test_lengths_stand_at_the_edges_of_declared_tiles():
    tile = 96
    lengths = [
        keys
        for seed in range(20)
        for case in drawn(Declaration(tiles=(tile,)), seed)
        for _, keys in case.sequences
        if 130 < keys < 2000
    ]
    near = [keys for keys in lengths if min(keys % tile, tile - keys % tile) < 2]
    # By chance it would be 3 of 96.
    assert len(near) > 0.2 * len(lengths)


@pytest.mark.parametrize("tiles", [(), (96,), (16, 32), (512,), (4096,)])
def test_windows_of_drafts_begin_on_both_sides_of_an_edge(tiles):
    for seed in range(20):
        case = drawn(Declaration(tiles=tiles), seed)[-1]
        sizes = [tile for tile in tiles if tile <= 1024] or [64, 128, 256]
        for queries, keys in case.sequences:
            first, last = (keys - behind - case.sliding_window for behind in (queries - 1, 0))
            assert all(first // size < last // size for size in sizes)


def test_a_large_case_makes_legal_arguments():
    for case in drawn(Declaration()):
        batch = build(case)
        check_shapes(batch)
        check_values(batch)


def test_large_cases_stand_evenly_among_small_ones():
    choose = random.Random(0).randrange
    order = in_order(CHECKS["dense"], paged_target("cpu"), Depth.QUICK, choose)
    places = [number for number, draw in enumerate(order) if draw in KINDS]
    assert len(places) == len(KINDS)
    assert max(b - a for a, b in pairwise(places)) < 10
    assert not set(KINDS) & set(in_order(CHECKS["swap"], paged_target("cpu"), Depth.QUICK, choose))


def test_a_fault_at_a_size_is_made_small_again():
    late = FAULTY_KERNELS["LB2"]
    found = certify_check(late.make(), "dense", Depth.QUICK, 0, lambda case: None).finding
    assert len(found.case["sequences"]) == 9
    # There were about thirty sequences of sixteen keys.
    assert sum(keys for _, keys in found.case["sequences"]) < 100


@pytest.mark.parametrize("reach", REACHES[1:])
def test_a_wide_cache_takes_no_memory_and_is_read_right(reach):
    case = Case(sequences=((1, 30), (3, 9)), reach=reach, layout="cross-layer", cache_dtype=None)
    assert CHECKS["64-bit offsets"].run(gather_target("cpu"), case).wrong is None
    assert build(case).block_tables.max() >= 65_536


def test_a_target_that_copies_the_cache_is_told_the_row_that_says_so():
    class Copying(TorchAttention):
        def loaded(self, rows, cache):
            return super().loaded(rows, cache.clone())

    check = CHECKS["64-bit offsets"]
    target = Copying().target("copying")
    wrong = check.run(target, Case(sequences=((1, 3),), reach="2^31 slots")).wrong
    assert "declare cache_reads: copied" in wrong
    assert not check.applies(Copying().target("copying", cache_reads="copied"))


def test_the_64_bit_check_has_a_case_of_every_reach_and_feature_that_is_declared():
    draws = CHECKS["64-bit offsets"].draws(
        Declaration(features=("alibi", "fp8"), modes=("decode",), cache_size="fewer-slots")
    )
    cases = [draw(random.Random(0).randrange, Declaration(modes=("decode",))) for draw in draws]
    assert [case.reach for case in cases[:2]] == list(REACHES[1:3])
    assert [case.alibi for case in cases] == [False, False, True, False]
    assert cases[3].cache_dtype is not None
    assert {queries for case in cases for queries, _ in case.sequences} == {1}


def test_every_family_has_four_constants_or_more():
    assert all(len(family.members) >= 4 for family in FAMILIES)
    letters = [family.letter for family in (*FAMILIES, *FUNCTION_FAMILIES)]
    assert len(set(letters)) == len(letters)


def test_what_is_beside_a_sliced_output_is_not_written():
    class Wide(TorchAttention):
        def store(self, result, sequence, output):
            super().store(result, sequence, output)
            rows, heads, size = result.shape
            result.as_strided((rows, heads + 1, size), result.stride())[:, heads] = 0

    case = Case(sequences=((2, 5),), views=("out",))
    wrong = CHECKS["dense"].run(Wide().target("wide"), case).wrong
    assert wrong == "writes beside the rows of the output tensor, a slice of a wider one"
    assert torch.equal(*(build(Case(sequences=((2, 5),), views=v)).query for v in ((), ("query",))))
