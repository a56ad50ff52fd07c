"""Our Triton kernels over latent keys (MLA), in the interpreter."""

import math
import random

import pytest
import torch

from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.paged.latent import LatentSizes, latent_sizes, paged_latent_attention
from poolproof.kernels.target import paged_mla_target

TARGET = paged_mla_target("cpu")
PLAIN = {"head_size": 24, "value_size": 16, "latent": True, "queries_per_kv_head": 3}


def run(case: Case, **keywords) -> tuple[torch.Tensor, float]:
    batch = build(case)
    options = {**batch.options.keywords(), **keywords}
    output = paged_latent_attention(
        *(getattr(batch, name) for name in batch.__slots__[:6]), **options
    )
    return output, dense_attention(batch).max_ratio(output)


@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.applies(TARGET)])
def test_every_check_holds(name):
    draw = random.Random(name)
    compared = 0
    for _ in range(40):
        case = draw_case(draw.randrange, TARGET.declaration)
        outcome = CHECKS[name].run(TARGET, case)
        assert outcome.wrong is None
        compared += outcome.compared
        if compared > 3 or (name == "64-bit offsets" and compared):
            break
    assert compared


@pytest.mark.parametrize("sizes", [(24, 16), (40, 32), (576, 512), (33, 32), (16, 16), (80, 17)])
@pytest.mark.parametrize("queries", [1, 5])
def test_sizes_of_the_parts(sizes, queries):
    case = Case(**{**PLAIN, "sequences": ((queries, 40),), "head_size": sizes[0],
                   "value_size": sizes[1]})  # fmt: skip
    assert run(case)[1] < 0.5


@pytest.mark.parametrize("heads", [1, 16, 17, 64, 65, 128])
def test_heads_in_a_tile_and_beyond_it(heads):
    case = Case(**{**PLAIN, "sequences": ((1, 40), (3, 35), (5, 9)), "queries_per_kv_head": heads})
    assert run(case)[1] < 0.5


@pytest.mark.parametrize("more", [{}, {"causal": False}, {"sliding_window": 20}, {"sinks": True}])
def test_drafts_and_prompts_beside_decodes(more):
    sequences = ((2, 90), (1, 33), (0, 12), (30, 50), (3, 3), (1, 0), (4, 32))
    assert run(Case(**{**PLAIN, **more, "sequences": sequences}))[1] < 0.5


@pytest.mark.parametrize("window", range(24, 29))
def test_a_window_begins_for_each_draft_where_its_own_does(window):
    # For some of these the first draft sees the end of a split of 32 keys, and the last does not.
    case = Case(**{**PLAIN, "sequences": ((3, 90),), "sliding_window": window})
    assert run(case)[1] < 0.5


@pytest.mark.parametrize("split", [16, 32, 128])
def test_splits_of_another_length_change_no_more_than_rounding(split):
    sizes = LatentSizes(keys=16, split=split, rows=16, few=3, merged=4)
    case = Case(**{**PLAIN, "sequences": ((2, 90), (1, 128), (7, 60))})
    assert run(case, sizes=sizes)[1] < 0.5


def test_a_sequence_gives_the_same_bits_beside_longer_ones():
    alone = Case(**{**PLAIN, "sequences": ((2, 70),)})
    batch = build(alone)
    tensors = [getattr(batch, name) for name in batch.__slots__[:6]]
    options = batch.options.keywords()
    output = paged_latent_attention(*tensors, **options)
    longer = paged_latent_attention(
        *tensors, **options, values_checked=True, max_kv_length=70 + 3 * 32
    )
    assert torch.equal(output, longer)


def test_output_and_log_sum_exps_go_where_the_caller_says():
    batch = build(Case(**{**PLAIN, "sequences": ((1, 50), (1, 0), (9, 12))}))
    out, lse = batch.query.new_empty(batch.out_shape), torch.zeros(11, 3)
    found = paged_latent_attention(
        *(getattr(batch, name) for name in batch.__slots__[:6]), **batch.options.keywords(),
        out=out, lse=lse,
    )  # fmt: skip
    assert found is out
    expected = dense_attention(batch)
    assert expected.max_ratio(out) < 0.5
    assert bool((lse[1] == -math.inf).all())
    seen = torch.arange(11) != 1
    assert torch.allclose(lse[seen].double(), expected.lse[seen], atol=1e-5)


def test_nothing_is_launched_for_an_empty_batch():
    batch = build(Case(**{**PLAIN, "sequences": ((0, 5),)}))
    output = paged_latent_attention(
        *(getattr(batch, name) for name in batch.__slots__[:6]), **batch.options.keywords()
    )
    assert output.shape == (0, 3, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_are_powers_of_two(dtype):
    sizes = latent_sizes(dtype, 90)
    for size in (sizes.keys, sizes.split, sizes.rows, sizes.merged):
        assert size & (size - 1) == 0
    # A matrix unit takes no less.
    assert min(sizes.keys, sizes.rows) >= 16
