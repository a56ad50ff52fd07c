"""Cases: plain values, and the tensors that follow from them."""

import json

import pytest
import torch

from poolproof.kernels.arguments import check_shapes, check_values
from poolproof.kernels.batch import ownership
from poolproof.kernels.case import LAYOUTS, Case, CaseError, build
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.grammar import draw_case

CASE = Case(
    sequences=((1, 9), (4, 8), (2, 3)),
    shared_blocks=2,
    num_kv_heads=2,
    queries_per_kv_head=3,
    sliding_window=4,
    softcap=5.0,
    alibi=True,
    sinks=True,
    spare_entries=2,
)


def test_a_case_is_the_same_after_json():
    assert Case.from_json(json.loads(json.dumps(CASE.to_json()))) == CASE


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "a case is a JSON object"),
        ({}, "a case needs sequences"),
        ({"sequences": [[1]]}, "a case needs sequences"),
        ({"sequences": [[5, 3]]}, "a query length is at most its kv length"),
        ({"sequences": [], "speed": 1}, "unknown key 'speed'"),
    ],
)
def test_a_case_that_cannot_be_read_says_why(value, words):
    with pytest.raises(CaseError, match=words):
        Case.from_json(value)


def test_the_same_case_gives_the_same_tensors():
    one, other = build(CASE), build(CASE)
    assert torch.equal(one.key_cache, other.key_cache)
    assert torch.equal(one.block_tables, other.block_tables)


def test_sequences_that_are_long_enough_share_blocks():
    table = build(CASE).block_tables
    assert table[0, :2].tolist() == table[1, :2].tolist()
    assert table[2, 0] not in table[0, :2]


def test_the_null_block_is_nobodys_and_blocks_are_owned_once():
    batch = build(CASE)
    blocks = [block for s in batch.sequences() for block in batch.blocks_of(s)]
    assert 0 not in blocks
    assert len(set(blocks)) == len(blocks) - 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_moves_elements_and_changes_none(layout):
    from dataclasses import replace

    plain, moved = build(CASE), build(replace(CASE, layout=layout))
    assert torch.equal(plain.key_cache, moved.key_cache)
    assert moved.key_cache.is_contiguous() == (layout == LAYOUTS[0])


def test_words_name_what_is_unusual():
    assert CASE.words() == (
        "float32, heads 6 over 2, head size 16, block size 4, queries/keys 1/9 4/8 2/3, 2 blocks "
        "shared, sliding window 4, softcap 5.0, alibi, sinks"
    )


def test_every_drawn_case_makes_legal_arguments():
    import random

    draw = random.Random(3)
    for _ in range(300):
        batch = build(draw_case(draw.randrange, Declaration()))
        check_shapes(batch)
        check_values(batch)


def test_drawn_cases_stay_within_a_declaration():
    import random

    allowed = Declaration(
        features=(), modes=("decode",), dtypes=("float16",), block_sizes=(8,), head_sizes=(32,),
        layouts=("slots-heads",), grouped=False, empty_row="undefined",
    )  # fmt: skip
    draw = random.Random(4)
    for _ in range(100):
        case = draw_case(draw.randrange, allowed)
        assert {queries for queries, _ in case.sequences} == {1}
        assert min(keys for _, keys in case.sequences) > 0
        assert (case.dtype, case.block_size, case.head_size) == ("float16", 8, 32)
        assert (case.queries_per_kv_head, case.layout) == (1, "slots-heads")
        assert (case.sliding_window, case.softcap, case.alibi, case.sinks) == (
            None, None, False, False,
        )  # fmt: skip


def test_ownership_tells_visible_tail_and_unowned_slots_apart():
    batch = build(Case(sequences=((1, 6),), block_size=4, sliding_window=2))
    first, second = batch.block_tables[0].tolist()
    owned = ownership(batch)
    assert owned.visible[second].tolist() == [True, True, False, False]
    assert owned.tail[second].tolist() == [False, False, True, True]
    assert not owned.visible[first].any()
    assert owned.word_for(0, 0) == "the null block"
    assert owned.word_for(first, 0) == "out of every query's sight"
    assert owned.word_for(second, 3) == "behind the last token of its sequence"
    assert owned.word_for(second, 0) == "a visible slot"
    spare = ({1, 2, 3} - {first, second}).pop()
    assert owned.word_for(spare, 0) == "a block of nobody"
