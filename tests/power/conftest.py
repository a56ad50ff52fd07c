"""A right pool and a right engine, in files, and small budgets to certify their mutants with."""

from pathlib import Path

import pytest

from poolproof.certification.depths import BUDGETS, Budget
from poolproof.stateful_tests.settings import EXAMPLES

RIGHT_POOL = '''
class Pool:
    """A pool that counts what it hands out, for nobody."""

    profile = {"eviction": "lru", "duplicates": "first", "misuse": "undefined"}

    def __init__(self, num_blocks, *, enable_caching=True):
        self.queue = list(range(num_blocks))
        self.counts = [0] * num_blocks
        self.hashes = [None] * num_blocks
        self.index = {}
        self.caching = enable_caching
        self.num_handed_out = 0

    def num_free(self):
        return len(self.queue)

    def allocate(self, n):
        if n > len(self.queue):
            raise MemoryError("full")
        taken = [self.queue.pop(0) for _ in range(n)]
        self.evict(taken)
        for block in taken:
            self.counts[block] = 1
            self.num_handed_out += 1
        return taken

    def touch(self, block_ids):
        for block in block_ids:
            if self.counts[block] == 0:
                self.queue.remove(block)
            self.counts[block] += 1

    def free(self, block_ids):
        for block in block_ids:
            self.counts[block] -= 1
            if self.counts[block] == 0:
                self.queue.append(block)

    def cache(self, block_ids, hashes):
        if not self.caching:
            return
        for block, block_hash in zip(block_ids, hashes):
            if self.hashes[block] == block_hash:
                continue
            self.evict([block])
            if block_hash not in self.index:
                self.index[block_hash] = block
                self.hashes[block] = block_hash

    def evict(self, block_ids):
        for block in block_ids:
            block_hash = self.hashes[block]
            if block_hash is not None:
                del self.index[block_hash]
                self.hashes[block] = None

    def lookup(self, block_hash):
        return self.index.get(block_hash)

    def reset(self):
        if any(self.counts):
            return False
        self.evict(range(len(self.counts)))
        return True
'''


RIGHT_ENGINE = '''
class Engine:
    """First come, first served: nothing is shared, and blocks are taken for all that may come."""

    profile = {}

    def __init__(self, num_blocks, block_size, *, enable_caching=True):
        self.block_size = block_size
        self.free = list(range(num_blocks))
        self.waiting = []
        self.running = []
        self.num_admitted = 0

    def submit(self, request_id, tokens, *, max_new_tokens, priority=0, extra_keys=None):
        self.waiting.append(Request(request_id, list(tokens), max_new_tokens))

    def plan(self):
        self.admit()
        left, parts = 64, []
        for request in self.running:
            request.count = min(left, len(request.tokens) - request.num_computed)
            left -= request.count
            if request.count:
                parts.append(
                    {
                        "request": request.number,
                        "first": request.num_computed,
                        "count": request.count,
                        "blocks": [list(request.blocks)],
                    }
                )
        return {"compute": parts}

    def answer(self, tokens, drafts):
        outputs = []
        for request in list(self.running):
            request.num_computed += request.count
            for token in tokens.get(request.number, []):
                request.tokens.append(token)
                request.num_left -= 1
                has_ended = token == 0 or request.num_left == 0
                outputs.append((request.number, [token], has_ended))
                if has_ended:
                    self.running.remove(request)
                    self.free.extend(request.blocks)
        return outputs

    def num_free(self):
        return len(self.free)

    def admit(self):
        while self.waiting and len(self.running) < 8:
            request = self.waiting[0]
            count = -(-(len(request.tokens) + request.num_left) // self.block_size)
            if count > len(self.free):
                break
            self.waiting.pop(0)
            request.blocks = [self.free.pop() for _ in range(count)]
            self.running.append(request)
            self.num_admitted += 1


class Request:
    def __init__(self, number, tokens, num_left):
        self.number = number
        self.tokens = tokens
        self.num_left = num_left
        self.num_computed = self.count = 0
        self.blocks = []
'''


@pytest.fixture
def right_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The right engine, in a file of the present folder."""
    monkeypatch.chdir(tmp_path)
    Path("engine.py").write_text(RIGHT_ENGINE)
    return "engine.py:Engine"


@pytest.fixture
def right_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The target string of the pool, whose file stands in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT_POOL)
    return "right.py:Pool"


@pytest.fixture
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `quick` of a tenth of a second."""
    small = Budget(pool_chunks=1, chain_chunks=1, queue_chunks=1, shortest_states=100)
    monkeypatch.setitem(BUDGETS, "quick", small)
    monkeypatch.setitem(EXAMPLES, "quick", 3)
    monkeypatch.setattr("poolproof.power.stages.RUNS_PER_CHUNK", 20)
