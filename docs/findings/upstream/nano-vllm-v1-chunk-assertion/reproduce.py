"""nano-vllm-v1 (CodingPlatelets) fails on the second chunk of a prompt whose first was short.

Usage: python reproduce.py PATH/TO/nano-vllm-v1

Drives BlockManager in the order in which scheduler.py calls it with chunked prefill; needs xxhash
and NumPy. Exit status 1 if the second chunk raises an AssertionError.
"""

import sys
import types
from pathlib import Path

BLOCK_SIZE, NUM_BLOCKS = 4, 8


def load(checkout):
    """The two modules, without the package's __init__, which loads the model."""
    package = types.ModuleType("nanovllm")
    package.__path__ = [str(Path(checkout) / "nanovllm")]
    sys.modules["nanovllm"] = package
    from nanovllm.engine.block_manager import BlockManager
    from nanovllm.engine.sequence import Sequence

    return BlockManager, Sequence


def main(checkout):
    manager_class, sequence_class = load(checkout)
    sequence_class.block_size = BLOCK_SIZE
    manager = manager_class(NUM_BLOCKS, BLOCK_SIZE)
    long = sequence_class([1, 2, 3, 4, 5, 6, 7, 8])
    manager.get_token_layout(long)
    long.num_new_tokens = 1
    assert manager.can_allocate(1)
    manager.allocate(long)
    long.num_cached_tokens, long.num_new_tokens = 1, 0
    print(f"A prompt of 8 tokens has room for one in this step: it gets block {long.block_table}.")
    assert manager.can_append(long, 7)
    long.num_new_tokens = 7
    print("The other seven are scheduled in the next step.")
    print("  expected: a second block")
    try:
        manager.may_append(long)
    except AssertionError:
        wrong = manager.blocks[long.block_table[0]].hash
        print(f"  happens:  AssertionError: the block has the hash {wrong} and is not full")
        return 1
    print(f"  happens:  the blocks {long.block_table}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
