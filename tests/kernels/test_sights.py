"""Chunks, windows ahead, masks, trees of drafts, crossing: cases, tensors, oracle, declaration."""

import random
from dataclasses import replace

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.kernels.arguments import KernelArgumentError, check_shapes, check_values
from poolproof.kernels.batch import ownership
from poolproof.kernels.case import Case, CaseError, build
from poolproof.kernels.check_run import certify_check, check_case, run_case, smaller_cases
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.checks.dense import rows_with_keys
from poolproof.kernels.declaration import FEATURES, SIGHTS, Declaration, DeclarationError
from poolproof.kernels.faulty_kernels import catch
from poolproof.kernels.findings import KernelFinding
from poolproof.kernels.gather import gather_attention, visible_keys
from poolproof.kernels.grammar import draw_case, draw_sighted_case
from poolproof.kernels.large_cases import SIGHT_KINDS
from poolproof.kernels.masks import ancestors, mask_of, parents
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.paged.attention import paged_attention
from poolproof.kernels.relations import RELATIONS, Subject, chosen
from poolproof.kernels.sights import is_sight_supported, sights_of
from poolproof.kernels.target import KernelTarget, gather_target
from poolproof.kernels.torch_attention import TorchAttention
from poolproof.kernels.torch_sights import SIGHT_FAMILIES

ALL = Declaration(features=(*FEATURES, *SIGHTS), out=True)
MASKED = Case(sequences=((1, 9), (4, 12)), mask="any", causal=False, seed=5)


def seen_of(**rows) -> list[list[int]]:
    """The keys that each query of the first sequence sees."""
    batch = build(Case(**rows))
    seen = visible_keys(batch.options, next(iter(batch.sequences())))
    return [row.nonzero().flatten().tolist() for row in seen]


def arguments(batch):
    tensors = [getattr(batch, name) for name in batch.__slots__[:6]]
    return tensors, batch.options.keywords()


def drawn(declared: Declaration, count: int = 200, seed: int = 0) -> list[Case]:
    draw = random.Random(seed)
    return [draw_case(draw.randrange, declared) for _ in range(count)]


def test_a_chunk_is_counted_from_position_0():
    assert seen_of(sequences=((4, 9),), attention_chunk=3) == [[3, 4, 5], [6], [6, 7], [6, 7, 8]]


def test_a_window_looks_back_and_ahead():
    rows = {"sequences": ((3, 5),), "causal": False, "window_ahead": 1}
    assert seen_of(**rows, sliding_window=2) == [[1, 2, 3], [2, 3, 4], [3, 4]]
    assert seen_of(**rows) == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]


def test_a_draft_sees_its_ancestors():
    own = ancestors([-1, 0, 0, 1])
    assert own.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_a_large_tree_is_deep_and_has_branches():
    for seed in range(5):
        tree = parents(64, torch.Generator().manual_seed(seed))
        assert int(ancestors(tree).sum(1).max()) > 20
        assert len(set(tree)) < 64


def test_every_row_of_a_mask_of_the_kind_seen_sees_a_key():
    for seed in range(20):
        case = replace(MASKED, seed=seed, mask="seen")
        assert bool(rows_with_keys(case).all())
    assert any(not rows_with_keys(replace(MASKED, seed=s)).all() for s in range(20))


def test_a_sliced_mask_holds_the_same():
    plain, sliced = build(MASKED), build(replace(MASKED, views=("mask",)))
    assert torch.equal(plain.options.mask, sliced.options.mask)
    assert sliced.options.mask.stride(0) > sliced.options.mask.shape[1]


def test_a_masked_batch_by_hand_is_what_gather_and_oracle_give():
    batch = build(replace(MASKED, mask="seen"))
    tensors, options = arguments(batch)
    sequence = list(batch.sequences())[1]
    blocks = batch.block_tables[1, :3].long()
    keys, values = (
        cache[blocks].flatten(0, 1)[:12, 0].double()
        for cache in (batch.key_cache, batch.value_cache)
    )
    for row in range(sequence.first_row, sequence.first_row + 4):
        seen = mask_of(replace(MASKED, mask="seen"))[row, :12]
        scores = keys[seen] @ batch.query[row, 0].double() * options["scale"]
        expected = torch.softmax(scores, 0) @ values[seen]
        assert torch.allclose(dense_attention(batch).output[row, 0], expected, atol=1e-13)
        found = gather_attention(*tensors, **options)[row, 0]
        assert torch.allclose(found.double(), expected, atol=1e-5)


