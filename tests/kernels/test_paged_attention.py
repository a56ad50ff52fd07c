"""Our Triton kernels in the interpreter: against the oracle, and every other check."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from poolproof.cli.served_managers import served_managers
from poolproof.kernels.arguments import KernelArgumentError
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.paged.attention import TileSizes, paged_attention, tile_sizes
from poolproof.kernels.strategies import cases
from poolproof.kernels.target import paged_target

TARGET = replace(paged_target("cpu"), managers=served_managers())


def run(case: Case, **keywords) -> tuple[torch.Tensor, float]:
    batch = build(case)
    options = {**batch.options.keywords(), **keywords}
    output = paged_attention(*(getattr(batch, name) for name in batch.__slots__[:6]), **options)
    return output, dense_attention(batch).max_ratio(output)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_drawn_cases_are_dense_attention(case):
    outcome = CHECKS["dense"].run(TARGET, case)
    assert outcome.wrong is None
    assert (outcome.ratio or 0) < 0.6


RELATED = [
    name
    for name, check in CHECKS.items()
    if name not in {"dense", "serving"} and check.applies(TARGET)
]


@pytest.mark.parametrize("name", RELATED)
def test_every_check_holds(name):
    draw = random.Random(name)
    compared = 0
    for _ in range(60):
        outcome = CHECKS[name].run(TARGET, draw_case(draw.randrange, TARGET.declaration))
        assert outcome.wrong is None
        compared += outcome.compared
        if compared > 6 or (name == "64-bit offsets" and compared):
            break
    assert compared


@pytest.mark.parametrize("head_size", [16, 17, 80, 96, 128, 256])
@pytest.mark.parametrize("queries", [1, 3])
def test_head_sizes(head_size, queries):
    assert run(Case(sequences=((queries, 7),), head_size=head_size))[1] < 0.5


@pytest.mark.parametrize("block_size", [1, 5, 64, 256])
@pytest.mark.parametrize("queries", [1, 4])
def test_block_sizes(block_size, queries):
    assert run(Case(sequences=((queries, 70),), block_size=block_size))[1] < 0.5


def test_a_group_larger_than_a_tile_of_queries():
    case = Case(sequences=((3, 9), (1, 4)), queries_per_kv_head=40)
    assert run(case)[1] < 0.5


def test_int64_tables_and_lengths():
    batch = build(Case(sequences=((1, 9), (2, 5))))
    output = paged_attention(
        batch.query, batch.key_cache, batch.value_cache, batch.block_tables.long(),
        batch.kv_lengths.long(), batch.query_lengths.long(), scale=batch.options.scale,
    )  # fmt: skip
    assert dense_attention(batch).max_ratio(output) < 0.5


def test_no_tokens_at_all():
    assert run(Case(sequences=((0, 5),)))[0].shape == (0, 1, 16)
    assert run(Case(sequences=((0, 5), (2, 3))))[1] < 0.5


def test_bounds_that_the_caller_knows_replace_the_look_at_the_device():
    case = Case(sequences=((1, 40), (1, 3)))
    plain = run(case)[0]
    bounds = {"values_checked": True, "max_kv_length": 40, "max_query_length": 1}
    assert torch.equal(run(case, **bounds)[0], plain)
    assert torch.equal(run(case, values_checked=True)[0], plain)


def test_other_tile_sizes_stay_within_the_bound():
    assert run(Case(sequences=((1, 70), (9, 40))), sizes=TileSizes(32, 64, 16, 32))[1] < 0.5


def test_a_query_on_another_device_is_refused():
    cache = torch.zeros(2, 4, 2, 16, device="meta")
    with pytest.raises(KernelArgumentError, match="query is on meta; it must be on cpu"):
        paged_attention(
            torch.zeros(1, 2, 16, device="meta"), cache, cache,
            torch.zeros(1, 1, dtype=torch.int32, device="meta"),
            torch.zeros(1, dtype=torch.int32, device="meta"),
            torch.zeros(1, dtype=torch.int32, device="meta"),
            scale=1.0, values_checked=True,
        )  # fmt: skip


def test_tiles_for_a_gpu_do_not_depend_on_the_batch(monkeypatch):
    import poolproof.kernels.paged.attention as launcher

    monkeypatch.setattr(launcher, "INTERPRETED", False)
    h100 = tile_sizes(128, torch.bfloat16, 90)
    assert (h100.keys, h100.split, h100.rows, h100.prefill_keys) == (64, 512, 256, 128)
    assert tile_sizes(128, torch.bfloat16, 89).rows == 64
    assert tile_sizes(128, torch.float32, 90).prefill_keys == 32
