"""vLLM, tiered offloading: a prefix with more chunks than the host holds is promoted in a circle.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `TieringOffloadingManager` has a host of three chunks and behind it a tier that keeps
four, a prompt's prefix. One request asks for them, alone. In each step the connector's own lookup
goes over the prefix, as it does for a request that waits, and every promotion has arrived by the
next one.
"""

import os
import sys
from types import SimpleNamespace

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
HOST_CHUNKS, PREFIX_CHUNKS, STEPS = 3, 4, 1000


def tier_class():
    """A tier that keeps everything and moves it at once."""
    from vllm.v1.kv_offload.base import LookupResult, RequestOffloadingContext
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

    class Tier(SecondaryTierManager):
        def __init__(self, kept, host):
            super().__init__(None, host, "kept")
            self.kept, self.ended, self.promoted = kept, [], 0

        def lookup(self, key, req_context):
            del req_context
            return LookupResult.HIT if key in self.kept else LookupResult.MISS

        def submit_store(self, job_metadata):
            self.ended.append(JobResult(job_metadata.job_id, True))

        def submit_load(self, job_metadata):
            self.promoted += len(job_metadata.keys)
            self.ended.append(JobResult(job_metadata.job_id, True))

        def get_finished_jobs(self):
            ended, self.ended = self.ended, []
            return ended

        def on_new_request(self, req_context):
            del req_context
            return RequestOffloadingContext()

        def drain_jobs(self): ...

    return Tier


def manager_and_tier(keys):
    """vLLM's manager of a host, and the tier behind it."""
    from vllm.v1.kv_offload.tiering import manager as tiering

    memory = memoryview(bytearray(HOST_CHUNKS * 8)).cast("B", (HOST_CHUNKS, 8))
    region = SimpleNamespace(create_kv_memoryview=lambda: memory, cleanup=lambda: None)
    host = tiering.CPUPrimaryTierOffloadingManager(HOST_CHUNKS, region)
    tier = tier_class()(set(keys), memory)
    return tiering.TieringOffloadingManager(host, [tier]), tier


def main():
    """1 where the request waits for ever."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
        OffloadingConnectorScheduler,
    )
    from vllm.v1.kv_offload.base import ReqContext, ScheduleEndContext

    keys = [b"chunk %d" % number for number in range(PREFIX_CHUNKS)]
    manager, tier = manager_and_tier(keys)
    events = SimpleNamespace(record_lookup=lambda *_: None)
    connector = SimpleNamespace(manager=manager, _events_tracker=events)
    context = ReqContext("alone")
    manager.on_new_request(context)
    print(
        f"the host holds {HOST_CHUNKS} chunks, the tier behind it all {PREFIX_CHUNKS} of a prefix"
    )
    print("expected: in some step the request is told how much of it can be loaded")
    lookup = OffloadingConnectorScheduler._maximal_prefix_lookup  # noqa: SLF001 - as it is asked
    # Since 0.27 it records for whom it looks up; a method has the connector as its first argument.
    told = (None, None, 0)[: lookup.__code__.co_argcount - 3]
    for step in range(1, STEPS + 1):
        found = lookup(connector, keys, context, *told)
        if found is not None:
            print(f"actual:   {found} chunks, in step {step}")
            return 0
        manager.on_schedule_end(ScheduleEndContext((), ()))
    print(f"actual:   it is told to wait in each of {STEPS} steps; {tier.promoted} promotions")
    return 1


if __name__ == "__main__":
    sys.exit(main())
