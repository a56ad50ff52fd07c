"""vLLM, hits inside a block: a copy reads attention KV that its own step computes only later.

Usage: python reproduce.py      in an environment that has vLLM; no network, no GPU

vLLM's own `KVCacheManager` serves a model of attention and recurrent layers, with hashes of 2
tokens in blocks of 4. It is called as vLLM's scheduler calls it. What stands in a slot of
attention is an exact number that names the prefix it was computed for, or that nobody wrote it. A
step copies blocks as it is told, then computes, then reads.
"""

import os
import sys

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
A, P = 1_000_003, (1 << 61) - 1
BLOCK, HASHED, BLOCKS, LONGEST = 4, 2, 17, 64
PROMPT = [10, 11, 12, 13, 14, 15, 16]


def name_of(tokens):
    """The number of what is computed at the end of a prefix."""
    number = 0
    for token in tokens:
        number = (A * number + token + 1) % P
    return number


class Server:
    """vLLM's manager, the slots of attention, and what the next step does."""

    def __init__(self):
        import torch
        from vllm.utils.hashing import sha256
        from vllm.v1.core import single_type_kv_cache_manager as managers
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
            MambaSpec,
        )

        if hasattr(managers, "register_all_kvcache_specs"):
            managers.register_all_kvcache_specs(None)
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(HASHED, sha256)
        attention = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        states = MambaSpec(
            block_size=BLOCK, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align"
        )
        groups = [KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["states"], states)]
        cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)
        cache.prefix_cache_retention_interval = None
        self.manager = KVCacheManager(
            cache,
            max_model_len=LONGEST,
            scheduler_block_size=BLOCK,
            hash_block_size=HASHED,
            enable_caching=True,
        )
        self.slots = [[0] * BLOCK for _ in range(BLOCKS)]
        self.copies, self.scheduled = [], {}

    def request(self, name, prompt):
        """A request of vLLM's own class."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        return Request(
            request_id=name,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=LONGEST),
            pooling_params=None,
            block_hasher=self.hasher,
        )

    def admit(self, request, count):
        """A request enters the next step, with so many tokens behind what is cached of it."""
        from vllm.v1.request import RequestStatus

        blocks, cached, *junction = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = junction[0] if junction else 0
        new = self.manager.allocate_slots(request, count, cached, blocks)
        assert new is not None, f"no room for {request.request_id}"
        request.status, request.num_computed_tokens = RequestStatus.RUNNING, cached
        self.enters(request, count)
        return cached

    def grow(self, request, count):
        """A running request computes so many tokens in the next step."""
        assert self.manager.allocate_slots(request, count) is not None
        self.enters(request, count)

    def enters(self, request, count):
        """It is in the next step, and blocks are to be copied for it."""
        self.scheduled[request] = count
        copies, held = self.manager.take_kv_cache_block_copies()
        self.copies += [(copy.src_block_id, copy.dst_block_id) for copy in copies]
        self.manager.block_pool.free_blocks(held)

    def step(self):
        """The worker: copies, then writes, then reads. What was read wrongly is returned."""
        for source, target in self.copies:
            self.slots[target] = list(self.slots[source])
        for request, count in self.scheduled.items():
            for position in range(request.num_computed_tokens, request.num_computed_tokens + count):
                block, slot = self.place(request, position)
                self.slots[block][slot] = name_of(request.all_token_ids[: position + 1])
        wrong = []
        for request, count in self.scheduled.items():
            for position in range(request.num_computed_tokens):
                block, slot = self.place(request, position)
                wanted = name_of(request.all_token_ids[: position + 1])
                if self.slots[block][slot] != wanted:
                    wrong.append((request.request_id, position, wanted, self.slots[block][slot]))
            request.num_computed_tokens += count
        self.copies, self.scheduled = [], {}
        self.manager.new_step_starts()
        return wrong

    def place(self, request, position):
        """The block and slot of attention of a position."""
        blocks = self.manager.get_block_ids(request.request_id)[0]
        return blocks[position // BLOCK], position % BLOCK


def main():
    """The first position that is read wrongly, expected and actual; 1 where there is one."""
    import vllm
    from vllm.v1.request import RequestStatus

    server = Server()
    first = server.request("first", PROMPT)
    server.admit(first, 6)  # up to its prompt's last hash: there its state is kept
    server.step()
    server.grow(first, 1)
    server.step()
    for token in (30, 31, 32, 33, 34):
        first.append_output_token_ids([token])
        server.grow(first, 1)
        server.step()
    server.manager.free(first)  # it is preempted
    first.status, first.num_computed_tokens = RequestStatus.PREEMPTED, 0
    # Somebody with the same first 6 tokens uses the state, which is younger than attention now.
    server.admit(server.request("young", [*PROMPT[:6], 20, 21, 22]), 2)
    server.step()
    others = [server.request(f"other {number}", [50 + number]) for number in range(6)]
    for each in others:
        server.admit(each, 1)
    server.step()
    for each in others:
        server.manager.free(each)
    cached = server.admit(first, 8)
    second = server.request("second", PROMPT)
    hit = server.admit(second, 1)
    copied = server.copies[-1:]
    wrong = server.step()
    print(
        f"vLLM {vllm.__version__}: 'first' comes back and computes tokens {cached} to {cached + 7}"
    )
    print(f"  'second' has the same prompt of 7 tokens; {hit} are cached, copies {copied}")
    if not wrong:
        print("  all of them were computed for it")
        return 0
    name, position, wanted, found = wrong[0]
    print(f"  {name!r} reads position {position}")
    print(f"    expected {wanted:>20}  {position + 1} tokens of the prompt")
    print(f"    actual   {found:>20}  {meaning(found)}")
    return 1


def meaning(number):
    """Whose KV a number is."""
    if number == 0:
        return "nobody has written there"
    for token in range(50, 56):
        if number == name_of([token]):
            return f"another request's prompt, [{token}]"
    return "another prefix"


if __name__ == "__main__":
    sys.exit(main())