def test_more_queries_than_keys_all_see_all_keys():
    batch = build(Case(sequences=((7, 3),), causal=False))
    tensors, options = arguments(batch)
    assert dense_attention(batch).max_ratio(gather_attention(*tensors, **options)) < 0.5
    assert seen_of(sequences=((7, 3),), causal=False) == [[0, 1, 2]] * 7


def test_a_query_that_sees_nothing_gets_zeros():
    batch = build(MASKED)
    options = replace(batch.options, mask=torch.zeros_like(batch.options.mask))
    batch = replace(batch, options=options)
    tensors, options = arguments(batch)
    assert not gather_attention(*tensors, **options).any()
    expected = dense_attention(batch)
    assert not expected.output.any()
    assert bool((expected.lse == float("-inf")).all())


def test_slots_that_a_mask_hides_are_out_of_sight():
    batch = build(replace(MASKED, sequences=((1, 9),)))
    seen = batch.options.mask[0, :9]
    owned = ownership(batch)
    blocks = batch.block_tables[0, :3].long()
    assert owned.visible[blocks].flatten()[:9].tolist() == seen.tolist()


def test_a_batch_of_some_sequences_has_their_rows_of_the_mask():
    part, rows = chosen(build(MASKED), [1])
    assert rows.tolist() == [1, 2, 3, 4]
    assert torch.equal(part.options.mask, mask_of(MASKED)[1:])


def test_what_a_mask_hides_is_poisoned_and_nothing_that_is_seen():
    batch = build(MASKED)
    subject = Subject(MASKED, batch, ownership(batch), random.Random(0))
    variants = list(RELATIONS["masked keys"].variants(subject, "any"))
    assert len(variants) == 6
    for variant in variants:
        assert torch.equal(
            dense_attention(variant.batch).output.nan_to_num(7), dense_attention(batch).output
        )
    assert len(list(RELATIONS["masked keys"].variants(subject, "finite-values"))) == 4


def test_blocks_in_front_of_a_chunk_are_given_back():
    case = Case(sequences=((1, 10),), attention_chunk=8)
    subject = Subject(case, build(case), ownership(build(case)), random.Random(0))
    variant = next(iter(RELATIONS["behind the window"].variants(subject, "any")))
    assert variant.batch.block_tables[0].tolist()[:2] == [0, 0]
    assert variant.batch.block_tables[0, 2] != 0


# Declarations and keywords.


def test_a_missing_row_has_none_of_them_and_no_case_either():
    declared = Declaration.from_mapping({})
    assert declared.features == FEATURES
    assert not any(sights_of(case) for case in drawn(declared))


def test_a_keyword_goes_to_who_declares_its_feature_alone():
    taken = []

    def attention(*tensors, **options):
        taken.append(set(options))
        return gather_attention(*tensors, **options)

    for features in ((), ("chunked",), ("tree_mask", "cross")):
        target = KernelTarget(
            name="t", attend=attention, declaration=Declaration(features=features)
        )
        target(build(Case(sequences=((1, 3),))))
    before = {
        "scale", "causal", "sliding_window", "softcap", "alibi_slopes", "sinks", "key_scale",
        "value_scale",
    }  # fmt: skip
    assert taken == [before, before | {"attention_chunk"}, before | {"mask"}]


def test_unknown_features_are_refused_with_the_known_ones():
    with pytest.raises(DeclarationError, match=r"may hold .*fp8, .*chunked, window_ahead, mask"):
        Declaration.from_mapping({"features": ["chunks"]})


@pytest.mark.parametrize("sight", SIGHTS)
def test_each_is_drawn_alone_if_it_is_declared_alone(sight):
    declared = Declaration(features=(sight,))
    cases = drawn(declared)
    assert sum(sights_of(case) == {sight} for case in cases) > 60
    assert all(sights_of(case) <= {sight} for case in cases)


