"""An engine behind the protocol that serves one request after another, and errs as it is told.

`hostile_engine.py HOW`: without a known HOW it is right. Imports nothing of Poolproof.
"""

import json
import os
import sys
import time
from typing import Any

HELLO = {
    "protocol": 3,
    "name": "hostile engine",
    "level": "engine",
    "verbs": ["submit", "plan", "answer", "cancel"],
    "observers": ["num_free", "unfinished"],
    "profile": {"max_running": 1, "max_batch_tokens": 8},
}
HELLOS: dict[str, dict[str, Any]] = {
    "version-2": {"protocol": 2},
    "no-answer": {"verbs": ["submit", "plan"]},
    "unknown-verb": {"verbs": [*HELLO["verbs"], "prefetch"]},
    "unknown-row": {"profile": {"policy": "lottery"}},
    "odd-block-size": {"profile": {"block_size": 0}},
    "blind": {"observers": []},
}


class Engine:
    """One request at a time, in blocks from 0 on."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.requests: dict[int, tuple[list[int], int]] = {}
        self.computed = 0
        self.step: tuple[int, int] | None = None

    def submit(self, request_id: int, tokens: list[int], max_new_tokens: int) -> None:
        """A request waits for its turn."""
        self.requests[request_id] = (tokens, len(tokens) + max_new_tokens)

    def plan(self) -> dict[str, Any]:
        """The next positions of the first request."""
        self.step = None
        if not self.requests:
            return {"compute": []}
        request_id, (tokens, _) = next(iter(self.requests.items()))
        count = min(8, len(tokens) - self.computed)
        self.step = (request_id, count)
        blocks = [*range(-(-len(tokens) // self.block_size))]
        part = {"request": request_id, "first": self.computed, "count": count, "blocks": [blocks]}
        return {"compute": [part]}

    def answer(self, sampled: dict[int, list[int]]) -> list[Any]:
        """What the user of the first request is given."""
        if self.step is None or self.step[0] not in self.requests:
            return []
        request_id, count = self.step
        self.computed += count
        if request_id not in sampled:
            return []
        tokens, most = self.requests[request_id]
        tokens += sampled[request_id]
        ended = len(tokens) == most or tokens[-1] == 0
        if ended:
            self.cancel(request_id)
        return [[request_id, sampled[request_id], ended]]

    def cancel(self, request_id: int) -> None:
        """The request is gone."""
        if next(iter(self.requests), None) == request_id:
            self.computed = 0
        self.requests.pop(request_id, None)


def wrong_plan(how: str, plan: dict[str, Any]) -> Any:
    """A plan that contradicts itself, or none at all."""
    part = plan["compute"][0] if plan["compute"] else None
    if part is None:
        return plan
    wrong: dict[str, Any] = {
        "unknown-request": {**part, "request": 77},
        "block-beyond": {**part, "blocks": [[1000 for _ in part["blocks"][0]]]},
        "block-below": {**part, "blocks": [[-1 for _ in part["blocks"][0]]]},
        "no-blocks": {**part, "blocks": [[]]},
        "too-many": {**part, "count": 1000},
        "text-for-a-number": {**part, "first": "zero"},
        "half-a-position": {**part, "first": 0.5},
        "two-tables": {**part, "blocks": part["blocks"] * 2},
        "unknown-key": {**part, "temperature": 1},
    }
    if how == "never-ends":
        return {"compute": [{**part, "first": 0, "count": 1}]}
    if how == "twice":
        return {"compute": [part, part]}
    if how in {"lost-transfer", "load-without-end"}:
        places = [0] if how == "lost-transfer" else [0, 1]
        moved = {"id": 1, "kind": "load", "blocks": [0, 1], "places": places}
        return {**plan, "transfers": [moved]}
    return {"compute": [wrong[how]]} if how in wrong else plan


def do(engine: Engine, how: str, command: dict[str, Any]) -> dict[str, Any]:
    """The answer to one command."""
    verb = command["do"]
    if verb == "submit":
        engine.submit(command["request_id"], command["tokens"], command["max_new_tokens"])
        return {}
    if verb == "cancel":
        engine.cancel(command["request_id"])
        return {}
    if verb == "num_free":
        return {"result": "all" if how == "free-in-words" else engine.num_blocks}
    if verb == "unfinished":
        return {"result": [*engine.requests]}
    if verb == "answer":
        outputs = engine.answer(dict(command["tokens"]))
        return {"result": {"7": [1]} if how == "outputs-as-object" else outputs}
    if how == "dies-in-plan":
        sys.stderr.write("no free block\n")
        os._exit(3)
    if how == "hangs-in-plan":
        time.sleep(600)
    if how == "junk-in-plan":
        sys.stdout.write("planning ...\n")
    if how in {"error", "refused", "skipped"}:
        return {how: "no plan today"}
    if how == "silent":
        return {}
    return {"result": wrong_plan(how, engine.plan())}


def main() -> None:
    """Answer line after line."""
    how, engine = sys.argv[1], Engine(0, 1)
    for line in sys.stdin:
        message = json.loads(line)
        answer: dict[str, Any] = {"seq": message["seq"]}
        if message["do"] == "start":
            answer |= {**HELLO, **HELLOS.get(how, {})}
        elif message["do"] == "run":
            engine = Engine(message["num_blocks"], message["block_size"])
            answer |= {"answers": []}
            if how == "needs-caching" and not message["enable_caching"]:
                answer = {"seq": message["seq"], "skipped": "caching is always on"}
        elif message["do"] == "continue":
            answer |= {"answers": [do(engine, how, command) for command in message["commands"]]}
            if how == "late" and message["commands"][0]["do"] == "plan":
                answer["seq"] -= 1
        print(json.dumps(answer), flush=True)
        if message["do"] == "stop":
            return


if __name__ == "__main__":
    main()
