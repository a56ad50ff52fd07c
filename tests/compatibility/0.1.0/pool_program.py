"""A pool as a program that speaks protocol 1 alone, as programs did at the time of 0.1.0.

It shows nothing but the counter and the free queue, and says everything each time. With `--stale`
it forgets to take the hash of a block that is handed out again from its index.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PROTOCOL = 1
VERBS = ("allocate", "touch", "free", "cache", "lookup")


class Pool:
    """Blocks in the order in which they were freed; the newest block of a hash is found."""

    def __init__(self, num_blocks: int, *, caching: bool) -> None:
        self.caching = caching
        self.queue = dict.fromkeys(range(num_blocks))
        self.references = [0] * num_blocks
        self.hash_of: dict[int, str] = {}
        self.block_of: dict[str, int] = {}

    def allocate(self, count: int) -> list[int]:
        if count > len(self.queue):
            raise MemoryError(f"{count} blocks wanted, {len(self.queue)} free")
        blocks = list(self.queue)[:count]
        for block in blocks:
            del self.queue[block]
            self.references[block] = 1
            block_hash = self.hash_of.pop(block, "")
            if "--stale" not in sys.argv:
                self.block_of.pop(block_hash, None)
        return blocks

    def touch(self, block_ids: list[int]) -> None:
        for block in block_ids:
            self.queue.pop(block, None)
            self.references[block] += 1

    def free(self, block_ids: list[int]) -> None:
        for block in block_ids:
            self.references[block] -= 1
            if not self.references[block]:
                self.queue[block] = None

    def cache(self, block_ids: list[int], hashes: list[str]) -> None:
        for block, block_hash in zip(block_ids, hashes, strict=True):
            if self.caching and self.hash_of.get(block) != block_hash:
                self.block_of.pop(self.hash_of.pop(block, ""), None)
                self.hash_of.pop(self.block_of.get(block_hash, -1), None)
                self.hash_of[block] = block_hash
                self.block_of[block_hash] = block

    def lookup(self, block_hash: str) -> int | None:
        return self.block_of.get(block_hash)


class Run:
    """One instance, and the hashes that were named in it."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.pool = Pool(message["num_blocks"], caching=message["enable_caching"])
        self.shows = message["show"] == "state"
        self.named: dict[str, None] = {}

    def state(self) -> dict[str, Any]:
        if not self.shows:
            return {}
        return {
            "num_free": len(self.pool.queue),
            "free_order": list(self.pool.queue),
            "lookups": [self.pool.lookup(each) for each in self.named],
        }

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        arguments = {name: value for name, value in command.items() if name != "do"}
        if command["do"] == "num_free":
            return {"result": len(self.pool.queue)}
        if command["do"] == "free_order":
            return {"result": list(self.pool.queue)}
        if command["do"] not in VERBS:
            return {"skipped": f"this program has no {command['do']}"}
        self.named |= dict.fromkeys(arguments.get("hashes", ()))
        if "block_hash" in arguments:
            self.named[arguments["block_hash"]] = None
        try:
            result = getattr(self.pool, command["do"])(**arguments)
        except MemoryError as error:
            return {"refused": str(error), **self.state()}
        return {**({} if result is None else {"result": result}), **self.state()}


def main() -> None:
    """Answer requests until the last."""
    run = None
    for line in sys.stdin:
        message = json.loads(line)
        said: dict[str, Any] = {}
        if message["do"] == "start" and message["protocol"] != PROTOCOL:
            said = {"protocol": PROTOCOL, "error": f"this program speaks protocol {PROTOCOL}"}
        elif message["do"] == "start":
            profile = {"eviction": "lru", "duplicates": "last", "misuse": "undefined"}
            said = {
                "protocol": PROTOCOL, "name": "a pool of 0.1.0", "level": "pool",
                "verbs": list(VERBS), "observers": ["free_order"], "profile": profile,
            }  # fmt: skip
        elif message["do"] == "run":
            run = Run(message)
            state = {"state": run.state()} if run.shows else {}
            said = {**state, "answers": [run.answer(each) for each in message["commands"]]}
        elif message["do"] == "continue" and run is not None:
            said = {"answers": [run.answer(each) for each in message["commands"]]}
        print(json.dumps({"seq": message["seq"], **said}), flush=True)
        if message["do"] == "stop":
            return


main()
