"""Merges of partial outputs as targets: contract, bound, faults, oddities, what is refused."""

import math

import pytest
import torch

from poolproof.contract.depth import Depth
from poolproof.kernels.case import CaseError
from poolproof.kernels.check_run import certify_check, run_case
from poolproof.kernels.functions.merge import MERGE, MergeCase, build_merge, merged
from poolproof.kernels.functions.torch_merge import ODD_MERGES, TorchMerge
from poolproof.kernels.load import load_kernel


def certified(target, check, seed=0):
    return certify_check(target, check, Depth.QUICK, seed, lambda case: None)


@pytest.mark.parametrize("name", ODD_MERGES)
def test_what_is_odd_and_right_is_not_refused(name):
    function, weaker = ODD_MERGES[name]
    target = function.target(name, **weaker)
    for check in MERGE.checks:
        if MERGE.checks[check].applies(target):
            result = certified(target, check, seed=3)
            assert result.finding is None, (check, result.finding.sentence)
            assert result.line.compared > 0


def test_two_halves_of_a_softmax_merge_to_the_whole():
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(10, generator=draw).double()
    values = torch.randn(10, 4, generator=draw).double()
    parts = [(scores[:3], values[:3]), (scores[3:], values[3:])]
    outputs = torch.stack([torch.softmax(s, 0) @ v for s, v in parts])[:, None, None].float()
    for base, unit in (("e", 1.0), ("2", math.log(2))):
        lses = torch.stack([torch.logsumexp(s, 0) / unit for s, _ in parts])[:, None, None]
        found = merged(outputs, lses.float(), base)
        assert torch.allclose(found.output[0, 0], torch.softmax(scores, 0) @ values, atol=1e-6)
        assert float(found.lse) == pytest.approx(float(torch.logsumexp(scores, 0)) / unit, 1e-6)


def test_rows_without_any_key_are_zeros_and_minus_infinity():
    case = MergeCase(empty=4, poison=True)
    outputs, lses = build_merge(case, "e")
    found = merged(outputs, lses, "e")
    assert outputs.isnan().all()
    assert not found.output.any()
    assert (found.lse == float("-inf")).all()
    assert found.wrong(*TorchMerge()(outputs, lses))[0] is None
    sentence, _ = found.wrong(outputs[0], lses[0])
    assert "element 0 is nan and should be 0" in sentence


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda o, s: o[0], "returned a Tensor, not output and log-sum-exp"),
        (lambda o, s: (o, s[0]), "returned no tensor of shape (1, 1, 16)"),
        (lambda o, s: (o[0].double(), s[0]), "returned torch.float64 for torch.float32"),
    ],
)
def test_what_is_no_output_is_a_finding(result, words):
    class Returns(TorchMerge):
        def __call__(self, outputs, lses):
            return result(outputs, lses)

    outcome, _ = run_case(Returns().target("r"), MERGE.checks["merged"], MergeCase())
    assert outcome.wrong == words


def test_the_base_is_that_of_the_declaration():
    check, case = MERGE.checks["merged"], MergeCase(num_parts=3)
    assert run_case(TorchMerge().target("e"), check, case)[0].wrong is None
    assert run_case(TorchMerge().target("2", base="2"), check, case)[0].wrong is not None


@pytest.mark.parametrize(
    ("value", "words"),
    [({"size": "big"}, "size must be one of near"), ({"num_parts": 0}, "must be above 0")],
)
def test_a_case_that_cannot_be_says_why(value, words):
    with pytest.raises(CaseError, match=words):
        MergeCase.from_json(value)


def test_a_merge_in_a_file_is_known_by_its_declaration(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from poolproof.kernels.functions.torch_merge import TorchMerge\n"
        "def merge(outputs, lses):\n    return TorchMerge()(outputs, lses)\n"
        "merge.declaration = {'kind': 'merge', 'parts': 'two'}\n"
    )
    target = load_kernel(f"{file}:merge", "cpu")
    assert target.kind is MERGE
    assert certified(target, "merged").finding is None
