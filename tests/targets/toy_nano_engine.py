"""A small package in the shape of nano-vLLM, with a scheduler of our own: not a test itself.

`written` puts it into a folder. What differs from the toy that holds is replaced in its text.
"""

from __future__ import annotations

from pathlib import Path

CONFIG = """
from dataclasses import dataclass
from transformers import AutoConfig

@dataclass(slots=True)
class Config:
    model: str
    max_num_batched_tokens: int = 16384
    max_num_seqs: int = 512
    max_model_len: int = 4096
    hf_config: AutoConfig | None = None
    eos: int = -1
    kvcache_block_size: int = 256
    num_kvcache_blocks: int = -1

    def __post_init__(self):
        raise AssertionError("there is no folder with a model")
"""

LIMITS = """
class SamplingParams:
    def __init__(self, max_tokens=64):
        self.max_tokens = max_tokens
"""

SEQUENCE = """
from toy.sampling_params import SamplingParams

class Sequence:
    block_size = 256

    def __init__(self, token_ids, sampling_params=SamplingParams()):
        self.token_ids = list(token_ids)
        self.num_prompt_tokens = len(token_ids)
        self.max_tokens = sampling_params.max_tokens
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0
        self.block_table = []
        self.is_finished = False
"""

BLOCKS = """
from collections import deque
from toy.engine.sequence import Sequence

class BlockManager:
    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.free_block_ids = deque(range(num_blocks))
        self.computed = {}

    def num_new(self, seq, num_tokens):
        return -(-num_tokens // self.block_size) - len(seq.block_table)

    def take(self, seq, num_tokens):
        if self.num_new(seq, num_tokens) > len(self.free_block_ids):
            return False
        for _ in range(self.num_new(seq, num_tokens)):
            seq.block_table.append(self.free_block_ids.popleft())
        return True

    def hash_blocks(self, seq):
        pass

    def deallocate(self, seq):
        self.free_block_ids.extend(reversed(seq.block_table))
        seq.block_table = []
        seq.num_cached_tokens = 0
"""

SCHEDULER = """
from collections import deque
from toy.config import Config
from toy.engine.block_manager import BlockManager
from toy.engine.sequence import Sequence

class Scheduler:
    def __init__(self, config: Config):
        self.most_tokens = config.max_num_batched_tokens
        self.most = config.max_num_seqs
        self.eos = config.eos
        self.block_manager = BlockManager(config.num_kvcache_blocks, config.kvcache_block_size)
        self.waiting, self.running = deque(), deque()

    def is_finished(self):
        return not self.waiting and not self.running

    def add(self, seq):
        self.waiting.append(seq)

    def schedule(self):
        step, left = [], self.most_tokens
        while self.waiting and left and len(step) < self.most:
            seq = self.waiting[0]
            count = min(left, len(seq.token_ids) - seq.num_cached_tokens)
            if not self.block_manager.take(seq, len(seq.token_ids)):
                break
            seq.num_scheduled_tokens = count
            left -= count
            step.append(seq)
            if seq.num_cached_tokens + count < len(seq.token_ids):
                break
            self.running.append(self.waiting.popleft())
        if step:
            return step, True
        for seq in list(self.running):
            if len(step) == self.most or seq not in self.running:
                continue
            while not self.block_manager.take(seq, len(seq.token_ids)):
                last = self.running.pop()
                self.block_manager.deallocate(last)
                self.waiting.appendleft(last)
                if last is seq:
                    break
            else:
                seq.num_scheduled_tokens = 1
                step.append(seq)
        return step, False

    def postprocess(self, seqs, token_ids, is_prefill):
        for seq, token in zip(seqs, token_ids):
            seq.num_cached_tokens += seq.num_scheduled_tokens
            if seq.num_cached_tokens < len(seq.token_ids):
                continue
            seq.token_ids.append(token)
            num_new = len(seq.token_ids) - seq.num_prompt_tokens
            if token == self.eos or num_new == seq.max_tokens:
                seq.is_finished = True
                self.block_manager.deallocate(seq)
                self.running.remove(seq)
"""

FILES = {
    "config.py": CONFIG,
    "sampling_params.py": LIMITS,
    "engine/sequence.py": SEQUENCE,
    "engine/block_manager.py": BLOCKS,
    "engine/scheduler.py": SCHEDULER,
}


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    """The checkout, each first text replaced by the second in the one file that has it."""
    files = dict(FILES)
    for old, new in changes:
        (name,) = [name for name, text in files.items() if old in text]
        files[name] = files[name].replace(old, new)
    for name, text in files.items():
        path = folder / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
