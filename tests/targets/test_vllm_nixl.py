"""A prefill and a decode instance of vLLM: what holds, what is found, and what would be."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.trace import read_trace
from poolproof.harness.replay import start_session
from poolproof.targets.vllm_nixl import vllm_nixl_layouts

pytestmark = pytest.mark.vllm

FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings"


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in vllm_nixl_layouts()}


@pytest.fixture(scope="module")
def parts(layouts, pairs):
    """vLLM's modules of the connector."""
    assert layouts
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import (
        base_scheduler,
        base_worker,
        pull_scheduler,
        push_scheduler,
        push_worker,
    )
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.scheduler import Scheduler

    return {
        "pairs": pairs,
        "scheduler": pull_scheduler.NixlPullConnectorScheduler,
        "any scheduler": base_scheduler.NixlBaseConnectorScheduler,
        "worker": base_worker.NixlBaseConnectorWorker,
        "push scheduler": push_scheduler.NixlPushConnectorScheduler,
        "push worker": push_worker.NixlPushConnectorWorker,
        "blocks": KVCacheBlocks,
        "vllm": Scheduler,
    }


HOLD = [
    "pull",
    "pull+chunks",
    "pull+async",
    "pull+priority",
    "pull+async+drafts",
    "pull+failures",
    "pull+failures+async",
    "push",
    "push+chunks",
    "push+async",
    "push+priority",
    "push+async+drafts",
]


@pytest.mark.parametrize("name", HOLD)
def test_what_is_moved_is_right(layouts, pairs, name):
    results = pairs.runs_of(layouts[name], range(20))
    assert [result.trace for result in results if result.trace is not None] == []
    assert set().union(*(result.facts for result in results)) >= pairs.MOVES


def test_blocks_are_halved_between_the_instances(layouts):
    pair = layouts["pull"].make(8, True)
    assert (pair.prefill.num_free(), pair.decode.num_free(), pair.num_free()) == (3, 4, 7)
    assert layouts["pull"].profile.most_request_tokens(8, 4) == 12


def test_the_first_token_of_a_user_comes_from_the_decode_instance(layouts):
    """The one that the prefill instance has sampled is thrown away."""
    pair = layouts["pull"].make(9, True)
    pair.submit(1, [1, 2, 3, 4, 5], max_new_tokens=2)
    (part,) = pair.plan().parts
    assert (part.first, part.count, part.discards) == (0, 5, True)
    assert pair.answer({}, {}) == []
    (hand_over,) = pair.plan().transfers
    pair.answer({}, {})
    pair.arrived(hand_over.transfer_id, True)
    (store,) = pair.plan().transfers
    pair.answer({}, {})
    pair.arrived(store.transfer_id, True)
    (load,) = pair.plan().transfers
    assert (store.is_load, load.is_load, store.places) == (False, True, load.places)
    pair.arrived(load.transfer_id, True)
    pair.answer({}, {})
    (part,) = pair.plan().parts
    assert (part.first, part.count, part.discards) == (4, 1, False)
    assert pair.answer({1: [2]}, {}) == [(1, [2], False)]
    assert pair.prefill.num_free() == 4


def test_a_request_that_a_proxy_drops_costs_its_lease(layouts):
    pair = layouts["pull"].make(9, True)
    pair.submit(1, [1, 2, 3], max_new_tokens=2)
    pair.plan()
    pair.answer({}, {})
    pair.cancel(1)
    hand_over, lease = pair.plan().transfers
    pair.answer({}, {})
    pair.arrived(hand_over.transfer_id, True)
    assert pair.unfinished() == [1]
    pair.arrived(lease.transfer_id, True)
    pair.plan()
    pair.answer({}, {})
    assert (pair.unfinished(), pair.num_free()) == ([], 8)


def test_a_registration_is_on_its_way_before_blocks_are_pushed(layouts):
    pair = layouts["push"].make(9, True)
    pair.submit(1, [1, 2, 3, 4, 5], max_new_tokens=2)
    pair.plan()
    pair.answer({}, {})
    for _ in range(2):
        (letter,) = pair.plan().transfers
        assert letter.blocks == ()
        pair.answer({}, {})
        pair.arrived(letter.transfer_id, True)
    (store,) = pair.plan().transfers
    pair.arrived(store.transfer_id, True)
    pair.answer({}, {})
    (load,) = pair.plan().transfers
    assert (store.blocks, load.blocks, load.is_load) == ((1, 2), (5, 6), True)


