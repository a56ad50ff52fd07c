"""Aphrodite gives blocks of an adapter and of a salt of the same name the same hash.

Usage: python reproduce.py PATH/TO/aphrodite-engine

Calls generate_block_hash_extra_keys and hash_block_tokens of aphrodite/v1/core/kv_cache_utils.py
as Request does for each of its full blocks. Everything that the module imports from elsewhere is an
empty module, so that neither PyTorch nor a GPU is needed.
Exit status 1 if two requests whose KV differs have one hash.
"""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

ENGINE = "aphrodite"


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *arguments, **_named):
        return arguments[0] if arguments and callable(arguments[0]) else cls

    def __getitem__(cls, _item):
        return cls

    def __or__(cls, _other):
        return cls

    def __ror__(cls, _other):
        return cls


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, _path=None, _target=None):
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: Anything(name, (), {})
        return module

    def exec_module(self, module):
        pass


def load(checkout):
    sys.meta_path.insert(0, EmptyModules())
    path = Path(checkout) / ENGINE / "v1" / "core" / "kv_cache_utils.py"
    spec = importlib.util.spec_from_file_location("kv_cache_utils", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kv_cache_utils"] = module
    spec.loader.exec_module(module)
    module.NONE_HASH = b"none"
    return module


def request(lora=None, path=None, number=None, salt=None):
    adapter = None
    if lora is not None:
        adapter = types.SimpleNamespace(lora_name=lora, lora_path=path, lora_int_id=number)
    return types.SimpleNamespace(
        lora_request=adapter, cache_salt=salt, mm_features=[], mm_positions=[], mm_hashes=[],
        prompt_embeds=None,
    )  # fmt: skip


def main():
    utilities = load(sys.argv[1])

    def sha256(content):
        return hashlib.sha256(repr(content).encode()).digest()

    def block_hash(asked):
        extra, _ = utilities.generate_block_hash_extra_keys(asked, 0, 4, 0)
        digest = utilities.hash_block_tokens(sha256, None, [1, 2, 3, 4], extra)
        return extra, digest.hex()[:16]

    pairs = {
        "an adapter `x`, and the salt `x`": (request("x", "/a", 1), request(salt="x")),
        "an adapter `x` from /a, and one loaded later from /b": (
            request("x", "/a", 1),
            request("x", "/b", 2),
        ),
    }
    equal = 0
    for name, two in pairs.items():
        hashes = [block_hash(one) for one in two]
        print(f"Two requests with the tokens 1, 2, 3, 4: {name}.")
        print("  expected: two hashes, since their KV differs")
        print(f"  happens:  {hashes[0][0]} {hashes[0][1]} and {hashes[1][0]} {hashes[1][1]}")
        equal += hashes[0][1] == hashes[1][1]
    return int(bool(equal))


if __name__ == "__main__":
    sys.exit(main())
