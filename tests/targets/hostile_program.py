"""A program that speaks the protocol up to a point, and then does what its argument says.

Imports nothing of Poolproof, so that it starts quickly and shows what a stranger's program does.
"""

import json
import os
import signal
import sys
import time
from typing import Any

HELLO = {
    "protocol": 1,
    "name": "hostile",
    "level": "pool",
    "verbs": ["allocate", "touch", "free", "cache", "lookup"],
    "observers": ["free_order"],
    "profile": {},
}

LONG = "two\nlines " * 100_000
"""A megabyte, where a word is expected."""


def write(message: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer_start(how: str, seq: int, version: int) -> None:
    """The introduction, right or wrong."""
    changed = {
        "other-version": {"protocol": 4},
        "manager": {"level": "manager"},
        "unknown-verb": {"verbs": [*HELLO["verbs"], "defragment"]},
        "no-free": {"verbs": ["allocate", "touch", "cache", "lookup"]},
        "unknown-row": {"profile": {"colour": "blue"}},
        "no-name": {"name": None},
        "long-name": {"name": LONG, "version": LONG},
        "long-verb": {"verbs": [*HELLO["verbs"], LONG]},
        "long-row": {"profile": {LONG: LONG}},
        "long-level": {"level": LONG},
    }.get(how, {})
    if how == "strict-version-1" and version != 1:
        write({"seq": seq, "protocol": 1, "error": "this program speaks protocol 1"})
        return
    if how == "chatty":
        print("loading weights ...")
    if how == "ends-at-once":
        sys.exit("no such device")
    write({"seq": seq, **HELLO, **changed})


def answer_run(how: str, seq: int, message: dict[str, Any]) -> None:
    """A fresh instance."""
    commands = message["commands"]
    free = list(range(message["num_blocks"]))
    state = {"num_free": len(free), "free_order": free}
    if how == "skips" and not message["enable_caching"]:
        write({"seq": seq, "skipped": "caching is always on", "issue_url": "https://example.org/7"})
    elif how == "no-order":
        write({"seq": seq, "state": {"num_free": len(free)}, "answers": []})
    else:
        answers = [answer_command(how) for _ in commands]
        if how == "no-answers":
            answers = []
        write({"seq": seq, "state": state, "answers": answers})
    if how == "twice":
        write({"seq": seq, "answers": []})


def answer_command(how: str) -> dict[str, object]:
    """One answer, if it comes to that."""
    if how == "exits":
        sys.stderr.write("giving up\n")
        sys.exit(3)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hangs":
        time.sleep(600)
    if how == "garbage":
        sys.stdout.write("Segmentation fault (core dumped)\n")
    if how == "megabyte":
        sys.stdout.write("x" * (1 << 20) + "\n")
    if how == "endless":
        while True:
            sys.stdout.write("x" * (1 << 20))
    if how == "eats-memory":
        memory = b"x" * (3 << 29)
        time.sleep(600 + len(memory) % 2)
    if how == "noisy":
        sys.stderr.write(LONG)
    if how == "slow":
        time.sleep(0.3)
    if how == "long-error":
        return {"error": LONG}
    if how == "long-skip":
        return {"skipped": LONG}
    if how == "long-refusal":
        return {"refused": LONG}
    if how == "error":
        return {"error": "assertion failed: refs > 0"}
    if how == "skips-verb":
        return {"skipped": "no such verb yet"}
    if how == "short-list":
        return {"result": [0], "num_free": 1, "ref_counts": [1]}
    return {"refused": "never"}


def main() -> None:
    """Answer line after line."""
    how = sys.argv[1]
    for line in sys.stdin:
        message = json.loads(line)
        seq = message["seq"]
        if message["do"] == "start":
            answer_start(how, seq, message["protocol"])
        elif message["do"] == "run":
            answer_run(how, seq, message)
        elif message["do"] == "stop":
            write({"seq": seq})
            return
        elif how == "out-of-order":
            write({"seq": seq + 1, "answers": [{}]})
        elif how == "late":
            write({"seq": seq - 1, "answers": [{}]})
        elif how in {"too-few", "no-answers"}:
            write({"seq": seq, "answers": []})
        elif how == "no-object":
            write([seq])
        else:
            answers = [answer_command(how) for _ in message["commands"]]
            write({"seq": seq, "answers": answers})


if __name__ == "__main__":
    main()
