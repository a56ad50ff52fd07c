"""A retrieve from LMCache's disk backend waits for pins that nobody will take away.

Usage: python reproduce.py [FOLDER]

Needs PyTorch and `pip install lmcache`, here or with `--target FOLDER`; no GPU, no model. Exit
status 1 if the retrieve waits.
"""

import asyncio
import os
import sys
import tempfile
import threading

import torch

sys.path.extend(sys.argv[1:2])

from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

TOKENS, NUMBERS = 4, 512
SHAPE, DTYPE = torch.Size([2, 1, TOKENS, NUMBERS]), torch.float16
BYTES = SHAPE.numel() * DTYPE.itemsize
GIB = 1024**3
PATIENCE_S = 5


def key_of(number):
    return CacheEngineKey("model", 1, 0, number, DTYPE)


def backends(folder):
    """Host memory for two chunks, a disk for eight."""
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=TOKENS, local_cpu=True, max_local_cpu_size=2 * BYTES / GIB,
        local_disk=folder, max_local_disk_size=8 * BYTES / GIB,
    )  # fmt: skip
    metadata = LMCacheMetadata(
        model_name="model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=DTYPE, kv_shape=(1, 2, TOKENS, 1, NUMBERS), chunk_size=TOKENS,
    )  # fmt: skip
    PinMonitor.GetOrCreate(config)
    host = LocalCPUBackend(config, metadata, "cpu")
    loop = asyncio.new_event_loop()
    return host, LocalDiskBackend(config, loop, host, "cpu", None, metadata), loop


def store(host, disk, loop, number):
    """A chunk is put into both, and written."""
    memory = host.allocate(SHAPE, DTYPE, busy_loop=False)
    host.submit_put_task(key_of(number), memory)
    disk.submit_put_task(key_of(number), memory)
    for _ in range(1000):
        loop.run_until_complete(asyncio.sleep(0.01))
        if not disk.disk_worker.put_tasks:
            break
    memory.ref_count_down()


def main():
    with tempfile.TemporaryDirectory() as folder:
        host, disk, loop = backends(folder)
        for number in range(3):
            store(host, disk, loop, number)
        print("room for two chunks in host memory; three are stored, chunk 0 is on disk alone")
        found = [number for number in range(3) if host.contains(key_of(number), pin=True)]
        print(f"a lookup finds and pins chunks {found}; its request is cancelled")
        thread = threading.Thread(target=disk.get_blocking, args=(key_of(0),), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        print("another request retrieves chunk 0 from disk")
        print("  expected: the chunk, or nothing where there is no room for it")
        if not thread.is_alive():
            print("  happens:  it returns")
            return 0
        print(f"  happens:  it has waited for {PATIENCE_S} s")
        for number in found:
            host.unpin(key_of(number))
        thread.join(PATIENCE_S)
        print(f"  with the pins gone it {'waits' if thread.is_alive() else 'returns'}")
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the disk worker's threads would be waited for
