"""LMCache's LFU policy loses keys that stay in the cache, and names keys that are not there yet.

Usage: python reproduce.py [FOLDER]

Needs PyTorch and `pip install lmcache`, here or with `--target FOLDER`; no GPU, no model. Exit
status 1 if one of the faults shows.
"""

import asyncio
import os
import sys
import tempfile

import torch

sys.path.extend(sys.argv[1:2])

from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

LAYERS, TOKENS, NUMBERS = 2, 4, 512
SHAPE, DTYPE = torch.Size([TOKENS, 2, NUMBERS]), torch.float16
BYTES = SHAPE.numel() * DTYPE.itemsize
GIB = 1024**3


def key_of(number):
    return CacheEngineKey("model", 1, 0, number, DTYPE)


def backend_for(num_objects, **options):
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=TOKENS, local_cpu=True, max_local_cpu_size=num_objects * BYTES / GIB, **options
    )
    metadata = LMCacheMetadata(
        model_name="model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=DTYPE, kv_shape=(LAYERS, 2, TOKENS, 1, NUMBERS), chunk_size=TOKENS,
    )  # fmt: skip
    return config, metadata, LocalCPUBackend(config, metadata, "cpu")


def stored_by_layers(backend, numbers):
    """`store_layer` of so many chunks: room for all, then puts; how many there was room for."""
    rows = []
    for number in numbers:
        objects = backend.batched_allocate(SHAPE, DTYPE, batch_size=LAYERS, busy_loop=False)
        if objects is None:
            break
        rows.append((key_of(number).split_layers(LAYERS), objects))
    for keys, objects in rows:
        for key, each in zip(keys, objects, strict=True):
            backend.submit_put_task(key, each)
            each.ref_count_down()
    return len(rows)


def layers():
    """A cache that is full makes room once, and then never again."""
    config, _, backend = backend_for(2 * LAYERS, use_layerwise=True, cache_policy="LFU")
    PinMonitor.GetOrCreate(config)
    print("LFU with use_layerwise: room for two chunks. Two are stored, then two others.")
    first, then = stored_by_layers(backend, [0, 1]), stored_by_layers(backend, [2, 3])
    print(f"  expected: 2 and 2, since nobody holds the first\n  happens:  {first} and {then}")
    print("A lookup pins chunk 1, which is still there, and touches it.")
    found = backend.batched_contains(key_of(1).split_layers(LAYERS), pin=True)
    try:
        backend.touch_cache()
    except KeyError:
        print(f"  expected: nothing\n  happens:  {found} objects are found, then KeyError")
    return then != first


def disk():
    """A chunk is put on a full disk while another is still being written."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"local_disk": folder, "max_local_disk_size": 2 * BYTES / GIB}
        config, metadata, host = backend_for(8, cache_policy="LFU", **options)
        loop = asyncio.new_event_loop()  # not run: what is to be written waits
        disk_backend = LocalDiskBackend(config, loop, host, "cpu", None, metadata)
        print("LFU with local_disk: room for two chunks. One is there and was read, one is being")
        print("written, a third is put.")
        try:
            for number in range(3):
                each = host.allocate(SHAPE, DTYPE)
                if number == 1:
                    written(disk_backend, loop)
                    disk_backend.get_blocking(key_of(0))
                disk_backend.submit_put_task(key_of(number), each)
        except KeyError as error:
            name = type(error).__name__
            print(f"  expected: the one that is there is evicted\n  happens:  {name}")
            return True
        print("  the third chunk was taken")
        return False


def written(backend, loop):
    """Let the disk worker finish what waits."""
    for _ in range(1000):
        loop.run_until_complete(asyncio.sleep(0.01))
        if not backend.disk_worker.put_tasks:
            return


if __name__ == "__main__":
    shows = [layers(), disk()]
    sys.stdout.flush()
    os._exit(1 if any(shows) else 0)  # the disk worker's threads would be waited for
