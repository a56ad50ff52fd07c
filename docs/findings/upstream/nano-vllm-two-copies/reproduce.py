"""nano-vLLM: of two blocks with one prefix only the last that was computed can be found.

Usage: python reproduce.py PATH/TO/nano-vllm

Drives `Scheduler` of a checkout; needs xxhash and NumPy, and neither a model nor a GPU. Exit status
1 if a prefix whose block is whole and was not handed out anew is not found.
"""

import importlib
import sys
import types
from pathlib import Path

BLOCK, NUM_BLOCKS = 4, 6


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

    def submit(tokens, count):
        sequence = engine.Sequence(tokens, sampling(max_tokens=count, ignore_eos=True))
        scheduler.add(sequence)
        return sequence

    def step():
        """Compute a step. Returns the blocks and the cached tokens of each of its requests."""
        sequences, is_prefill = scheduler.schedule()
        seen = [(list(each.block_table), each.num_cached_tokens) for each in sequences]
        arguments = (sequences, [7] * len(sequences), is_prefill)
        scheduler.postprocess(*arguments[: scheduler.postprocess.__code__.co_argcount - 1])
        return seen

    prompt = [1, 1, 1, 1, 2]
    submit(prompt, 3)
    submit(prompt, 1)
    (stays, _), (leaves, _) = step()
    print(f"Two requests with the prompt {prompt} are computed in one step,")
    print(f"in {stays} and {leaves}. The second ends.")
    submit([3] * 13, 1)
    ((taken, _),) = step()
    print(f"A stranger's prompt takes {taken}; {stays} still serve the first request.")
    submit(prompt, 1)
    ((_, cached),) = step()
    print(f"The prompt {prompt} is sent again.")
    print(f"  expected: {BLOCK} tokens are cached, those in block {stays[0]}")
    print(f"  happens:  {cached} tokens are taken as cached")
    return int(cached != BLOCK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
