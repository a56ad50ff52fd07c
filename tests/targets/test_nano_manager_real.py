"""nano-vLLM's own block managers under the harness, one verdict for each generation.

The port is on a package index. `poolproof engines nano-vllm-COMMIT` fetches each of the others.
"""

from __future__ import annotations

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.targets.load import load_target
from poolproof.targets.nano_clones import NANO_CLONES
from poolproof.targets.source_engines import fetched_folder

pytestmark = pytest.mark.vllm


def checkout(commit: str) -> str:
    try:
        return f"nano-vllm:{fetched_folder(NANO_CLONES[f'nano-vllm-{commit}'])}"
    except TargetError as error:
        pytest.skip(str(error))


def shortest(target, runs):
    """The first minimised failure of at most 8 commands, else the first; None where all holds."""
    campaign = ManagerCampaign(target.name, target.make, target.profile, target.block_size)
    longer = []
    for number in range(runs):
        trace = campaign.run(number).trace
        if trace is not None:
            longer.append(minimise(trace, execute_in_process(target.make)))
            if len(longer[-1].commands) <= 8 or len(longer) == 3:
                return min(longer, key=lambda found: len(found.commands))
    return None


def assert_reads_another_s_prefix(target):
    found = shortest(target, 600)
    assert found.violation.invariant == "DATA"
    assert found.violation.severity.value == "wrong-data-of-another"
    assert "KV that was computed for" in found.violation.sentence
    assert len(found.commands) <= 8


def test_the_published_algorithm_lets_one_request_read_another_s_prefix():
    """nano-vllm#163, on the port that carries the block manager of df99418."""
    assert_reads_another_s_prefix(load_target("nano-vllm"))


@pytest.mark.parametrize("commit", ["cde3fc2", "df99418", "8d63a98", "f64d821"])
def test_early_checkouts_let_one_request_read_another_s_prefix(commit):
    """nano-vllm#163; in f64d821 the hash that a revived block loses (fixed in 9fa256a)."""
    assert_reads_another_s_prefix(load_target(checkout(commit)))


def test_a_later_checkout_holds_under_exact_rows():
    target = load_target(checkout("9fa256a"))
    assert (target.profile.hits, target.profile.admission) == ("exact", "exact")
    assert shortest(target, 600) is None


def test_later_checkouts_lose_a_copy_of_a_prefix():
    """nano-vllm#219: one id for each hash."""
    found = shortest(load_target(f"{checkout('9fa256a')}[duplicates=kept]"), 20)
    assert (found.violation.invariant, len(found.commands)) == ("I4", 3)


def test_later_checkouts_depend_on_their_hash_for_what_stands_before_a_block():
    """Hits are compared by the block's own tokens (`collisions`: trusted)."""
    target = load_target(checkout("9fa256a"))
    weak = ManagerCampaign(
        target.name, target.make, target.profile, target.block_size, options={"weak_hashes": 4}
    )
    results = [weak.run(number) for number in range(200)]
    assert not any(result.trace for result in results)
    assert any(result.collision.violation.invariant == "DATA" for result in results
               if result.collision)  # fmt: skip


def test_generations_are_told_apart():
    early, late = load_target("nano-vllm"), load_target(checkout("f64d821"))
    assert (early.profile.publishes, late.profile.publishes) == ("scheduled", "computed")
    assert early.version == "nano-vllm-npu 0.0.2"
