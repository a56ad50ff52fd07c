"""LMCache under vLLM: what a prompt is looked up by has neither the adapter nor the salt.

Usage: python reproduce.py [FOLDER] ...

Needs vLLM for the CPU and `pip install lmcache`, here or in folders; no GPU and no model.
It asks the connector's own scheduler side about real requests of vLLM, and makes the keys of what
the connector looks up. Exit status 1 if two requests whose KV differs have one key.
"""

import os
import sys
from importlib.metadata import distributions
from types import SimpleNamespace

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")
sys.path.extend(sys.argv[1:])

import lmcache

if not hasattr(lmcache, "device_ops"):  # compiled for a device, and not called here
    lmcache.device_ops = SimpleNamespace()

import torch
import vllm
from lmcache.integration.vllm.vllm_v1_adapter import LMCacheConnectorV1Impl
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.token_database import ChunkedTokenDatabase
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.v1.request import Request

CHUNK, PROMPT = 4, [1, 2, 3, 4, 5]


class LookupClient:
    """Keeps what it is asked for, and has nothing."""

    def lookup_cache(self, **_asked):
        return -1

    def lookup(self, token_ids, request_configs=None, **_named):
        self.asked = list(token_ids), request_configs
        return 0


def database():
    """What makes keys of tokens, as the engine has it."""
    config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK)
    metadata = LMCacheMetadata(
        model_name="model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=torch.float16, kv_shape=(1, 2, CHUNK, 1, 64), chunk_size=CHUNK,
    )  # fmt: skip
    return ChunkedTokenDatabase(config, metadata)


def key_of(keys, **options):
    """The key of the first chunk of a request with the prompt."""
    connector = object.__new__(LMCacheConnectorV1Impl)
    connector.kv_role, client = "kv_both", LookupClient()
    connector._manager = SimpleNamespace(lookup_client=client)
    connector._requests_priority, connector.skip_last_n_tokens = {}, 0
    connector.load_specs, connector._max_tokens_per_load = {}, 0
    connector.config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK)
    connector.async_loading = False
    request = Request(
        request_id="request",
        prompt_token_ids=PROMPT,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        **options,
    )
    connector.get_num_new_matched_tokens(request, 0)
    tokens, configs = client.asked
    (_, _, key), *_ = keys.process_tokens(tokens=tokens, request_configs=configs)
    return key


def main():
    """Print the keys of one prompt with an adapter, with a salt, and with neither."""
    keys = database()
    plain = key_of(keys)
    adapter = key_of(keys, lora_request=LoRARequest("adapter", 1, "/adapter"))
    salted = key_of(keys, cache_salt="salt")
    (version,) = {each.version for each in distributions() if each.name == "lmcache"}
    print(
        f"LMCache {version} under vLLM {vllm.__version__}: the key of the tokens {PROMPT[:CHUNK]}"
    )
    print(f"  of the model alone    {plain.chunk_hash & 0xFFFFFFFF:08x} {plain.tags}")
    print(f"  under an adapter      {adapter.chunk_hash & 0xFFFFFFFF:08x} {adapter.tags}")
    print(f"  with a cache_salt     {salted.chunk_hash & 0xFFFFFFFF:08x} {salted.tags}")
    print("expected: three keys")
    number = len({plain, adapter, salted})
    print(f"happens:  {number}")
    return int(number != 3)


if __name__ == "__main__":
    sys.exit(main())
