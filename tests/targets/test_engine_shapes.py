"""Adapters of engines that are fetched, over small managers in the engines' shapes.

The managers here are right, but for the one fault that a test plants. The engines themselves are
driven where they have been fetched.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.catalogue import SOURCE_ENGINES
from poolproof.targets.gllm_manager import GLLM, GllmManager
from poolproof.targets.lightllm_manager import LIGHTLLM, LightllmManager
from poolproof.targets.lmdeploy_manager import LMDEPLOY, LmdeployManager
from poolproof.targets.load import load_target
from poolproof.targets.mini_vllm_manager import MINI_VLLM, MiniVllmManager
from poolproof.targets.parallax_manager import PARALLAX, ParallaxManager
from poolproof.targets.tokasaurus_manager import TOKASAURUS, TokasaurusManager
from poolproof.targets.torch_stand_in import StandInTensor


class GllmSequence:
    """gLLM's sequence: tokens, pages, how many tokens are computed and about to be."""

    def __init__(self, seq_id: int, token_ids: list[int], finish_tokens: list[int]) -> None:
        self.seq_id, self.token_ids, self.finish_tokens = seq_id, token_ids, finish_tokens
        self.page_table: list[int] = []
        self.computed_token_num = self.to_compute_token_num = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def seq_len(self) -> int:
        return self.computed_token_num + self.to_compute_token_num

    def append(self, token: int) -> None:
        self.token_ids.append(token)

    def preempt(self) -> None:
        self.computed_token_num, self.page_table = 0, []


class GllmMemory:
    """gLLM's manager; a page has its key once all of its tokens have a place in a step."""

    def __init__(self, num_pages: int, page_size: int, *, early: bool = False) -> None:
        self.page_size, self.early = page_size, early
        self.free_pages = list(range(num_pages))
        self.references = [0] * num_pages
        self.page_of: dict[tuple[int, ...], int] = {}

    def get_num_free_pages(self) -> int:
        return len(self.free_pages)

    def pre_allocate_computed_page(self, sequences: list[GllmSequence]) -> None:
        for sequence in sequences:
            for end in range(self.page_size, len(sequence), self.page_size):
                page = self.page_of.get(tuple(sequence.token_ids[:end]))
                if page is None:
                    break
                self._take(page)
                sequence.page_table.append(page)
                sequence.computed_token_num += self.page_size

    def pre_allocate_page(self, sequences: list[GllmSequence]) -> None:
        for sequence in sequences:
            while len(sequence.page_table) * self.page_size < sequence.seq_len:
                page = self.free_pages[0]
                self._take(page)
                self.page_of = {key: old for key, old in self.page_of.items() if old != page}
                sequence.page_table.append(page)
            first = sequence.computed_token_num // self.page_size
            self._publish(sequence, first, len(sequence) if self.early else sequence.seq_len)

    def register_decode_boundary(self, sequence: GllmSequence, position: int) -> None:
        assert position == len(sequence) - 1

    def free(self, sequence: GllmSequence) -> None:
        for page in sequence.page_table:
            self.references[page] -= 1
            if not self.references[page]:
                self.free_pages.append(page)

    def _take(self, page: int) -> None:
        if not self.references[page]:
            self.free_pages.remove(page)
        self.references[page] += 1

    def _publish(self, sequence: GllmSequence, first: int, end: int) -> None:
        for number, page in enumerate(sequence.page_table, start=1):
            if first < number <= end // self.page_size:
                self.page_of[tuple(sequence.token_ids[: number * self.page_size])] = page


class MiniVllmRequest:
    """mini-vllm's request."""

    WAITING, RUNNING, FINISHED = range(3)

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.blocks = list(tokens), []
        self.state, self.num_cached_tokens = self.WAITING, 0

    def __len__(self) -> int:
        return len(self.tokens)

    def append_output_token(self, token: int) -> None:
        self.tokens.append(token)


