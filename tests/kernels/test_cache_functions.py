"""Users' cache writes, copies and swaps as targets: contract, faults, oddities, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.kernels.case import CaseError
from poolproof.kernels.check_run import certify_check, check_case, run_case
from poolproof.kernels.faulty_kernels import Change, FaultyKernel
from poolproof.kernels.functions.block_copy import BLOCK_COPY, CopyCase, build_copy
from poolproof.kernels.functions.cache_write import CACHE_WRITE, WriteCase, build_write
from poolproof.kernels.functions.catalogue import FUNCTION_KINDS
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.faulty import (
    FUNCTION_CANARIES,
    FUNCTION_FAMILIES,
    FUNCTION_FAULTS,
    catch_function,
)
from poolproof.kernels.functions.odd_storage import ODD_STORAGE
from poolproof.kernels.functions.ours import copy_target, swap_target, write_target
from poolproof.kernels.functions.stored_forms import LEAST_SCALE, allowed_error, stored_forms
from poolproof.kernels.functions.torch_storage import (
    MEASURED,
    TorchCopy,
    TorchSwap,
    TorchWrite,
    function_target,
)
from poolproof.kernels.load import load_kernel

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/cache_write.py"


def certified(target, check, seed=0):
    return certify_check(target, check, Depth.QUICK, seed, lambda case: None)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FUNCTION_FAULTS)
def test_a_faulty_function_is_refused_by_a_quick_run(name):
    fault = FUNCTION_FAULTS[name]
    assert set(catch_function(fault.make(), fault.checks)) == set(fault.checks)


@pytest.mark.some(5)
@pytest.mark.parametrize("name", ODD_STORAGE)
def test_what_is_odd_and_right_is_not_refused(name):
    function, weaker = ODD_STORAGE[name]
    target = function.target(name, **weaker)
    for check in target.kind.checks:
        result = certified(target, check, seed=7)
        assert result.finding is None, (check, result.finding.sentence)
        assert result.line.compared > 0 or check == "stores"


@pytest.mark.parametrize("make", [write_target, copy_target, swap_target])
def test_our_own_hold_and_their_stores_are_watched(make):
    target = make("cpu")
    for check in ("stores", "write set"):
        result = certified(target, check)
        assert result.finding is None
        assert result.line.compared > 0


def test_each_kind_has_canaries_of_its_own_checks_and_families_enough():
    assert set(FUNCTION_CANARIES) == set(FUNCTION_KINDS)
    for kind, names in FUNCTION_CANARIES.items():
        for name in names:
            assert FUNCTION_FAULTS[name].make().kind is FUNCTION_KINDS[kind]
    assert len(FUNCTION_FAULTS) >= 80
    assert len({fault.id for family in FUNCTION_FAMILIES for fault in family.faults()}) == len(
        FUNCTION_FAULTS
    )
    assert len(ODD_STORAGE) >= 8


def test_a_store_beside_the_slots_is_seen_in_the_interpreter():
    text = "tl.store(addresses, numbers.to(cache.dtype.element_ty), mask=mask)"
    unmasked = Change("cache_write", text, text.replace(", mask=mask", ""))
    faulty = FaultyKernel("Z1", "no mask", "", (), (unmasked,)).make()
    target = replace(write_target("cpu"), function=faulty.storage.write)
    case = WriteCase(slots=(1,), head_size=24)
    wrong = run_case(target, CACHE_WRITE.checks["stores"], case)[0].wrong
    assert wrong.startswith("stores 8 elements of key_cache that are not its to write")


def test_the_write_set_holds_what_stands_between_the_blocks():
    class Leaks(TorchWrite):
        def put(self, cache, block, offset, rows):
            super().put(cache, block, offset, rows)
            cache.as_strided((1,), (1,), 0)[0] = 1

    case = WriteCase(slots=(1,), layout="cross-layer")
    outcome, _ = run_case(Leaks().target("leaks"), CACHE_WRITE.checks["write set"], case)
    assert "bytes between the blocks of key_cache" in outcome.wrong


def test_a_finding_is_made_small_and_runs_again_from_its_json():
    target = FUNCTION_FAULTS["FT2"].make()
    finding = certified(target, "written slots").finding
    assert len(finding.case["slots"]) == 65
    again = CACHE_WRITE.read_case(json.loads(json.dumps(finding.case)))
    assert check_case(target, "written slots", again, lambda case: None).finding is not None
    assert (
        check_case(TorchWrite().target("w"), "written slots", again, lambda c: None).finding is None
    )


def test_fp8_is_cut_and_rounded_by_either_form_of_the_scale():
    numbers = torch.tensor([1e4, -1e4, 0.3])
    divided, multiplied = stored_forms(numbers, torch.float8_e4m3fn, 0.3)
    assert divided.float().tolist() == [448.0, -448.0, 1.0]
    assert multiplied.float().tolist()[:2] == [448.0, -448.0]


def test_int8_is_cut_and_rounded_to_nearest_and_a_half_to_either_side():
    numbers = torch.tensor([500.0, -500.0, 1.5, -2.5, 0.9])
    forms = torch.stack(stored_forms(numbers, torch.int8, 1.0)).tolist()
    found = [set(column) for column in zip(*forms, strict=True)]
    assert found == [{127}, {-128, -127}, {1, 2}, {-3, -2}, {1}]


def test_int8_is_asked_for_only_where_it_is_declared():
    plain = FunctionDeclaration.from_mapping({"kind": "cache-write"})
    assert plain.casts == ("half", "fp8")
    lines = CACHE_WRITE.not_covered(replace(write_target("cpu"), declaration=plain))
    assert "not declared, so not driven: caches in int8" in lines


def read_back(numbers, dtype, scale):
    """What a reader gets of numbers that are divided by a scale, in float64."""
    most = 127 if dtype is torch.int8 else torch.finfo(dtype).max
    steps = (numbers / scale).clamp(-most, most)
    return (steps.round() if dtype is torch.int8 else steps).to(dtype).double() * scale


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_the_error_allowed_under_a_measured_scale_is_reached(name):
    dtype = getattr(torch, name)
    most = 127 if dtype is torch.int8 else torch.finfo(dtype).max
    numbers = torch.linspace(-3, 3, 60_001, dtype=torch.float64).view(1, 1, -1)
    allowed = allowed_error(numbers, dtype)
    share = (read_back(numbers, dtype, 3 / most) - numbers).abs() / allowed
    assert 0.8 < share.max() <= 1


def test_steps_twice_as_coarse_as_int8_has_them_are_beyond_it():
    numbers = torch.linspace(-3, 3, 1001, dtype=torch.float64).view(1, 1, -1)
    error = (read_back(numbers, torch.int8, 6 / 127) - numbers).abs()
    assert (error > allowed_error(numbers, torch.int8)).any()


def test_under_a_measured_scale_heads_are_apart_and_zeros_may_have_the_least_scale():
    numbers = torch.tensor([[[127.0, 1.0], [1.27, 0.0], [0.0, 0.0]]])
    steps = allowed_error(numbers, torch.int8)[0, :, 0] * 2
    assert steps.tolist() == pytest.approx([1, 0.01, LEAST_SCALE], rel=1e-3)


def test_a_scale_that_is_no_number_is_seen_by_whoever_reads():
    class OfZeros(TorchWrite):
        def put_scales(self, cache, block, offset, scales):
            super().put_scales(cache, block, offset, torch.where(scales > 1e-6, scales, torch.nan))

    check, target = CACHE_WRITE.checks["written slots"], OfZeros().target("zeros", **MEASURED)
    for seed in range(100):
        case = WriteCase(slots=(5,), seed=seed, cache_dtype="int8", scales="measured")
        wrong = run_case(target, check, case)[0].wrong
        if wrong is not None:
            break
    assert "block 1 slot 1, head 0, element 0 reads as 0 times nan and should be" in wrong


def test_the_stores_of_scales_are_stores():
    case = WriteCase(slots=(1,), cache_dtype="int8", scales="measured", layout="cross-layer")
    write = build_write(case)
    assert set(write.written()) == {"key_cache", "value_cache", "key_scales", "value_scales"}
    assert write.measured["key_scales"].shape == (4, 4, 1)
    assert not write.measured["key_scales"].is_contiguous()


def test_overlapping_pairs_mean_what_is_declared():
    case = CopyCase(pairs=((0, 1), (1, 2)))
    check = BLOCK_COPY.checks["copied blocks"]
    in_order = ODD_STORAGE["copy: one pair after another"][0]
    assert run_case(TorchCopy().target("c"), check, case)[0].wrong is None
    assert run_case(in_order.target("c"), check, case)[0].wrong is not None
    assert run_case(in_order.target("c", overlap="in-order"), check, case)[0].wrong is None
    assert run_case(TorchCopy().target("c", overlap="in-order"), check, case)[0].wrong is not None


def test_a_swap_between_interleaved_caches_keeps_them_apart():
    copy = build_copy(CopyCase(pairs=((0, 3),), num_blocks=2, away=4, layout="interleaved"))
    assert copy.first.untyped_storage().data_ptr() != copy.second.untyped_storage().data_ptr()
    assert len(copy.first) == 2
    assert len(copy.second) == 4


def test_sources_of_padding_and_behind_the_last_slot_are_no_numbers():
    write = build_write(WriteCase(slots=(3, -1, 5), extra_rows=2, views=("key",)))
    assert write.key.isnan().flatten(1).all(1).tolist() == [False, True, False, True, True]
    assert not write.key.is_contiguous()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "a case is a JSON object"),
        ({"slot": [1]}, "unknown key 'slot' in a case"),
        ({"slots": [1, 1]}, "a slot occurs twice"),
        ({"slots": [99]}, "a slot is beyond the last block"),
        ({"slots": ["x"]}, "the case cannot be read"),
        ({"reach": "far"}, "reach must be one of small"),
        ({"scales": "own"}, "scales must be one of given, measured"),
        ({"scales": "measured"}, "a cache under measured scales must be one of float8_e4m3fn"),
    ],
)
def test_a_write_case_that_cannot_be_read_says_why(value, words):
    with pytest.raises(CaseError, match=words):
        WriteCase.from_json(value)


@pytest.mark.parametrize(
    ("pairs", "words"), [([[0, 9]], "not there"), ([[0, 1], [2, 1]], "destination twice")]
)
def test_a_copy_case_that_cannot_be_says_why(pairs, words):
    with pytest.raises(CaseError, match=words):
        CopyCase.from_json({"pairs": pairs})


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"kind": "writes"}, "'kind' in a declaration must be one of cache-write"),
        ({"kind": "cache-write", "tail": "any"}, "unknown key 'tail' in a declaration of a cache"),
        ({"kind": "cache-write", "padding": "maybe"}, "must be one of negative"),
        ({"kind": "cache-write", "layouts_apart": 1}, "must be one of True, False"),
        ({"kind": "cache-write", "scales": "measured", "casts": ["half"]}, "must hold fp8 or int8"),
        ({"kind": "block-copy", "dtypes": []}, "must not be empty"),
        ({"kind": "block-copy", "dtypes": "float32"}, "must be a list"),
        ({"kind": "block-copy", "head_sizes": [0]}, "must hold sizes up to 1024"),
    ],
)
def test_a_declaration_that_does_not_fit_says_why(declared, words):
    from poolproof.kernels.declaration import DeclarationError

    with pytest.raises(DeclarationError) as refused:
        FunctionDeclaration.from_mapping(declared)
    assert words in str(refused.value)


def test_a_function_in_a_file_is_of_the_kind_that_it_declares_or_that_the_user_names():
    named = load_kernel(f"{EXAMPLE}:write", "cpu")
    assert named.kind is CACHE_WRITE
    other = load_kernel(f"{EXAMPLE}:write", "cpu", {"casts": "none", "dtypes": "float32"})
    assert other.declaration.dtypes == ("float32",)
    with pytest.raises(TargetError, match="'kind' in a declaration must be one of"):
        load_kernel(f"{EXAMPLE}:write", "cpu", {"kind": "attend"})
    plain = f"{EXAMPLE.with_name('attention_kernel.py')}:attention"
    with pytest.raises(
        TargetError, match="unknown key 'features' in a declaration of a block-swap"
    ):
        load_kernel(plain, "cpu", {"kind": "block-swap"})


def test_the_example_holds_and_its_faulty_twin_does_not():
    right, wrong = (load_kernel(f"{EXAMPLE}:{name}", "cpu") for name in ("write", "padded_write"))
    for check in right.kind.checks:
        assert certified(right, check).finding is None
    # Slots far below 0 raise in torch; what is found is the one that is written without a word.
    finding = certified(wrong, "write set").finding
    assert "which no token has" in finding.sentence
    assert finding.severity is Severity.WRONG_DATA_OF_ANOTHER


def test_what_was_found_worse_on_the_way_to_the_smallest_case_is_kept():
    class Wavers(TorchWrite):
        def kept(self, slots):
            tokens = super().kept(slots)
            if len(tokens) not in {2, 3}:
                raise RuntimeError("no")
            return tokens[1:]

    finding = certified(function_target(CACHE_WRITE, Wavers(), "wavers"), "written slots").finding
    assert finding.example == 1
    assert "are not there" in finding.sentence


def test_what_a_target_raises_is_a_finding():
    class Raises(TorchSwap):
        def __call__(self, source, destination, block_mapping):
            raise RuntimeError("no")

    finding = certified(Raises().target("raises"), "copied blocks").finding
    assert finding.sentence == "raised RuntimeError: no"