def test_drawn_and_smaller_cases_make_legal_arguments():
    for case in drawn(ALL, 60, seed=1):
        for one in (case, *smaller_cases(case, ALL)):
            assert is_sight_supported(one, ALL)
            assert Case.from_json(one.to_json()) == one
            batch = build(one)
            check_shapes(batch)
            check_values(batch, may_cross=True)


def test_cases_stay_within_modes_blocks_and_empty_rows():
    declared = replace(ALL, modes=("decode",), chunks="blocks", empty_row="undefined", views=())
    for case in drawn(declared):
        assert {queries for queries, _ in case.sequences} == {1}
        assert (case.attention_chunk or 0) % case.block_size == 0
        assert case.mask != "any"
        assert case.views == ()


@pytest.mark.parametrize("sight", SIGHTS)
def test_large_cases_of_each_stay_within_a_declaration(sight):
    draw = random.Random(3)
    for kind in SIGHT_KINDS[sight]:
        for declared in (ALL, Declaration(features=(sight,), modes=("decode",))):
            case = kind(draw.randrange, declared)
            assert sights_of(case) <= set(declared.features)
            batch = build(case)
            check_shapes(batch)
            check_values(batch, may_cross=True)


def test_a_tree_of_64_drafts_stands_behind_2000_keys():
    case = SIGHT_KINDS["tree_mask"][0](random.Random(0).randrange, ALL)
    queries, keys = case.sequences[-1]
    assert (queries, case.mask) == (64, "tree")
    assert keys - queries >= 2000


def test_the_64_bit_check_has_a_case_with_each():
    draws = CHECKS["64-bit offsets"].draws(replace(ALL, features=SIGHTS))
    cases = [draw(random.Random(0).randrange, ALL) for draw in draws[-5:]]
    assert [sights_of(case) for case in cases] == [{sight} for sight in SIGHTS]
    assert {case.reach for case in cases} == {"2^31 slots"}


# Arguments and cases that are refused.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention_chunk": 0}, "attention_chunk is 0; it must be None or a number of tokens"),
        ({"attention_chunk": 4, "sliding_window": 2}, "sliding_window is 2; it must be None with"),
        ({"attention_chunk": 4, "causal": False}, "causal is False; it must be True with att"),
        ({"window_ahead": -1, "causal": False}, "window_ahead is -1"),
        ({"window_ahead": 2}, "causal is True; it must be False with window_ahead"),
        ({"mask": torch.ones(5, 12)}, "mask is float32; it must be bool"),
        ({"mask": torch.ones(4, 12).bool(), "causal": False}, "mask is of 4 rows; it must be of 5"),
        ({"mask": torch.ones(5, 12).bool()}, "causal is True; it must be False with mask"),
    ],
)
def test_an_argument_is_refused_by_name(changes, words):
    batch = build(Case(sequences=((1, 9), (4, 12))))
    batch = replace(batch, options=replace(batch.options, **changes))
    with pytest.raises(KernelArgumentError) as refused:
        check_shapes(batch)
    assert words in str(refused.value)


def test_a_mask_of_too_few_columns_is_refused():
    batch = build(MASKED)
    narrow = replace(batch.options, mask=batch.options.mask[:, :11])
    with pytest.raises(KernelArgumentError, match="mask is of 11 columns; it must be of 12"):
        check_values(replace(batch, options=narrow))


def test_more_queries_than_keys_are_refused_where_positions_count():
    crossing = build(Case(sequences=((7, 3),), causal=False))
    check_values(crossing, may_cross=True)
    ahead = replace(crossing, options=replace(crossing.options, window_ahead=1))
    for batch, may_cross in ((crossing, False), (ahead, True)):
        with pytest.raises(KernelArgumentError, match=r"query_lengths\[0\] is 7"):
            check_values(batch, may_cross=may_cross)