# The last token of a prompt is computed once more, and its window begins a token earlier than what
# was kept; a proxy that keeps a request longer than its lease; a decode instance that nobody tells
# of a write that failed, or that will never begin.
@pytest.mark.parametrize(
    ("name", "invariant", "words"),
    [
        ("pull+sliding", "PLAN", "has the null block"),
        ("pull+failures+sliding", "PLAN", "has the null block"),
        ("pull+late-proxy", "DATA", "KV that was computed for request"),
        ("push+sliding", "PLAN", "has the null block"),
        ("push+failures", "LIVE", "are waiting, nothing is in flight"),
        ("push+failures+async", "LIVE", "are waiting, nothing is in flight"),
        ("push+late-proxy", "LIVE", "are waiting, nothing is in flight"),
    ],
)
def test_what_is_found(layouts, pairs, name, invariant, words):
    found = pairs.first_finding(layouts[name], range(12))
    assert found.invariant == invariant
    assert words in found.sentence


@pytest.mark.parametrize(
    ("name", "invariant"), [("vllm-nixl-window", "PLAN"), ("vllm-failed-load-queue", "LIVE")]
)
def test_a_recorded_finding_shows_again(layouts, name, invariant):
    trace = read_trace(FINDINGS / f"{name}.jsonl")
    session = start_session(trace, layouts[trace.options["layout"]].make)
    *before, last = [session.step(command) for command in trace.commands]
    assert before == [None] * len(before)
    assert last.invariant == invariant


def test_nothing_is_found_where_the_last_token_is_left_to_the_decoder(
    layouts, parts, pairs, monkeypatch
):
    """As vLLM does for recurrent states: the window is kept for the token that is computed."""
    monkeypatch.setattr(parts["any scheduler"], "_prefill_backoff", lambda _: 1)
    assert pairs.first_finding(layouts["pull+sliding"], range(20)) is None


# Each of these plants one bug in vLLM's own classes.


def frees_at_once(parts, patch):
    """The prefill instance keeps nothing for the other."""
    cls = parts["scheduler"]
    finished = cls.request_finished

    def free(self, request, block_ids):
        _, params = finished(self, request, block_ids)
        self._reqs_need_send.clear()
        return False, params

    patch.setattr(cls, "request_finished", free)
    # Nobody hears of the end of a read, which would end the engine first.
    parts["pairs"].hear_nothing_of_sent(parts["vllm"], patch)


def computes_before_the_read_ends(parts, patch):
    parts["pairs"].compute_before_anything_comes(parts["scheduler"], patch)


def reads_a_block_too_few(parts, patch):
    cls = parts["blocks"]
    unhashed = cls.get_unhashed_block_ids_all_groups

    def fewer(self):
        return [group[1:] if len(group) > 1 else group for group in unhashed(self)]

    patch.setattr(cls, "get_unhashed_block_ids_all_groups", fewer)


def says_too_early_that_it_has_read(parts, patch):
    def done(self, transfers):
        ended = set(transfers)
        transfers.clear()
        return ended, set()

    patch.setattr(parts["worker"], "_pop_done_transfers", done)


def pairs_a_partial_hit_from_the_front(parts, patch):
    def front(self, decode_block_ids, prefill_block_ids, **_):
        pairs = zip(decode_block_ids, prefill_block_ids, strict=True)
        return decode_block_ids, [theirs[: len(own)] for own, theirs in pairs]

    patch.setattr(parts["worker"], "_apply_prefix_caching", front)


def frees_while_a_read_is_in_flight(parts, patch):
    """A request that is cancelled gives its blocks back though something still writes to them."""
    cls = parts["vllm"]
    free = cls._free_request

    def at_once(self, request, delay_free_blocks=False):
        said = free(self, request, delay_free_blocks=delay_free_blocks)
        if delay_free_blocks and request.request_id in self.requests:
            self._free_blocks(request)
        return said

    def updated(self, output):
        output.finished_recving = {r for r in output.finished_recving if r in self.requests}
        update(self, output)

    update = cls._update_from_kv_xfer_finished
    patch.setattr(cls, "_free_request", at_once)
    patch.setattr(cls, "_update_from_kv_xfer_finished", updated)


