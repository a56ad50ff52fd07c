"""nano-vllm-v1 (tang-jiapeng) loses a block whenever two sequences end with the same full block.

Usage: python reproduce.py PATH/TO/nano-vllm-v1

Drives BlockManager in the order in which scheduler.py calls it; needs xxhash and NumPy. Exit status
1 if a block is free, in use and cached nowhere.
"""

import sys
import types
from pathlib import Path

BLOCK_SIZE, NUM_BLOCKS = 4, 4


def load(checkout):
    """The two modules, without the package's __init__, which loads the model."""
    package = types.ModuleType("nanovllm")
    package.__path__ = [str(Path(checkout) / "nanovllm")]
    sys.modules["nanovllm"] = package
    from nanovllm.engine.block_manager import BlockManager
    from nanovllm.engine.sequence import Sequence

    return BlockManager, Sequence


def admit(manager, sequence):
    """What the scheduler does with a waiting sequence."""
    _, cached, new = manager.get_token_layout(sequence)
    assert manager.can_allocate(cached + new)
    sequence.num_new_tokens = new
    manager.allocate(sequence)


def main(checkout):
    manager_class, sequence_class = load(checkout)
    sequence_class.block_size = BLOCK_SIZE
    manager = manager_class(NUM_BLOCKS, BLOCK_SIZE)
    first, second = (sequence_class([7] * BLOCK_SIZE) for _ in range(2))
    for sequence in (first, second):
        admit(manager, sequence)
    print(f"Two requests send {first.token_ids}, and get the blocks {first.block_table} and")
    print(f"{second.block_table}; both are computed, and both end.")
    for sequence in (first, second):
        sequence.num_cached_tokens, sequence.num_new_tokens = sequence.num_new_tokens, 0
        manager.deallocate(sequence)
    print(f"  expected: {NUM_BLOCKS} blocks can be had again")
    print(f"  happens:  {manager.num_free_blocks} blocks can be had again")
    there = {*manager.free_block_ids, *manager.used_block_ids, *manager.cached_blocks.values()}
    lost = set(range(NUM_BLOCKS)) - there
    print(f"  lost until the server restarts: {sorted(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