def test_our_triton_kernels_refuse_what_they_do_not_know():
    tensors, options = arguments(build(MASKED))
    with pytest.raises(KernelArgumentError, match="mask is a tensor; it must be None: this kernel"):
        paged_attention(*tensors, **options)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"attention_chunk": 0}, "attention_chunk of a case must be a number of tokens of at"),
        ({"attention_chunk": 3, "causal": False}, "a case with attention_chunk has causal true"),
        ({"mask": "all"}, "mask of a case must be one of tree, seen, any, not 'all'"),
        ({"mask": "any"}, "a case with mask has causal false"),
        ({"mask": "any", "causal": False, "window_ahead": 0}, "with mask has no window_ahead"),
        ({"window_ahead": 1, "causal": False, "alibi": True}, "with window_ahead has no alibi"),
        ({"sliding_window": 2, "causal": False}, "that is not causal has window_ahead"),
        ({"sequences": [[3, 2]]}, "a query length is at most its kv length"),
        ({"sequences": [[3, 2]], "causal": False, "window_ahead": 1}, "more queries than keys"),
    ],
)
def test_a_case_that_contradicts_itself_is_refused(rows, words):
    with pytest.raises(CaseError, match=words):
        Case.from_json({"sequences": [[1, 3]], **rows})


def test_a_case_that_a_target_does_not_declare_is_refused():
    target = TorchAttention().target("plain")
    with pytest.raises(CaseError, match="needs mask, which plain does not declare among its feat"):
        check_case(target, "dense", MASKED, lambda case: None)


def test_words_and_fingerprints_tell_them_apart():
    assert MASKED.words().endswith("queries/keys 1/9 4/12, any mask")
    chunked = Case(sequences=((1, 3),), attention_chunk=2)
    assert "attention chunk 2" in chunked.words()
    fingerprints = {
        KernelFinding(
            check="dense", severity=CHECKS["dense"].severity, sentence="s", case=case.to_json(),
            words="", example=1,
        ).fingerprint
        for case in (
            Case(sequences=((1, 3),), causal=False), chunked, MASKED,
            Case(sequences=((1, 3),), causal=False, window_ahead=0),
            Case(sequences=((4, 3),), causal=False),
        )
    }  # fmt: skip
    assert len(fingerprints) == 5


# Runs.


@pytest.mark.parametrize(
    "name", ["dense", "masked keys", "empty rows", "behind the window", "batch of one"]
)
def test_the_reference_holds(name):
    result = certify_check(gather_target("cpu"), name, Depth.QUICK, 1, lambda case: None)
    assert result.finding is None, result.finding.sentence
    assert result.line.compared > 0


def test_masked_keys_are_not_asked_of_who_has_no_mask():
    target = TorchAttention().target("t", features=(*FEATURES, "tree_mask"))
    for one in (target, TorchAttention().target("plain")):
        line = certify_check(one, "masked keys", Depth.QUICK, 0, lambda case: None).line
        assert line.result == "not applicable"


def test_a_fault_is_made_small_again():
    late = next(f for family in SIGHT_FAMILIES for f in family.faults() if f.id == "TU2")
    found = certify_check(late.make(), "dense", Depth.QUICK, 0, lambda case: None).finding
    assert found.case["mask"] == "seen"
    assert [queries for queries, _ in found.case["sequences"]] == [17]


def test_masks_mean_nothing_to_keys_that_are_cut():
    target = TorchAttention().target("t", features=(*FEATURES, *SIGHTS))
    assert run_case(target, CHECKS["split keys"], MASKED)[0].compared == 0


def test_a_few_of_each_family_are_caught_whatever_the_seed():
    for family in SIGHT_FAMILIES:
        fault = family.faults()[-1]
        assert set(catch(fault, seed=7)) == set(fault.checks), fault.id


def test_each_family_has_four_variants_or_more():
    assert all(len(family.members) >= 4 for family in SIGHT_FAMILIES)
    assert sum(len(family.members) for family in SIGHT_FAMILIES) == 135


def test_a_case_with_a_sight_is_drawn_on_demand():
    draw = random.Random(0)
    for sight in SIGHTS:
        case = draw_sighted_case(sight, draw.randrange, ALL)
        assert sight in sights_of(case)