def takes_a_failed_read_as_done(parts, patch):
    def nothing(self, req_id, handle, failed_req_ids=None, record_failed_transfer=True):
        return handle is None or self._try_release_xfer_handle(req_id, handle)

    patch.setattr(parts["worker"], "_handle_failed_transfer", nothing)


def pushes_to_whom_has_registered_last(parts, patch):
    """It takes any registration for that of a request."""

    def any_of_them(self, request_id):
        del request_id
        waiting = self._pending_d_registrations
        return waiting.popitem()[1] if waiting else None

    def any_blocks(self, request_id):
        del request_id
        waiting = self._push_finished_blocks
        return waiting.popitem() if waiting else None

    patch.setattr(parts["push worker"], "_pop_matching_registration", any_of_them)
    patch.setattr(parts["push worker"], "_pop_matching_finished_blocks", any_blocks)


def pushes_over_and_forgets_who_waits(parts, patch):
    """A registration that comes before its blocks is dropped."""
    cls = parts["push worker"]
    handle = cls._handle_push_reg_notif

    def handled(self, notif):
        handle(self, notif)
        self._pending_d_registrations.clear()
        self._push_finished_blocks.clear()

    patch.setattr(cls, "_handle_push_reg_notif", handled)


def gives_back_what_it_is_pushing(parts, patch):
    """A write is taken as done when it has begun."""
    cls = parts["push worker"]
    pop = cls._pop_done_transfers

    def done(self, transfers):
        if transfers is not self._sending_transfers:
            return pop(self, transfers)
        ended = set(transfers)
        transfers.clear()
        return ended, set()

    patch.setattr(cls, "_pop_done_transfers", done)


def registers_blocks_that_it_has(parts, patch):
    """Blocks of the prefix cache are pushed over as well, from the wrong end of the prompt."""
    cls = parts["push worker"]

    def front(self, decode_block_ids, prefill_block_ids, **_):
        pairs = zip(decode_block_ids, prefill_block_ids, strict=True)
        return decode_block_ids, [theirs[: len(own)] for own, theirs in pairs]

    patch.setattr(cls, "_apply_prefix_caching", front)


def computes_before_anything_is_pushed(parts, patch):
    parts["pairs"].compute_before_anything_comes(parts["push scheduler"], patch)


def keeps_what_it_has_pushed(parts, patch):
    """Nobody says that a write has ended, and no lease ends it."""
    patch.setattr(parts["push worker"], "_reap_expired_send_leases", lambda *_: None)
    results = parts["push worker"].get_transfer_results

    def said(self):
        answer = results(self)
        answer.finished_sending.clear()
        return answer

    patch.setattr(parts["push worker"], "get_transfer_results", said)


def keeps_what_its_lease_has_ended_for(parts, patch):
    patch.setattr(parts["worker"], "_reap_expired_send_leases", lambda *_: None)


PLANTED = [
    (frees_at_once, "pull", "DATA"),
    (computes_before_the_read_ends, "pull", "DATA"),
    (reads_a_block_too_few, "pull", "DATA"),
    (says_too_early_that_it_has_read, "pull", "DATA"),
    (pairs_a_partial_hit_from_the_front, "pull", "DATA"),
    (frees_while_a_read_is_in_flight, "pull", "DATA"),
    (takes_a_failed_read_as_done, "pull+failures", "DATA"),
    (keeps_what_its_lease_has_ended_for, "pull", "LEAK"),
    (pushes_to_whom_has_registered_last, "push", "DATA"),
    (pushes_over_and_forgets_who_waits, "push", "LIVE"),
    (gives_back_what_it_is_pushing, "push", "DATA"),
    (registers_blocks_that_it_has, "push", "DATA"),
    (computes_before_anything_is_pushed, "push", "DATA"),
    (keeps_what_it_has_pushed, "push", "LIVE"),
    (keeps_what_its_lease_has_ended_for, "push", "LEAK"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted[0].__name__)
def test_a_planted_fault_is_found(layouts, parts, pairs, monkeypatch, planted):
    plant, name, invariant = planted
    plant(parts, monkeypatch)
    found = pairs.first_finding(layouts[name], range(200))
    assert found is not None
    assert found.invariant == invariant
