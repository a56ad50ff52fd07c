"""A recycled block is still found under its old hash, in nano-vLLM and what descends from it.

Usage: python reproduce.py PATH/TO/CHECKOUT

Drives BlockManager in the order in which scheduler.py calls it; needs xxhash and NumPy. Exit status
1 if a request is told that a block is cached whose KV belongs to another prefix.
"""

import importlib
import inspect
import sys
import types
from pathlib import Path

BLOCK_SIZE, NUM_BLOCKS = 4, 2


def load(checkout):
    """The two modules, without the package's __init__, which loads the model."""
    (found,) = Path(checkout).resolve().glob("*/engine/block_manager.py")
    name = found.parent.parent.name
    package = types.ModuleType(name)
    package.__path__ = [str(found.parent.parent)]
    sys.modules[name] = package
    blocks = importlib.import_module(f"{name}.engine.block_manager")
    sequences = importlib.import_module(f"{name}.engine.sequence")
    return blocks.BlockManager, sequences.Sequence


def new_sequence(sequence_class, tokens):
    """Some are told the block size and a name, others keep the size on the class."""
    known = {"seq_id": "0", "block_size": BLOCK_SIZE}
    parameters = inspect.signature(sequence_class).parameters
    if "block_size" not in parameters:
        sequence_class.block_size = BLOCK_SIZE
    told = {name: value for name, value in known.items() if name in parameters}
    return sequence_class(token_ids=tokens, **told)


def main(checkout):
    manager_class, sequence_class = load(checkout)
    manager = manager_class(NUM_BLOCKS, BLOCK_SIZE)

    def serve(tokens):
        """A request that is admitted; its blocks, and how many tokens were taken as cached."""
        sequence = new_sequence(sequence_class, tokens)
        assert manager.can_allocate(sequence)
        manager.allocate(sequence)
        blocks, cached = list(sequence.block_table), sequence.num_cached_tokens
        manager.deallocate(sequence)
        return blocks, cached

    blocks, _ = serve([1, 1, 1, 1])
    print(f"A request caches [1, 1, 1, 1] as block {blocks[0]}, and ends.")
    blocks, _ = serve([0, 0, 0, 0, 1, 1, 1, 1])
    print(f"Another, [0, 0, 0, 0, 1, 1, 1, 1], gets the blocks {blocks}, and ends.")
    _, cached = serve([1, 1, 1, 1])
    print("The first prompt [1, 1, 1, 1] is sent again.")
    print("  expected: 0 tokens are cached; its block has been overwritten")
    print(f"  happens:  {cached} tokens are taken as cached")
    return 1 if cached else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
