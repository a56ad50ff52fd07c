"""mini-vllm's prefix index still finds a recycled block under its old hash.

Usage: python reproduce.py PATH/TO/mini-vllm

Drives KVCacheBlockManager in the order in which scheduler.py calls it; needs xxhash and nothing
else. Exit status 1 if a request is told that a block is cached whose KV belongs to another prefix.
"""

import inspect
import sys
from pathlib import Path

BLOCK_SIZE, NUM_BLOCKS = 4, 3


class Engine:
    """The scheduler's calls around the manager, and what prefix each block was written for."""

    def __init__(self, manager_class, request_class):
        options = {}
        if "support_prefix_cache" in inspect.signature(manager_class).parameters:
            options["support_prefix_cache"] = True
        self.manager = manager_class(NUM_BLOCKS, BLOCK_SIZE, **options)
        self.request_class = request_class
        self.written = {}

    def prefill(self, tokens):
        request = self.request_class(tokens)
        self.manager.allocate_blocks_for_prefill(request)
        request.state = self.request_class.RUNNING
        for number, block in enumerate(request.blocks):
            if number * BLOCK_SIZE >= request.num_cached_tokens:
                self.written[block] = tuple(tokens[: (number + 1) * BLOCK_SIZE])
        return request

    def finish(self, request):
        request.state = self.request_class.FINISHED
        self.manager.deallocate(request)

    def wrong(self, request, tokens):
        """The blocks that are taken as cached and hold the KV of another prefix."""
        num_cached = request.num_cached_tokens // BLOCK_SIZE
        return [
            (block, self.written[block], tuple(tokens[: (number + 1) * BLOCK_SIZE]))
            for number, block in enumerate(request.blocks[:num_cached])
            if self.written[block] != tuple(tokens[: (number + 1) * BLOCK_SIZE])
        ]


def main():
    sys.path.insert(0, sys.argv[1])
    assert (Path(sys.argv[1]) / "minivllm").is_dir(), "no checkout of mini-vllm"
    from minivllm.engine.request import Request
    from minivllm.kvcache.block_manager import KVCacheBlockManager

    engine = Engine(KVCacheBlockManager, Request)
    page = [1, 1, 1, 1]
    one = engine.prefill([7])
    two = engine.prefill(page)
    (cached,) = two.blocks
    print(f"A request caches the block {page} as block {cached}, and ends.")
    engine.finish(two)
    engine.finish(one)
    other = [0, 0, 0, 0, *page]
    between = engine.prefill(other)
    print(f"Another, {other}, gets the blocks {between.blocks}, and ends.")
    engine.finish(between)
    again = engine.prefill(page)
    wrong = engine.wrong(again, page)
    print(f"The first prompt {page} is sent again.")
    print("  expected: 0 tokens are cached; its block has been overwritten")
    print(f"  happens:  {again.num_cached_tokens} tokens are taken as cached")
    for block, found, wanted in wrong:
        print(f"  block {block} holds the KV of {list(found)[-4:]} behind {list(found)[:-4]}, "
              f"not of {list(wanted)}")  # fmt: skip
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
