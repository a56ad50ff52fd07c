"""nano-vLLM: a cached block that is taken up again loses its hash, and the next has a wrong key.

Usage: python reproduce.py PATH/TO/nano-vllm

Drives `Scheduler` of a checkout; needs xxhash and NumPy, and neither a model nor a GPU. Exit status
1 if a request is told that tokens are cached that were computed behind other tokens.
"""

import importlib
import sys
import types
from pathlib import Path

BLOCK, NUM_BLOCKS = 4, 3


def load(checkout):
    """The scheduler's module, without the package's __init__, which loads the model."""
    package = types.ModuleType("nanovllm")
    package.__path__ = [str(Path(checkout).resolve() / "nanovllm")]
    sys.modules["nanovllm"] = package
    config = types.ModuleType("nanovllm.config")  # which would read a model
    config.Config = object
    sys.modules["nanovllm.config"] = config
    return importlib.import_module("nanovllm.engine.scheduler")


def main(checkout):
    engine = load(checkout)
    sampling = importlib.import_module("nanovllm.sampling_params").SamplingParams
    engine.Sequence.block_size = BLOCK
    scheduler = engine.Scheduler(
        types.SimpleNamespace(
            max_num_seqs=4,
            max_num_batched_tokens=64,
            eos=-1,
            num_kvcache_blocks=NUM_BLOCKS,
            kvcache_block_size=BLOCK,
        )
    )

    def serve(tokens):
        """Serve a prompt alone. Returns its blocks and how many tokens were taken as cached."""
        sequence = engine.Sequence(tokens, sampling(max_tokens=1, ignore_eos=True))
        scheduler.add(sequence)
        sequences, is_prefill = scheduler.schedule()
        blocks, cached = list(sequence.block_table), sequence.num_cached_tokens
        arguments = (sequences, [7], is_prefill)
        scheduler.postprocess(*arguments[: scheduler.postprocess.__code__.co_argcount - 1])
        return blocks, cached

    first, second = [1, 1, 1, 1], [2, 2, 2, 2]
    blocks, _ = serve(first)
    print(f"{first} is computed in block {blocks[0]}, and ends.")
    blocks, cached = serve([*first, *second])
    print(f"{first + second} gets the blocks {blocks}, {cached} tokens are cached, and ends.")
    blocks, cached = serve([*second, 3])
    print(f"{[*second, 3]} is sent, of which nothing was computed at these positions.")
    print("  expected: 0 tokens are cached")
    print(f"  happens:  {cached} tokens are taken as cached, in block {blocks[0]}")
    return int(cached != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