class MiniVllmBlocks:
    """mini-vllm's manager; with `stale` a recycled block is still found under its old key."""

    def __init__(
        self, num_blocks: int, block_size: int, *, caching: bool, stale: bool = False
    ) -> None:
        self.block_size, self.caching, self.stale = block_size, caching, stale
        self.free_block_ids = list(range(num_blocks))
        self.block_table = [SimpleNamespace(refcount=0, tokens=[]) for _ in range(num_blocks)]
        self.block_of: dict[tuple[int, ...], int] = {}

    def can_allocate_new_block(self, request: MiniVllmRequest) -> bool:
        return self._missing(request) <= len(self.free_block_ids)

    def allocate_blocks_for_prefill(self, request: MiniVllmRequest) -> None:
        is_hit = self.caching
        for first in range(0, len(request), self.block_size):
            end = first + self.block_size
            block = self.block_of.get(tuple(request.tokens[:end]))
            same = block is not None and self.block_table[block].tokens == request.tokens[first:end]
            is_hit = is_hit and same
            if is_hit:
                request.num_cached_tokens += self.block_size
            self._take(block if is_hit else None, request)
            if end <= len(request):
                self._publish(request, end)

    def cache_block_if_needed(self, request: MiniVllmRequest) -> None:
        if len(request) % self.block_size == 0:
            self._publish(request, len(request))

    def allocate_block_for_decode(self, request: MiniVllmRequest) -> None:
        if self._missing(request):
            self._take(None, request)

    def deallocate(self, request: MiniVllmRequest) -> None:
        for block in reversed(request.blocks):
            self.block_table[block].refcount -= 1
            if not self.block_table[block].refcount:
                self.free_block_ids.append(block)
        request.blocks, request.num_cached_tokens = [], 0

    def _missing(self, request: MiniVllmRequest) -> int:
        return -(-len(request) // self.block_size) - len(request.blocks)

    def _take(self, block: int | None, request: MiniVllmRequest) -> None:
        if block is None:
            block = self.free_block_ids[-1]
            self.block_table[block].tokens = []
            if not self.stale:
                self.block_of = {key: old for key, old in self.block_of.items() if old != block}
        if not self.block_table[block].refcount:
            self.free_block_ids.remove(block)
        self.block_table[block].refcount += 1
        request.blocks.append(block)

    def _publish(self, request: MiniVllmRequest, end: int) -> None:
        block = request.blocks[end // self.block_size - 1]
        self.block_table[block].tokens = request.tokens[end - self.block_size : end]
        self.block_of[tuple(request.tokens[:end])] = block


def findings(engine, make, runs=60, **rows):
    """What a campaign finds under the engine's own profile, or under one with other rows."""
    profile = ManagerProfile.from_mapping({**engine.rows, **rows})
    campaign = ManagerCampaign(engine.name, make, profile, engine.block_size)
    traces = [campaign.run(number).trace for number in range(runs)]
    return {trace.violation.invariant for trace in traces if trace is not None}


def gllm(**bug):
    def make(num_blocks, enable_caching):
        memory = GllmMemory(num_blocks, 4, **bug)
        return GllmManager(memory, GllmSequence, enable_caching=enable_caching)

    return make


def test_a_right_manager_in_the_shape_of_gllm_holds():
    assert findings(GLLM, gllm()) == set()


def test_a_key_for_a_page_whose_chunk_ends_inside_it_is_found():
    assert findings(GLLM, gllm(early=True))


def mini_vllm(**bug):
    def make(num_blocks, enable_caching):
        blocks = MiniVllmBlocks(num_blocks, 4, caching=enable_caching, **bug)
        return MiniVllmManager(blocks, MiniVllmRequest)

    return make


def test_a_right_manager_in_the_shape_of_mini_vllm_holds():
    assert findings(MINI_VLLM, mini_vllm()) == set()


def test_a_recycled_block_that_is_still_found_is_found_out():
    assert "DATA" in findings(MINI_VLLM, mini_vllm(stale=True), 400)


class LightllmMemory:
    """LightLLM's free slots."""

    def __init__(self, size: int) -> None:
        self.slots = list(range(size))

    @property
    def can_use_mem_size(self) -> int:
        return len(self.slots)

    def alloc(self, need_size: int) -> StandInTensor:
        taken, self.slots = self.slots[:need_size], self.slots[need_size:]
        return StandInTensor(taken)

    def free(self, slots: StandInTensor) -> None:
        self.slots += slots.tolist()


class LightllmNode:
    """A prefix of the cache; whoever uses it holds it."""

    def __init__(self, slots: list[int]) -> None:
        self.slots = slots
        self.holders = 0

    @property
    def node_prefix_total_len(self) -> int:
        return len(self.slots)


class LightllmCache:
    """LightLLM's cache with a node for each prefix; a fault forgets who holds them."""

    def __init__(self, memory: LightllmMemory, *, forgets_holders: bool = False) -> None:
        self.memory, self.forgets_holders = memory, forgets_holders
        self.nodes: dict[tuple[int, ...], LightllmNode] = {}

    def match_prefix(self, key: StandInTensor, update_refs: bool) -> tuple:
        assert update_refs
        tokens = key.tolist()
        for end in range(len(tokens), 0, -1):
            node = self.nodes.get(tuple(tokens[:end]))
            if node is not None:
                node.holders += not self.forgets_holders
                return node, end, StandInTensor(node.slots)
        return None, 0, None

    def insert(self, key: StandInTensor, value: StandInTensor) -> int:
        tokens, slots = key.tolist(), value.tolist()
        known, kept = 0, []
        for end in range(1, len(tokens) + 1):
            node = self.nodes.get(tuple(tokens[:end]))
            kept.append(slots[end - 1] if node is None else node.slots[-1])
            known += node is not None
            self.nodes.setdefault(tuple(tokens[:end]), LightllmNode(list(kept)))
        return known

    def dec_node_ref_counter(self, node: LightllmNode) -> None:
        node.holders -= not self.forgets_holders

    def get_refed_tokens_num(self) -> int:
        return len({slot for node in self.nodes.values() if node.holders for slot in node.slots})

    def get_tree_total_tokens_num(self) -> int:
        return len(self.nodes)

    def free_radix_cache_to_get_enough_token(self, need_token_num: int) -> None:
        while need_token_num > self.memory.can_use_mem_size:
            held = {slot for node in self.nodes.values() if node.holders for slot in node.slots}
            inner = {key[:-1] for key in self.nodes}
            leaf = next(
                key
                for key, node in self.nodes.items()
                if key not in inner and node.slots[-1] not in held
            )
            self.memory.free(StandInTensor(self.nodes.pop(leaf).slots[-1:]))


def lightllm(**bug):
    def make(num_blocks, enable_caching):
        memory = LightllmMemory(num_blocks)
        cache = LightllmCache(memory, **bug) if enable_caching else None
        return LightllmManager(cache, memory)

    return make


def test_a_right_manager_in_the_shape_of_lightllm_holds():
    assert findings(LIGHTLLM, lightllm()) == set()


def test_slots_that_are_evicted_under_their_reader_are_found():
    assert findings(LIGHTLLM, lightllm(forgets_holders=True), 200)


class LmdeploySequence:
    """LMDeploy's sequence; what it holds is in `logical_blocks`, and `state.free` gives it back."""

    def __init__(self, blocks: LmdeployBlocks, adapter_name: object) -> None:
        self.blocks, self.adapter_name = blocks, adapter_name
        self.state = self.logical_blocks = self
        self.tokens: list[int] = []
        self.images: list = []
        self.held: list[int] = []
        self.num_history_ids, self.kv_token_limit = 0, None

    @property
    def num_all_ids(self) -> int:
        return len(self.tokens)

    def get_real_blocks(self) -> StandInTensor:
        return StandInTensor(self.held)

    def update_token_ids(self, token_ids, multimodals=None, mode="inputs") -> None:
        if mode == "decode":
            self.num_history_ids = len(self.tokens)
        self.tokens += token_ids
        self.images += (multimodals or {}).get("image", ())

    def set_step(self, step: int) -> None:
        self.num_history_ids = step

    def free(self) -> None:
        self.blocks.give_back(self.held)
        self.held, self.num_history_ids, self.kv_token_limit = [], 0, None

    def key(self, end: int) -> tuple:
        """What the KV up to a position is computed from."""
        images = [(i.content_hash, i.start, i.end) for i in self.images if i.start < end]
        return (self.adapter_name, tuple(self.tokens[:end]), tuple(images))


class LmdeployBlocks:
    """LMDeploy's block manager, which is its own allocator here."""

    def __init__(self, num_blocks: int) -> None:
        self.allocator = self
        self.free_blocks = list(range(num_blocks))
        self.references = [0] * num_blocks

    def get_ref_count(self, blocks: slice) -> StandInTensor:
        return StandInTensor(self.references[blocks])

    def get_num_free_gpu_blocks(self) -> int:
        return len(self.free_blocks)

    def num_required_blocks(self, sequence: LmdeploySequence, prealloc_size: int = 0) -> int:
        end = sequence.kv_token_limit or sequence.num_all_ids
        return max(0, -(-(end + prealloc_size) // 4) - len(sequence.held))

    def allocate(self, sequence: LmdeploySequence) -> None:
        for _ in range(self.num_required_blocks(sequence)):
            self.references[self.free_blocks[0]] = 1
            sequence.held.append(self.free_blocks.pop(0))

    def get_block_table(self, sequence: LmdeploySequence) -> StandInTensor:
        return sequence.get_real_blocks()

    def give_back(self, blocks: list[int]) -> None:
        for block in blocks:
            self.references[block] -= 1
            if not self.references[block]:
                self.free_blocks.insert(0, block)


class LmdeployTrie:
    """LMDeploy's trie, which holds a block for each prefix; with a fault it forgets adapters."""

    def __init__(self, blocks: LmdeployBlocks, *, caching: bool, one_root: bool = False) -> None:
        self.blocks, self.caching, self.one_root = blocks, caching, one_root
        self.block_of: dict[tuple, int] = {}

    def match(self, sequence: LmdeploySequence) -> None:
        sequence.num_history_ids = 0
        for end in range(4, sequence.num_all_ids, 4):
            block = self.block_of.get(self._key(sequence, end)) if self.caching else None
            if block is None:
                break
            self.blocks.references[block] += 1
            sequence.held.append(block)
            sequence.num_history_ids = end

    def allocate(self, sequence: LmdeploySequence) -> None:
        end = sequence.kv_token_limit or sequence.num_all_ids
        for entry in range(end // 4 if self.caching else 0):
            key, mine = self._key(sequence, entry * 4 + 4), sequence.held[entry]
            block = self.block_of.get(key)
            if block is None:
                self.block_of[key] = mine
                self.blocks.references[mine] += 1
            elif block != mine:
                self.blocks.references[block] += 1
                sequence.held[entry] = block
                self.blocks.give_back([mine])

    def evict(self, max_num_blocks: int) -> None:
        for _ in range(max_num_blocks):
            lone = [key for key, block in self.block_of.items() if self._is_lone(block)]
            if lone:
                self.blocks.give_back([self.block_of.pop(max(lone, key=lambda key: len(key[1])))])

    def _is_lone(self, block: int) -> bool:
        return self.blocks.references[block] == 1

    def _key(self, sequence: LmdeploySequence, end: int) -> tuple:
        key = sequence.key(end)
        return (None, *key[1:]) if self.one_root else key


def lmdeploy(**bug):
    def make(num_blocks, enable_caching):
        blocks = LmdeployBlocks(num_blocks)
        trie = LmdeployTrie(blocks, caching=enable_caching, **bug)

        def new_sequence(_seq_id, adapter_name):
            return LmdeploySequence(blocks, adapter_name)

        return LmdeployManager(blocks, trie, new_sequence, "decode", enable_caching=enable_caching)

    return make


def test_a_right_manager_in_the_shape_of_lmdeploy_holds():
    assert findings(LMDEPLOY, lmdeploy()) == set()


def test_a_block_that_is_merged_while_its_last_token_is_computed_is_a_bug_under_other_rows():
    assert "I2" in findings(LMDEPLOY, lmdeploy(), tables="append-only")


def test_a_shared_block_that_is_written_again_is_a_bug_under_other_rows():
    assert "I2" in findings(LMDEPLOY, lmdeploy(), index="exact")


def test_a_prefix_that_is_found_under_another_adapter_is_found_out():
    assert "DATA" in findings(LMDEPLOY, lmdeploy(one_root=True))


class NoSpaceError(ValueError):
    """What Tokasaurus's allocator raises."""


class TokasaurusAllocator:
    """Tokasaurus's allocator over an index of whole prefixes; with a fault, of single pages."""

    page_size = 4

    def __init__(self, num_blocks: int, *, forgets_prefix: bool = False) -> None:
        self.forgets_prefix = forgets_prefix
        self.all_blocks = [SimpleNamespace(seq_ids=set()) for _ in range(num_blocks)]
        self.block_of: dict[tuple[int, ...], int] = {}

    @property
    def num_free_blocks(self) -> int:
        return sum(not block.seq_ids for block in self.all_blocks)

    def num_blocks_needed(self, kv_indices: list[int], length: int) -> int:
        return max(0, -(-length // self.page_size) - len(kv_indices))

    def allocate_with_prefix_match(
        self, seq_id: str, prompt_ids: list[int]
    ) -> tuple[list[int], int]:
        cached = []
        for end in range(4, len(prompt_ids), 4):
            block = self.block_of.get(self._key(prompt_ids, end))
            if block is None:
                break
            cached.append(block)
        missing = self.num_blocks_needed(cached, len(prompt_ids))
        if missing + sum(not self.all_blocks[b].seq_ids for b in cached) > self.num_free_blocks:
            raise NoSpaceError
        for block in cached:
            self.all_blocks[block].seq_ids.add(seq_id)
        table = cached + self.allocate_up_to_length(seq_id, cached, len(prompt_ids))
        self._publish(prompt_ids, table)
        return table, len(cached) * 4

    def allocate_up_to_length(self, seq_id: str, kv_indices: list[int], length: int) -> list[int]:
        free = [number for number, block in enumerate(self.all_blocks) if not block.seq_ids]
        taken = free[: self.num_blocks_needed(kv_indices, length)]
        for block in taken:
            self.all_blocks[block].seq_ids.add(seq_id)
        self.block_of = {key: block for key, block in self.block_of.items() if block not in taken}
        return taken

    def free_and_update(self, seq_id: str, kv_indices: list[int], token_ids: list[int]) -> None:
        for block in kv_indices:
            self.all_blocks[block].seq_ids.remove(seq_id)
        self._publish(token_ids, kv_indices)

    def _publish(self, tokens: list[int], table: list[int]) -> None:
        for number, block in enumerate(table, start=1):
            if number * 4 <= len(tokens):
                self.block_of.setdefault(self._key(tokens, number * 4), block)

    def _key(self, tokens: list[int], end: int) -> tuple[int, ...]:
        return tuple(tokens[end - 4 if self.forgets_prefix else 0 : end])


def tokasaurus(**bug):
    def make(num_blocks, enable_caching):
        allocator = TokasaurusAllocator(num_blocks, **bug)
        return TokasaurusManager(allocator, NoSpaceError, enable_caching=enable_caching)

    return make


def test_a_right_allocator_in_the_shape_of_tokasaurus_holds():
    assert findings(TOKASAURUS, tokasaurus()) == set()


def test_a_page_that_is_found_behind_another_prefix_is_found_out():
    assert "DATA" in findings(TOKASAURUS, tokasaurus(forgets_prefix=True))


class ParallaxCache:
    """Parallax's manager, which is its own allocator and tree here.

    With `loses_locks` a request that finds its block in the tree already releases the lock of
    another.
    """

    block_size = 4

    def __init__(self, num_blocks: int, *, caching: bool, loses_locks: bool = False) -> None:
        self.loses_locks = loses_locks
        self.allocator = self
        self.root = SimpleNamespace(block_id=None, lock_ref=1, children={}, parent=None)
        self.prefix_cache = self if caching else None
        self.free_blocks = list(range(num_blocks))
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}
        self.tokens: dict[str, list[int]] = {}
        self.nodes: dict[str, list[SimpleNamespace]] = {}

    def get_num_free_blocks(self) -> int:
        return len(self.free_blocks)

    def get_block_table(self, name: str) -> list[int]:
        return self.tables.get(name, [])

    def get_context_length(self, name: str) -> int:
        return self.lengths.get(name, 0)

    def allocate_request(self, name: str, length: int, token_ids: list[int]) -> tuple[bool, int]:
        path, node = [], self.root
        for first in range(0, len(token_ids) - 4, 4):
            node = node.children.get(tuple(token_ids[first : first + 4]))
            if node is None or self.prefix_cache is None:
                break
            path.append(node)
        for each in path:
            each.lock_ref += 1
        missing = -(-length // 4) - len(path)
        if not self._make_room(missing):
            for each in path:
                each.lock_ref -= 1
            return False, 0
        taken = [self.free_blocks.pop() for _ in range(missing)]
        self.tables[name] = [each.block_id for each in path] + taken
        self.lengths[name], self.tokens[name], self.nodes[name] = length, list(token_ids), path
        return True, len(path) * 4

    def append_slot(self, name: str) -> bool:
        if self.lengths[name] % 4 == 0:
            if not self._make_room(1):
                return False
            self.tables[name].append(self.free_blocks.pop())
        self.lengths[name] += 1
        return True

    def update_request_tokens(self, name: str, tokens: list[int]) -> None:
        self.tokens[name] += tokens

    def insert_full_blocks_to_cache(self, name: str) -> None:
        path = self.nodes[name]
        for entry in range(len(path), self.lengths[name] // 4 if self.prefix_cache else 0):
            parent = path[-1] if path else self.root
            key = tuple(self.tokens[name][entry * 4 : entry * 4 + 4])
            found = parent.children.get(key)
            new = SimpleNamespace(
                block_id=self.tables[name][entry], lock_ref=0, children={}, parent=(parent, key)
            )
            node = parent.children.setdefault(key, new)
            node.lock_ref += not (self.loses_locks and found is not None)
            path.append(node)

    def release_request(self, name: str) -> None:
        nodes = self.nodes.pop(name, [])
        for node in nodes:
            node.lock_ref -= 1
        cached = {node.block_id for node in nodes}
        self.free_blocks += [b for b in self.tables.pop(name, []) if b not in cached]

    def _make_room(self, num_blocks: int) -> bool:
        while num_blocks > len(self.free_blocks):
            nodes, leaves = [self.root], []
            while nodes:
                node = nodes.pop()
                nodes += node.children.values()
                leaves += [node] if node.parent and not (node.lock_ref or node.children) else []
            if not leaves:
                return False
            parent, key = leaves[0].parent
            self.free_blocks.append(parent.children.pop(key).block_id)
        return True


def parallax(**bug):
    def make(num_blocks, enable_caching):
        cache = ParallaxCache(num_blocks, caching=enable_caching, **bug)
        return ParallaxManager(cache, enable_caching=enable_caching)

    return make


def test_a_right_manager_in_the_shape_of_parallax_holds():
    assert findings(PARALLAX, parallax()) == set()


def test_a_lock_that_is_lost_is_found():
    assert findings(PARALLAX, parallax(loses_locks=True))


@pytest.mark.deep
@pytest.mark.parametrize("name", SOURCE_ENGINES)
def test_the_engine_itself_gets_the_verdict_that_is_true(name):
    refused = {
        "exllamav3": "DATA",
        "gllm": "DATA",
        "mini-sglang": "OWN",
        "mini-vllm": "DATA",
        "parallax": "OWN",
    }
    try:
        target = load_target(name)
    except TargetError as error:
        pytest.skip(str(error))
    found = findings(SOURCE_ENGINES[name], target.make, 400)
    assert refused[name] in found if name in refused else found == set()
