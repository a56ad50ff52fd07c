"""vLLM V0's block manager under a sliding window: a fork leaks, and swapping out frees twice.

Usage: python reproduce.py PATH/TO/VLLM   (a folder that holds `vllm`, as an unpacked wheel does)

Runs the block manager of a release in the order in which its scheduler calls it. Needs nothing
else: what it imports beside its own parts, and the sequences that it is asked about, are stand-ins.
Exit status 1 if a block is lost or freed twice.
"""

import enum
import importlib
import importlib.util
import sys
import types
from pathlib import Path

BLOCK, WINDOW, NUM_BLOCKS, TOKENS = 4, 8, 3, 9
REAL = ("vllm.block", "vllm.core.evictor", "vllm.core.evictor_v1", "vllm.core.interfaces")


class Blank(types.ModuleType):
    """A module that has every name, for imports that the block manager never calls here."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_arguments, **_options: None


class StandIns:
    """Answers for all of vLLM but the parts that run."""

    def find_spec(self, name, _path=None, _target=None):
        if name.split(".")[0] != "vllm":
            return None
        file = Path(sys.argv[1], *name.split(".")).with_suffix(".py")
        if file.exists() and name in (*REAL, *managers()):
            return importlib.util.spec_from_file_location(name, file)
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        module = Blank(spec.name)
        if spec.name == "vllm.utils":
            module.Device = enum.Enum("Device", "GPU CPU")
        if spec.name == "vllm.sequence":
            module.SequenceStatus = enum.Enum("SequenceStatus", "WAITING RUNNING SWAPPED")
            module.Sequence = module.SequenceGroup = object
        if spec.name == "vllm.core.interfaces":  # before 0.4 the base class is not there
            module.BlockSpaceManager = object
        return module

    def exec_module(self, module):
        pass


def managers():
    """The names under which releases have the block manager."""
    return "vllm.core.block_manager_v1", "vllm.core.block_manager"


class Sequence:
    """What the manager asks of a sequence: its name, its length, whether it ended."""

    def __init__(self, seq_id):
        self.seq_id, self.n_blocks = seq_id, -(-TOKENS // BLOCK)
        self.logical_token_blocks = [None] * self.n_blocks
        self.data = types.SimpleNamespace(get_len=lambda: TOKENS)

    def is_finished(self):
        return False

    def num_hashed_tokens_of_block(self, index):
        return min(TOKENS, (index + 1) * BLOCK)


class Group:
    """A group of sequences of one prompt."""

    prefix, request_id = None, "request"

    def __init__(self, *sequences):
        self.sequences = list(sequences)

    def get_seqs(self, **_status):
        return self.sequences

    def num_seqs(self, **_status):
        return len(self.sequences)

    def is_encoder_decoder(self):
        return False


def main():
    sys.meta_path.insert(0, StandIns())
    folder = Path(sys.argv[1], "vllm", "core")
    name = next(name for name in managers() if (folder / f"{name.split('.')[-1]}.py").exists())
    module = importlib.import_module(name)
    manager_class = getattr(module, "BlockSpaceManagerV1", None) or module.BlockSpaceManager

    def with_a_prompt():
        manager = manager_class(BLOCK, NUM_BLOCKS, NUM_BLOCKS, watermark=0, sliding_window=WINDOW)
        parent = Sequence(0)
        manager.allocate(Group(parent))
        return manager, parent

    manager, parent = with_a_prompt()
    table = manager.get_block_table(parent)
    print(f"Blocks of {BLOCK}, a window of {WINDOW}: {TOKENS} tokens have the table {table}.")
    child = Sequence(1)
    manager.fork(parent, child)
    manager.free(child)
    manager.free(parent)
    free = manager.get_num_free_gpu_blocks()
    print("It is forked, and both sequences end.")
    print(f"  expected: {NUM_BLOCKS} of {NUM_BLOCKS} blocks are free")
    print(f"  happens:  {free} of {NUM_BLOCKS}")

    manager, parent = with_a_prompt()
    print("It is swapped out instead.")
    print(f"  expected: {NUM_BLOCKS} of {NUM_BLOCKS} blocks are free")
    try:
        manager.swap_out(Group(parent))
    except ValueError as error:
        print(f"  happens:  ValueError: {error}")
        return 1
    swapped = manager.get_num_free_gpu_blocks()
    print(f"  happens:  {swapped} of {NUM_BLOCKS}")
    return int((free, swapped) != (NUM_BLOCKS, NUM_BLOCKS))


if __name__ == "__main__":
    sys.exit(main())
