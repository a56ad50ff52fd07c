"""With overlap a request ends a token early, a cancel ends the scheduler, and so do partial pages.

Usage: python reproduce.py PATH/TO/MINI-SGLANG

Needs torch, and no GPU. The checkout's own Scheduler runs its own `overlap_loop`; what stands below
it (the model, the queues, pinned memory) is replaced by a few lines. Exit status 1 if a request of
two tokens ends with the first, or if cancelling one raises.
"""

import importlib
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import torch

PAGE_SIZE, NUM_PAGES, EOS, TOKEN = 4, 16, 0, 1


class Anything:
    """Has every attribute, and does nothing."""

    def __getattr__(self, name):
        return lambda *_arguments, **_options: self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None


class Engine:
    """The page table, and a forward pass that samples TOKEN for everybody."""

    def __init__(self, config):
        self.device, self.stream, self.tp_cpu_group = torch.device("cpu"), Anything(), None
        self.num_pages, self.max_seq_len = config.num_pages, config.num_pages * PAGE_SIZE
        self.page_table = torch.zeros(
            (config.max_running_req + 1, self.max_seq_len), dtype=torch.int32
        )
        self.graph_runner = types.SimpleNamespace(
            pad_batch=lambda batch: setattr(batch, "padded_reqs", batch.reqs)
        )
        self.attn_backend, self.sampler = Anything(), Anything()

    def forward_batch(self, batch, _arguments):
        for request in batch.reqs:
            request.complete_one()
        tokens = torch.full((batch.size,), TOKEN, dtype=torch.int32)
        return Output(tokens, tokens, Anything())


class Output(NamedTuple):
    """What the device leaves."""

    next_tokens_gpu: torch.Tensor
    next_tokens_cpu: torch.Tensor
    copy_done: Anything


def common_length(one, other):
    same = next((i for i, (a, b) in enumerate(zip(one.tolist(), other.tolist())) if a != b), None)
    return min(len(one), len(other)) if same is None else same


def module(name, **contents):
    sys.modules[name] = made = types.ModuleType(name)
    vars(made).update(contents)
    return made


def without_pinning(function):
    def unpinned(*arguments, **options):
        options.pop("pin_memory", None)
        return function(*arguments, **options)

    return unpinned


class Registry(dict):
    def __init__(self, _what):
        super().__init__()

    def __class_getitem__(cls, _item):
        return cls

    def register(self, name):
        return lambda builder: self.setdefault(name, builder)


def load(checkout):
    """The scheduler's modules; packages are entered without what their __init__ would load."""
    root = Path(checkout).resolve() / "python" / "minisgl"
    for name in ("minisgl", "minisgl.scheduler"):
        module(name).__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    module("minisgl.engine", Engine=Engine, EngineConfig=object)
    module("minisgl.kernel", fast_compare_key=common_length)
    module("minisgl.env", ENV=None)
    module(
        "minisgl.scheduler.io", SchedulerIOMixin=type("Mixin", (), {"__init__": lambda *_: None})
    )
    module("minisgl.scheduler.config", SchedulerConfig=None)
    module(
        "minisgl.utils",
        align_down=lambda number, unit: number // unit * unit,
        div_ceil=lambda number, unit: -(-number // unit),
        init_logger=lambda *_: Anything(),
        load_tokenizer=lambda _: types.SimpleNamespace(eos_token_id=EOS),
        Registry=Registry,
    )
    torch.empty, torch.tensor = without_pinning(torch.empty), without_pinning(torch.tensor)
    torch.Tensor.pin_memory = lambda self: self
    torch.cuda.Stream = torch.cuda.set_stream = torch.cuda.stream = lambda *_, **__: nullcontext()
    core = importlib.import_module("minisgl.core")
    core.set_global_ctx(core.Context(page_size=PAGE_SIZE))
    return (
        core,
        importlib.import_module("minisgl.scheduler.scheduler"),
        importlib.import_module("minisgl.message"),
    )


def new_scheduler(scheduler, num_pages):
    config = types.SimpleNamespace(
        max_running_req=4,
        page_size=PAGE_SIZE,
        cache_type="radix",
        max_extend_tokens=64,
        model_path="",
        num_pages=num_pages,
    )
    made, messages, replies = scheduler.Scheduler(config), [], []
    made.receive_msg = lambda **_: [messages.pop(0)] if messages else []
    made.send_result = replies.extend
    return made, messages, replies


def shown(expected, happens):
    print(f"  expected: {expected}")
    print(f"  happens:  {happens}")
    return happens != expected


def rounds(loop, number):
    """So many rounds of a loop without data between them, and what happens."""
    try:
        for _ in range(number):
            loop()
    except AssertionError as error:
        return f"the scheduler raises AssertionError: {error}"
    return "nothing is raised"


def main(checkout):
    core, scheduler, message = load(checkout)

    def request(uid, length, max_tokens):
        limits = core.SamplingParams(max_tokens=max_tokens)
        return message.UserMsg(uid, torch.ones(length, dtype=torch.int32), limits)

    made, messages, replies = new_scheduler(scheduler, NUM_PAGES)
    messages.append(request(0, 5, 2))
    data = None
    for _ in range(4):
        data = made.overlap_loop(data)
    print("1. A request of 2 tokens, overlap_loop; `finished` of the messages to its user:")
    wrong = shown([False, True], [reply.finished for reply in replies])

    messages.append(request(1, 5, 2))
    data = made.overlap_loop(None)
    messages.append(message.AbortBackendMsg(1))
    print("2. One that hits the prefix of the first is cancelled while its prefill is in flight:")
    wrong |= shown("nothing is raised", rounds(lambda: made.overlap_loop(data), 1))

    made, messages, _ = new_scheduler(scheduler, 4)
    messages.append(message.BatchBackendMsg([request(0, 7, 3), request(1, 3, 3)]))
    print("3. Two requests of 10 and 6 tokens in all come to 4 pages of 4, normal_loop:")
    wrong |= shown("nothing is raised", rounds(made.normal_loop, 5))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
