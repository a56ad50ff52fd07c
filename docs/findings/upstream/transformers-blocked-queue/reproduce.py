"""Continuous batching: after a cancellation nobody waiting is ever scheduled again.

Usage: python reproduce.py [fifo|prefill_first]

Needs transformers 5.19 and torch, on any machine; no model and no GPU. The batch processor is built
as ContinuousBatchingManager builds it, and driven as its thread drives it, with a token of its own
in place of the forward pass. Exit status 1 if waiting requests are not scheduled in 100 rounds.
"""

import queue
import sys

import torch
from transformers import GenerationConfig, PretrainedConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessorList,
)
from transformers.generation.continuous_batching.continuous_api import (
    BackgroundThreadStatus,
    ContinuousBatchProcessor,
    OutputRouter,
)
from transformers.generation.continuous_batching.distributed import DistributedHelper
from transformers.generation.continuous_batching.requests import RequestState
from transformers.generation.continuous_batching.scheduler import SCHEDULER_MAPPING
from transformers.generation.logits_process import LogitsProcessorList

PAGE_SIZE, NUM_BLOCKS, TOKEN = 4, 4, 1


def new_processor(scheduler):
    """A processor over 4 blocks of 4 tokens, and the queues of its manager."""
    config = PretrainedConfig(
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        hidden_size=4,
        vocab_size=100,
    )
    config.layer_types, config.sliding_window = ["full_attention"], None
    config._attn_implementation = "paged|eager"  # noqa: SLF001 -- as a model sets it
    batching = ContinuousBatchingConfig(
        page_size=PAGE_SIZE,
        num_blocks=NUM_BLOCKS,
        max_batch_tokens=16,
        max_requests_per_batch=4,
        max_memory_percent=0.5,
        max_blocks_per_request=0,
        use_async_batching=False,
        use_cuda_graph=False,
    )
    helper = DistributedHelper(None, None)
    cache = PagedAttentionCache(
        config, batching, device="cpu", distributed_helper=helper, dtype=torch.float32
    )
    requests, cancelled = queue.Queue(), queue.Queue()
    processor = ContinuousBatchProcessor(
        cache=cache,
        config=config,
        generation_config=GenerationConfig(),
        continuous_batching_config=batching,
        logit_processor=ContinuousBatchingLogitsProcessorList(LogitsProcessorList()),
        input_queue=requests,
        cancel_queue=cancelled,
        output_router=OutputRouter(),
        background_thread_status=BackgroundThreadStatus(),
        model_device=torch.device("cpu"),
        model_dtype=torch.float32,
        scheduler=SCHEDULER_MAPPING[scheduler](
            cache=cache, safety_margin=0.0, max_requests_per_batch=4
        ),
        distributed_helper=helper,
    )
    return processor, requests, cancelled


def one_round(processor):
    """What the manager's thread does in a round; whether anything was scheduled."""
    if not processor.prepare_next_batch():
        return False
    processor.inputs_and_outputs.output_ids.fill_(TOKEN)  # where the forward pass leaves them
    processor.update_batch()
    return True


def main(scheduler):
    processor, requests, cancelled = new_processor(scheduler)
    for name in ("A", "B"):
        tokens = [ord(name)] * 2 * PAGE_SIZE
        requests.put(RequestState(name, tokens, max_new_tokens=6))
    print("A and B come, each with a prompt of 2 blocks; there are 4 blocks.")
    while not processor.scheduler.waiting_requests:
        assert one_round(processor)
    running = list(processor.scheduler.active_requests)
    waiting = list(processor.scheduler.waiting_requests)
    print(f"The next tokens need a block each: {waiting} lost its blocks, {running} goes on.")
    cancelled.put(running[0])
    requests.put(RequestState("C", [3, 3], max_new_tokens=2))
    print(f"The user of {running[0]} cancels, and C comes.")
    rounds = sum(one_round(processor) for _ in range(100))
    waiting = list(processor.scheduler.waiting_requests)
    tables = [each.block_table for each in processor.cache.cache_allocators.values()]
    print(f"After 100 rounds, of which {rounds} scheduled anything:")
    print("  expected: nobody waits")
    print(f"  happens:  {waiting} wait, and {sum(map(len, tables))} requests hold blocks")
    return 1 if waiting else 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["fifo"])))
