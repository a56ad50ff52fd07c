"""A pair of instances with vLLM's Mooncake connector: what holds, is found, and would be."""

from __future__ import annotations

import pytest

from poolproof.targets.vllm_mooncake import vllm_mooncake_layouts

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in vllm_mooncake_layouts()}


@pytest.fixture(scope="module")
def parts(layouts, pairs):
    """vLLM's classes of the connector."""
    assert layouts
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector
    from vllm.v1.core.sched.scheduler import Scheduler

    return {
        "pairs": pairs,
        "scheduler": mooncake_connector.MooncakeConnectorScheduler,
        "worker": mooncake_connector.MooncakeConnectorWorker,
        "vllm": Scheduler,
    }


HOLD = [
    "pair",
    "chunks",
    "async",
    "priority",
    "async+drafts",
    "failures",
    "failures+async",
    "stops",
]


@pytest.mark.parametrize("name", HOLD)
def test_what_is_moved_is_right(layouts, pairs, name):
    results = pairs.runs_of(layouts[name], range(20))
    assert [result.trace for result in results if result.trace is not None] == []
    assert set().union(*(result.facts for result in results)) >= pairs.MOVES


def drive(pair, most_steps):
    """What each step plans, if all that is on its way arrives before the next one."""
    for _ in range(most_steps):
        plan = pair.plan()
        yield plan
        sampled = {part.request_id: [1] for part in plan.parts if not part.discards}
        pair.answer(sampled, {})
        for transfer in plan.transfers:
            pair.arrived(transfer.transfer_id, True)


def test_the_first_token_of_a_user_comes_from_the_decode_instance(layouts):
    """It computes the last token of the prompt over what the other one has written."""
    pair = layouts["chunks"].make(9, True)
    pair.submit(1, list(range(1, 13)), max_new_tokens=1)
    plans = list(drive(pair, 20))
    computed = [part for plan in plans for part in plan.parts]
    assert [(part.first, part.count, part.discards) for part in computed] == [
        (0, 8, True),
        (8, 4, True),
        (11, 1, False),
    ]
    store, load = [transfer for plan in plans for transfer in plan.transfers if transfer.blocks]
    assert (store.is_load, load.is_load, store.places) == (False, True, load.places)
    assert (store.blocks, load.blocks) == (computed[1].blocks[0], computed[2].blocks[0])
    assert (pair.unfinished(), pair.num_free()) == ([], 8)


def test_a_prefill_that_stops_costs_the_decode_instance_its_patience(layouts):
    """Of a first token that is a stop token nothing is sent: all is computed once more, later."""
    pair = layouts["stops"].make(9, True)
    pair.submit(3, [1, 2, 3, 4, 5], max_new_tokens=1)
    began = pair.decode.worker.loop.time()
    computed = [part for plan in drive(pair, 30) for part in plan.parts if not part.discards]
    assert [(part.first, part.count) for part in computed] == [(0, 5)]
    assert pair.decode.worker.loop.time() - began > 480


def test_blocks_that_nobody_asks_for_are_given_back(layouts):
    pair = layouts["pair"].make(9, True)
    pair.submit(1, [1, 2, 3], max_new_tokens=2)
    (hand_over,) = pair.plan().transfers
    pair.answer({}, {})
    pair.cancel(1)
    pair.arrived(hand_over.transfer_id, True)
    assert (pair.unfinished(), pair.num_free()) == ([1], 7)
    list(drive(pair, 6))
    assert (pair.unfinished(), pair.num_free()) == ([], 8)


# A window begins a token earlier than what was kept; where it slides, more blocks are needed to
# compute what did not come than to take it.
@pytest.mark.parametrize(
    ("name", "invariant", "words"),
    [
        ("sliding", "PLAN", "has the null block"),
        ("failures+sliding", "PLAN", "has the null block"),
    ],
)
def test_what_is_found(layouts, pairs, name, invariant, words):
    found = pairs.first_finding(layouts[name], (8, 0))
    assert found is not None
    assert found.invariant == invariant
    assert words in found.sentence


# Each of these plants one bug in vLLM's own classes.


