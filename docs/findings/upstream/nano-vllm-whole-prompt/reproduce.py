"""nano-vLLM: where a prompt is cached whole, a step is planned that computes nothing.

Usage: python reproduce.py PATH/TO/nano-vllm

Drives `Scheduler` of a checkout; needs xxhash and NumPy, and neither a model nor a GPU. Exit status
1 if a request is planned without a token to compute.
"""

import importlib
import sys
import types
from pathlib import Path

BLOCK, NUM_BLOCKS = 4, 4


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

    prompt = [1, 1, 1, 1, 2, 2, 2, 2]

    def plan():
        """Plan the prompt. Returns the step, and how many tokens the runner is to compute in it."""
        scheduler.add(engine.Sequence(prompt, sampling(max_tokens=1, ignore_eos=True)))
        sequences, is_prefill = scheduler.schedule()
        (sequence,) = sequences
        left = len(sequence) - sequence.num_cached_tokens
        return (sequences, [7], is_prefill), getattr(sequence, "num_scheduled_tokens", left)

    arguments, count = plan()
    print(f"The prompt {prompt} fills its blocks. It is sent: a step of {count} tokens; it ends.")
    scheduler.postprocess(*arguments[: scheduler.postprocess.__code__.co_argcount - 1])
    _, count = plan()
    print("It is sent again.")
    print("  expected: at least one token is computed, behind which to sample")
    print(f"  happens:  a step of {count} tokens")
    return int(count == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
