"""The adapter of docs/certify-an-engine.md does what the page says, over such an engine."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import indent
from types import ModuleType

import pytest

from poolproof.cli.command_line import main
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign

PAGE = Path(__file__).resolve().parents[2] / "docs" / "certify-an-engine.md"


class Request:
    """A request of mini-vllm."""

    WAITING, RUNNING, FINISHED = range(3)

    def __init__(self, tokens):
        self.tokens, self.blocks, self.state = list(tokens), [], self.WAITING
        self.num_cached_tokens = 0

    def __len__(self):
        return len(self.tokens)

    def append_output_token(self, token):
        self.tokens.append(token)


class KVCacheBlockManager:
    """mini-vllm's manager of blocks; while `stale`, recycled blocks stay in the index."""

    stale = False

    def __init__(self, capacity, block_size, support_prefix_cache=False):
        self.block_size, self.caches = block_size, support_prefix_cache
        self.free_block_ids = list(range(capacity))
        self.count = [0] * capacity
        self.tokens_of, self.index = {}, {}

    def can_allocate_new_block(self, request):
        return self._missing(request) <= len(self.free_block_ids)

    def allocate_blocks_for_prefill(self, request):
        assert request.state == Request.WAITING
        is_hit = self.caches
        for end in range(self.block_size, len(request) + self.block_size, self.block_size):
            tokens = tuple(request.tokens[:end])
            block = self.index.get(tokens)
            is_hit = is_hit and self.tokens_of.get(block) == tokens[-self.block_size :]
            request.num_cached_tokens += self.block_size * is_hit
            self._take(request, block if is_hit else None)
            self._publish(request, end)

    def cache_block_if_needed(self, request):
        self._publish(request, len(request))

    def allocate_block_for_decode(self, request):
        assert request.state == Request.RUNNING
        if self._missing(request):
            self._take(request, None)

    def deallocate(self, request):
        for block in reversed(request.blocks):
            self.count[block] -= 1
            if not self.count[block]:
                self.free_block_ids.append(block)
        request.blocks = []

    def _missing(self, request):
        return -(-len(request) // self.block_size) - len(request.blocks)

    def _take(self, request, block):
        if block is None:
            block = self.free_block_ids[-1]
            if not self.stale:
                self.index = {key: old for key, old in self.index.items() if old != block}
        if not self.count[block]:
            self.free_block_ids.remove(block)
        self.count[block] += 1
        request.blocks.append(block)

    def _publish(self, request, end):
        if self.caches and end <= len(request) and end % self.block_size == 0:
            block = request.blocks[end // self.block_size - 1]
            self.tokens_of[block] = tuple(request.tokens[end - self.block_size : end])
            self.index[tuple(request.tokens[:end])] = block


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The module that somebody has who did what the page says, word by word."""
    parts = {
        "minivllm": {},
        "minivllm.engine": {},
        "minivllm.kvcache": {},
        "minivllm.engine.request": {"Request": Request},
        "minivllm.kvcache.block_manager": {"KVCacheBlockManager": KVCacheBlockManager},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    path = tmp_path / "mini_vllm_target.py"
    main(["new", "--manager", str(path)], standalone_mode=False)
    adapter, rows, as_served = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    top = path.read_text().partition("\nclass Manager:")[0]
    first = re.search(r"`(FIRST_FOLDED = .*?)`", PAGE.read_text())[1]
    top = re.sub(r"FIRST_FOLDED = 2\*\*31.*", first, top)
    stated = adapter.replace("    profile = {}\n", indent(rows, "    "))
    path.write_text(f"{top}\n{stated}\n\n{as_served}")
    spec = spec_from_file_location("mini_vllm_target", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def invariants_broken(cls):
    profile = ManagerProfile.from_mapping(cls.profile)
    campaign = ManagerCampaign("x", lambda n, on: cls(n, 4, enable_caching=on), profile, 4)
    traces = [campaign.run(number).trace for number in range(200)]
    return {trace.violation.invariant for trace in traces if trace is not None}


@pytest.mark.parametrize("name", ["Manager", "AsServed"])
def test_the_adapter_holds_over_an_engine_that_forgets_recycled_blocks(written, name):
    assert invariants_broken(getattr(written, name)) == set()


def test_the_adapter_shows_what_is_wrong_in_one_that_does_not(written, monkeypatch):
    monkeypatch.setattr(KVCacheBlockManager, "stale", True)
    assert "DATA" in invariants_broken(written.Manager)
    assert invariants_broken(written.AsServed) == set()