def frees_at_once(parts, patch):
    """The prefill instance keeps nothing for the other."""
    cls = parts["scheduler"]
    finished = cls.request_finished

    def free(self, request, block_ids):
        finished(self, request, block_ids)
        return False, None

    patch.setattr(cls, "request_finished", free)
    parts["pairs"].hear_nothing_of_sent(parts["vllm"], patch)


def computes_before_anything_comes(parts, patch):
    parts["pairs"].compute_before_anything_comes(parts["scheduler"], patch)


def pairs_a_partial_hit_from_the_front(parts, patch):
    cls = parts["worker"]
    build = cls._build_transfer_params

    async def front(self, ready_reqs, agent_meta, *regions):
        for request_id, own in ready_reqs:
            _, theirs = agent_meta.req_blocks[request_id]
            pairs = zip(own.local_block_ids, theirs, strict=False)
            own.local_block_ids = [group[: len(asked)] for group, asked in pairs]
        return await build(self, ready_reqs, agent_meta, *regions)

    patch.setattr(cls, "_build_transfer_params", front)


def sends_the_blocks_backwards(parts, patch):
    cls = parts["worker"]
    record = cls.record_send_reqs

    async def recorded(self, metadata):
        for request_id, (transfer_id, blocks) in list(metadata.reqs_to_send.items()):
            metadata.reqs_to_send[request_id] = (transfer_id, [group[::-1] for group in blocks])
        await record(self, metadata)

    patch.setattr(cls, "record_send_reqs", recorded)


def takes_the_first_answer_for_all(parts, patch):
    """A question is about several requests, and each has an answer of its own."""
    cls = parts["worker"]
    process = cls.process_pulling_result

    def processed(self, response, pull_metas):
        if response.ok_reqs:
            response.ok_reqs = [one for one in pull_metas if pull_metas[one].pull_tasks_count]
        process(self, response, pull_metas)

    patch.setattr(cls, "process_pulling_result", processed)


def takes_a_failed_write_as_done(parts, patch):
    def failed(self, pull_metas, req_ids, reason):
        del reason
        self.finished_recving_reqs |= {
            one for one in req_ids if any(pull_metas[one].local_block_ids)
        }

    patch.setattr(parts["worker"], "_handle_failed_recv", failed)


def gives_back_what_it_is_sending(parts, patch):
    """The time of blocks is up at once, whether or not they are being written."""
    cls = parts["worker"]

    async def fetched(self):
        ended, self.finished_sending_reqs = self.finished_sending_reqs, set()
        for transfer_id, one in list(self.reqs_need_send.items()):
            if one.sending:
                del self.reqs_need_send[transfer_id]
                ended.add(one.p_req_id)
        return ended

    patch.setattr(cls, "fetch_finished_sending_reqs", fetched)


def keeps_what_it_has_sent(parts, patch):
    async def nothing(self):
        return set()

    patch.setattr(parts["worker"], "fetch_finished_sending_reqs", nothing)


PLANTED = [
    (frees_at_once, "pair", "DATA"),
    (computes_before_anything_comes, "pair", "DATA"),
    (pairs_a_partial_hit_from_the_front, "pair", "DATA"),
    (sends_the_blocks_backwards, "pair", "DATA"),
    (takes_the_first_answer_for_all, "pair", "CRASH"),
    (takes_a_failed_write_as_done, "failures", "DATA"),
    (gives_back_what_it_is_sending, "pair", "DATA"),
    (keeps_what_it_has_sent, "pair", "LEAK"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted[0].__name__)
def test_a_planted_fault_is_found(layouts, parts, pairs, monkeypatch, planted):
    plant, name, invariant = planted
    plant(parts, monkeypatch)
    found = pairs.first_finding(layouts[name], range(120))
    assert found is not None
    assert found.invariant == invariant


def test_what_a_write_raises_is_for_the_worker_that_waits_for_it(layouts, parts, monkeypatch):
    """Without an answer the decode instance would wait for its blocks, and nobody heard why."""

    def breaks(*_arguments):
        raise RuntimeError("the write broke")

    monkeypatch.setattr(parts["worker"], "_send_blocks", breaks)
    pair = layouts["pair"].make(9, True)
    pair.submit(1, [1, 2, 3, 4, 5], max_new_tokens=1)
    computed = [part for plan in drive(pair, 30) for part in plan.parts if not part.discards]
    assert [(part.first, part.count) for part in computed] == [(0, 5)]
