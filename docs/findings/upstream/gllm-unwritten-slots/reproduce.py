"""gLLM's prefix cache hands out pages with slots whose KV was never computed.

Usage: python reproduce.py PATH/TO/gLLM

Drives PrefixMemoryManager in the order in which gllm/scheduler.py calls it; no GPU, no model. What
memory_manager.py imports and the bookkeeping does not need (torch, transformers, logger, and gllm's
own utils) is blank; id_allocator.py, sequence.py and memory_manager.py are the checkout's own.
Exit status 1 if a request is told that something is cached which nobody computed.
"""

import sys
import types
from pathlib import Path

PAGE_SIZE, NUM_PAGES = 16, 8


class Blank(types.ModuleType):
    """A module in which every name is there and does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else Blank(name)

    def __call__(self, *_arguments, **_options):
        return None

    def __bool__(self):
        return False


def load(checkout):
    """The checkout's own modules, without gllm/__init__.py, which loads the whole engine."""
    for name in ("torch", "torch.distributed", "transformers", "logger", "gllm.dist_utils"):
        sys.modules[name] = Blank(name)
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]
    sys.modules["torch"].distributed.is_initialized = lambda: False
    sys.modules["gllm.utils"] = Blank("gllm.utils")
    sys.modules["gllm.utils"].get_dtype_bytes = lambda _dtype: 1
    gllm = types.ModuleType("gllm")
    gllm.__path__ = [str(Path(checkout) / "gllm")]
    sys.modules["gllm"] = gllm
    from gllm.memory_manager import PrefixMemoryManager
    from gllm.sequence import Sequence

    return PrefixMemoryManager, Sequence


def new_manager(manager_class):
    num_bytes = 2 * PAGE_SIZE * NUM_PAGES
    sys.modules["torch"].cuda = Blank("cuda")
    sys.modules["torch"].cuda.mem_get_info = lambda: (num_bytes, num_bytes)
    manager = manager_class(
        gpu_memory_util=1.0,
        num_layers=1,
        dtype=None,
        page_size=PAGE_SIZE,
        kv_head_num=1,
        kv_head_dim=1,
        vocab_size=1,
    )
    if hasattr(manager, "init"):
        manager.init()
    return manager


class Engine:
    """The scheduler's calls around the manager, and the set of slots that were written."""

    def __init__(self, manager, sequence_class):
        self.manager, self.sequence_class = manager, sequence_class
        self.written = set()

    def look_up(self, tokens):
        sequence = self.sequence_class(0, list(tokens), [])
        self.manager.pre_allocate_computed_page([sequence])
        return sequence

    def forward(self, sequence, num_tokens):
        """schedule_prefill_batch or schedule_decode_batch, the forward pass, its result."""
        sequence.to_compute_token_num = num_tokens
        self.manager.pre_allocate_page([sequence])
        first = sequence.computed_token_num
        for position in range(first, first + num_tokens):
            page = sequence.page_table[position // PAGE_SIZE]
            self.written.add((page, position % PAGE_SIZE))
        sequence.computed_token_num += num_tokens

    def sample(self, sequence, token):
        """process_output: the token is appended and the page that it fills is registered."""
        sequence.token_ids.append(token)
        if hasattr(self.manager, "register_decode_boundary"):
            self.manager.register_decode_boundary(sequence, len(sequence) - 1)

    def unwritten(self, sequence):
        """Positions that the sequence need not compute, and that nobody has."""
        return [
            position
            for position in range(sequence.computed_token_num)
            if (sequence.page_table[position // PAGE_SIZE], position % PAGE_SIZE)
            not in self.written
        ]


def report(what, expected, sequence, engine):
    missing = engine.unwritten(sequence)
    print(f"{what}\n  expected: at most {expected} tokens are cached")
    print(f"  happens:  {sequence.computed_token_num} tokens are taken as cached")
    if missing:
        print(f"  positions {missing[0]} to {missing[-1]} are read and were never computed\n")
    else:
        print("  all of them were computed\n")
    return bool(missing)


def aborted_chunk(engine):
    """A prompt of 64 tokens is aborted after a chunk of 39, and sent again."""
    prompt = range(1000, 1064)
    first = engine.look_up(prompt)
    engine.forward(first, 39)
    engine.manager.free(first)  # check_abort_seqs
    return engine.look_up(prompt)


def finished_on_a_boundary(engine):
    """A request ends with the token that fills a page; the next turn begins with all of it."""
    first = engine.look_up(range(2000, 2012))
    engine.forward(first, 12)
    for token in range(2012, 2016):
        engine.sample(first, token)
        if token < 2015:
            engine.forward(first, 1)
    engine.manager.free(first)  # process_output: is_finish
    return engine.look_up(range(2000, 2040))


def main():
    manager_class, sequence_class = load(sys.argv[1])
    is_wrong = False
    for scenario, expected in ((aborted_chunk, 39), (finished_on_a_boundary, 15)):
        engine = Engine(new_manager(manager_class), sequence_class)
        is_wrong |= report(scenario.__doc__, expected, scenario(engine), engine)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
