"""Managers of vLLM's earlier releases: other signatures than later ones have, and other rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poolproof.contract.content import TokenChain
from poolproof.targets.vllm_manager import EarlyManager
from poolproof.targets.vllm_manager_target import is_from
from poolproof.targets.vllm_requests import vllm_requests
from poolproof.targets.vllm_shape import frees_to_either_end


def request(num_tokens, num_computed_tokens=0):
    return SimpleNamespace(
        request_id="7", num_tokens=num_tokens, num_computed_tokens=num_computed_tokens,
        spec_token_ids=[],
    )  # fmt: skip


class Manager09:
    """That of 0.9: it is told of drafts, and keeps hashes by the number of a request."""

    block_pool = None
    room = True

    def __init__(self):
        self.calls, self.forgotten = [], []

    def reset_prefix_cache(self):
        return True

    def allocate_slots(  # noqa: PLR0917 -- the engine's own signature
        self, request, num_new_tokens, num_new_computed_tokens=0, new_computed_blocks=None,
        num_draft_tokens=0, num_lookahead_tokens=0,
    ):  # fmt: skip
        self.calls.append((num_new_tokens, num_draft_tokens, num_lookahead_tokens))
        return "blocks" if self.room else None

    def free(self, request):
        pass

    def free_block_hashes(self, request):
        self.forgotten.append(request.request_id)

    def get_block_ids(self, request_id):
        return ([3],)


class Manager08:
    """That of 0.8: one cache group, lists of blocks, and drafts that the request carries."""

    block_pool = None

    def __init__(self):
        self.calls = []
        self.req_to_blocks = {"7": [SimpleNamespace(block_id=3)]}

    def reset_prefix_cache(self):
        return True

    def allocate_slots(self, request, num_tokens, new_computed_blocks=None, num_lookahead_tokens=0):
        self.calls.append((num_tokens, len(request.spec_token_ids), num_lookahead_tokens))
        return [SimpleNamespace(block_id=5)]


def test_what_lies_beyond_the_tokens_of_a_request_is_told_as_drafts():
    manager = Manager09()
    early = EarlyManager(manager)
    assert early.allocate_slots(request(10, 9), 4, num_lookahead_tokens=2) == "blocks"
    assert early.allocate_slots(request(10, 4), 6) == "blocks"
    assert manager.calls == [(4, 3, 2), (6, 0, 0)]


def test_an_admission_without_room_is_forgotten_and_a_growth_is_not():
    manager = Manager09()
    manager.room = False
    early = EarlyManager(manager)
    assert early.allocate_slots(request(10, 9), 1) is None
    assert manager.forgotten == []
    assert early.allocate_slots(request(10), 10, 0, "found") is None
    assert manager.forgotten == ["7"]


def test_hashes_go_with_the_blocks():
    manager = Manager09()
    EarlyManager(manager).free(request(10))
    assert manager.forgotten == ["7"]


def test_lists_of_blocks_become_tables_of_one_group():
    manager = Manager08()
    early = EarlyManager(manager)
    new = early.allocate_slots(request(10, 9), 3)
    assert new.get_block_ids() == ([5],)
    assert early.get_block_ids("7") == ([3],)
    assert manager.calls == [(3, 2, 0)]


class Request08:
    """A request of 0.8, which knows no salt."""

    def __init__(  # noqa: PLR0917 -- the engine's own signature
        self, request_id, prompt_token_ids, multi_modal_inputs, multi_modal_hashes,
        multi_modal_placeholders, sampling_params, eos_token_id, arrival_time, lora_request=None,
    ):  # fmt: skip
        self.prompt_token_ids = prompt_token_ids
        self.hashes, self.places = multi_modal_hashes, multi_modal_placeholders
        self.lora = lora_request


def test_a_salt_that_a_release_does_not_know_makes_other_tokens_of_those_under_it():
    contents = {
        "vllm.v1.core.kv_cache_utils": SimpleNamespace(),
        "vllm.v1.request": SimpleNamespace(Request=Request08),
        "vllm.lora.request": SimpleNamespace(LoRARequest=SimpleNamespace),
        "vllm.multimodal.inputs": SimpleNamespace(PlaceholderRange=SimpleNamespace),
        "vllm.sampling_params": SimpleNamespace(SamplingParams=SimpleNamespace),
    }
    request_of = vllm_requests(4, modules=contents.__getitem__)
    plain, salted, again, other = (
        request_of(TokenChain((1, 2), salt=salt)) for salt in (None, "x", "x", "y")
    )
    assert plain.prompt_token_ids == [1, 2]
    assert salted.prompt_token_ids == again.prompt_token_ids
    assert not set(salted.prompt_token_ids) & {1, 2, *other.prompt_token_ids}
    assert salted.prompt_token_ids[0] - salted.poolproof_shift == 1


@pytest.mark.parametrize(
    ("version", "is_later"),
    [
        ("vllm 0.33.0", True), ("vllm 1.0", True), ("vllm 0.32.9", False),
        ("aphrodite b42eeec", False), (None, False),
    ],
)  # fmt: skip
def test_a_release_from_0_33_on_is_told_by_its_number(version, is_later):
    assert is_from(version, (0, 33)) is is_later


class Pool023:
    """Each kind of attention says which of its blocks are the next to be taken."""

    def free_blocks(self, ordered_blocks, prepend=False):
        pass


class Pool024:
    """The pool tells by the hash."""

    def free_blocks(self, ordered_blocks):
        pass


def test_a_pool_that_is_told_to_which_end_blocks_go_has_no_order_of_its_own():
    assert frees_to_either_end(Pool023)
    assert not frees_to_either_end(Pool024)
