"""MAX's prefix cache takes two images for one whose hashes agree in their lower 32 bits.

Usage: python reproduce.py PATH/TO/site-packages

The folder is the one that MAX 26.7.0 is installed in, or its unpacked wheel; only the compiled
module `max._kv_core` of it is loaded. Needs xxhash, by which MAX hashes images, too. Exits with 1
where the second image is served from the first.
"""

from __future__ import annotations

import struct
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path

import xxhash

BLOCK_SIZE = 4
PLACEHOLDER = 98
PROMPT = [11, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, 12, 13, 14]


def kv_core(folder: str) -> object:
    """The module, from an installed MAX or from its wheel."""
    found = sorted(Path(folder).glob("**/_kv_core.so"))
    if not found:
        sys.exit(f"{folder} holds no max/_kv_core.so")
    loader = ExtensionFileLoader("_kv_core", str(found[0]))
    module = module_from_spec(spec_from_file_location("_kv_core", found[0], loader=loader))
    loader.exec_module(module)
    return module


def hash_of_image(encoded: bytes) -> int:
    """As `max.support.image.hash_image(encoded, 0)`: XXH3 of the bytes and the size tier."""
    (signed,) = struct.unpack("<q", struct.pack("<Q", xxhash.xxh3_64_intdigest(encoded + bytes(8))))
    return signed


def two_images() -> tuple[bytes, bytes]:
    """The first two of a row of images that differ, and whose hashes end alike."""
    seen: dict[int, bytes] = {}
    for number in count():
        image = b"the bytes of image %d" % number
        other = seen.setdefault(hash_of_image(image) & 0xFFFFFFFF, image)
        if other is not image:
            return other, image
    raise AssertionError


def main() -> int:
    """Cache a prompt with one image, and look the same prompt up with the other."""
    core = kv_core(sys.argv[1])
    images = two_images()
    for image in images:
        print(f"{image.decode()!r}: hash {hash_of_image(image) & (1 << 64) - 1:016x}")
    tokens = struct.pack(f"<{len(PROMPT)}q", *PROMPT)
    is_wrong = False
    for algorithm in ("ahash64", "sha256"):
        keys = [
            core.hash_block_tokens(
                algorithm, tokens, 8, BLOCK_SIZE, overrides=[(1, hash_of_image(image))]
            )
            for image in images
        ]
        pool = core.JengaBlockPool(4, {"cache": 1})
        for key in keys[0]:
            block = pool.alloc_block("cache")
            pool.commit_into_prefix_cache(key, block)
            pool.free_block(block)
        hits = [key in pool.prefix_caches["cache"] for key in keys[1]]
        print(f"{algorithm}: a prompt of {len(hits)} blocks is cached with the first image.")
        print("  expected: no block is found for the prompt with the second one")
        print(f"  happens:  {sum(hits)} of {len(hits)} are found")
        is_wrong |= any(hits)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
