"""gLLM's scheduler stops for ever: two waiting requests hold the pages that each of them needs.

Usage: python reproduce.py PATH/TO/gLLM

Drives Scheduler as Worker.run_pp0 does, with the defaults of the server; no GPU, no model. What
scheduler.py and memory_manager.py import and the bookkeeping does not need (torch, transformers,
logger, comm, model_runner, and gllm's own utils) is blank; id_allocator.py, sequence.py,
memory_manager.py and scheduler.py are the checkout's own. Exit status 1 if a request is never
served.
"""

import sys
import types
from pathlib import Path

PAGE_SIZE, NUM_PAGES = 16, 32
METHODS = ("chunked_prefill", "split_pd", "token_throttling")


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


class Package:
    """What the scheduler tells the front end."""

    def __init__(self, _requests):
        self.free_ids, self.act_schedule_ids, self.next_tokens = [], [], []
        self.logprobs, self.prompt_logprobs = [], {}


class Runner:
    """The limits, and the way to the memory manager: a text model without images."""

    def __init__(self, memory_manager):
        self.memory_manager, self.page_size = memory_manager, PAGE_SIZE
        self.maxp, self.maxd, self.minp, self.iterp = 2048, 512, 32, 8
        self.init_new_token_ratio, self.min_new_token_ratio = 0.7, 0.1
        self.kvthresh = 0.05  # before c7dc791, in place of the ratios

    def free(self, sequence):
        self.memory_manager.free(sequence)

    def register_decode_page_hash(self, sequence, position):
        self.memory_manager.register_decode_boundary(sequence, position)

    def disagg_prefill_limit(self, _sequence):
        return None

    def _mm_precompute_hash(self, _sequence):
        pass


def load(checkout):
    """The checkout's own modules, without gllm/__init__.py, which loads the whole engine."""
    torch = Blank("torch")
    torch.distributed = Blank("torch.distributed")
    torch.distributed.is_initialized = lambda: False
    num_bytes = 2 * PAGE_SIZE * NUM_PAGES
    torch.cuda = Blank("cuda")
    torch.cuda.mem_get_info = lambda: (num_bytes, num_bytes)
    modules = {"torch": torch, "torch.distributed": torch.distributed}
    for name in ("transformers", "logger", "comm", "dist_utils", "model_runner", "utils"):
        full_name = name if name in ("transformers", "logger") else f"gllm.{name}"
        modules[full_name] = Blank(full_name)
    modules["gllm.comm"].IPCPackage = Package
    modules["gllm.dist_utils"].get_world_size = lambda: 1
    modules["gllm.utils"].get_dtype_bytes = lambda _dtype: 1
    modules["gllm"] = types.ModuleType("gllm")
    modules["gllm"].__path__ = [str(Path(checkout) / "gllm")]
    sys.modules.update(modules)
    from gllm.memory_manager import MemoryManager, PrefixMemoryManager
    from gllm.scheduler import Scheduler
    from gllm.sequence import Sequence

    return (MemoryManager, PrefixMemoryManager), Scheduler, Sequence


def new_scheduler(manager_class, scheduler_class, method):
    manager = manager_class(
        gpu_memory_util=1.0,
        num_layers=1,
        dtype=None,
        page_size=PAGE_SIZE,
        kv_head_num=1,
        kv_head_dim=1,
        vocab_size=1,
    )
    manager.init()
    scheduler = scheduler_class(1, Runner(manager), method)
    scheduler.set_log(False)
    return scheduler


def served(scheduler, requests):
    """Steps until all requests have ended, or until 1,000 rounds in a row compute nothing."""
    scheduler.add_new_requests(requests)
    num_steps = num_empty = 0
    ended = []
    while len(ended) < len(requests) and num_empty < 1000:
        scheduler.check_abort_seqs()
        batch = scheduler.schedule_once()
        if not batch:
            num_empty += 1
            continue
        num_empty, num_steps = 0, num_steps + 1
        scheduler.add_next_tokens([7] * len(batch))
        ended += scheduler.process_output().free_ids
    return num_steps, ended


def main():
    managers, scheduler_class, sequence_class = load(sys.argv[1])

    def requests():
        """400 and 310 tokens, outputs included; the pages hold 512."""
        return [
            sequence_class(0, list(range(1000, 1200)), [], 200),
            sequence_class(1, list(range(2000, 2300)), [], 10),
        ]

    is_wrong = False
    for manager_class in managers:
        for method in METHODS:
            for request in requests():
                alone = new_scheduler(manager_class, scheduler_class, method)
                assert served(alone, [request])[1] == [request.seq_id]
            scheduler = new_scheduler(manager_class, scheduler_class, method)
            num_steps, ended = served(scheduler, requests())
            print(f"{manager_class.__name__}, {method}: two requests, each of which fits")
            print("  expected: both end")
            print(f"  happens:  {len(ended)} of 2 have ended after {num_steps} steps")
            if len(ended) == 2:
                continue
            is_wrong = True
            assert not scheduler.seqs_to_decode
            print("            1,000 rounds compute nothing; nothing runs, free pages: "
                  f"{scheduler.get_num_free_pages()}")  # fmt: skip
            for s in scheduler.seqs_to_prefill:
                print(f"            request {s.seq_id} waits: {s.computed_token_num} of {len(s)} "
                      f"tokens are computed, it holds {len(s.page_table)} pages")  # fmt: skip
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
