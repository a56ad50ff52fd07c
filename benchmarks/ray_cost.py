"""What a worker over Ray costs and what a coordinator pays for it, measured on one machine.

- A report: bytes of order and report, from a campaign of one worker until it finds little more, and
  the processor time that carries one there and back: in the coordinator's process, in the one
  beside it, and in the actor.
- Merging: a report with a thousand new states, and one without any; the same with the record on
  disk, alone and together with others; and telling a worker what a thousand others found.
- A worker: the time until it is ready, on a node that has nothing running, and its memory.

The cluster is two nodes in processes of this machine, so no figure holds a network. Run in
`.venv-ray`. Usage: python benchmarks/ray_cost.py [--orders N] [--record]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.fuzz.cluster.host import HostSetup
from poolproof.fuzz.cluster.ray_workers import RayWorkers
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.merge import CampaignState, merge
from poolproof.fuzz.messages import CorpusTape, WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus
from poolproof.harness.isolation import Limits
from poolproof.targets.load import load_target

TARGET = "impl[misuse=undefined]"
SETTINGS = CampaignSettings(TARGET, "pool", 8)
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@contextmanager
def cluster() -> Iterator[str]:
    """Two nodes of one processor each on the loopback address; the address of their head."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 1,
        "object_store_memory": 80_000_000,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        nodes.add_node(**node)
        yield nodes.address
    finally:
        nodes.shutdown()


def workers_on(address: str, number: int) -> RayWorkers:
    """So many workers of the cluster, at least one of them ready."""
    setup = HostSetup(partial(load_target, TARGET), Limits(), "/")
    return RayWorkers(address, setup, number, print)


def family_of(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def relays() -> list[int]:
    """The actors' processes of this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and b"ray::Relay" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of processes and of those below them that they waited for."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_mib(pids: list[int]) -> float:
    """Memory of processes, shared pages counted once among those that share them."""
    kib = 0
    for pid in pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kib += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return kib / 1024


def start_and_memory(address: str) -> dict[str, float]:
    """Seconds until each of two workers is ready, one a node, and what a ready one holds."""
    began = time.monotonic()
    workers = workers_on(address, 2)
    try:
        first = time.monotonic() - began
        while workers.num_workers < 2:
            workers.wait(1.0)
        both = time.monotonic() - began
        round_trips(workers, 1, 200)
        families = [family_of(pid) for pid in relays()]
        return {
            "seconds until the first worker is ready": first,
            "seconds until both are": both,
            "processor seconds of a start": cpu_seconds(families[0]),
            "MiB of a worker": statistics.mean(memory_mib(family) for family in families),
        }
    finally:
        workers.close()


def round_trips(workers: Any, orders: int, max_steps: int) -> list[WorkerReport]:
    """So many orders for each worker, one after the other; the reports."""
    reports: list[WorkerReport] = []
    left = dict.fromkeys(workers.idle(), orders)
    while len(reports) < orders * len(left):
        for worker in workers.idle():
            if left.get(worker):
                left[worker] -= 1
                begins = workers.is_fresh(worker)
                order = WorkerOrder(SETTINGS, f"0/0/{worker}", max_steps, 60.0, begins=begins)
                workers.give(worker, order)
        for arrival in workers.wait(5.0):
            assert isinstance(arrival.result, WorkerReport), arrival
            reports.append(arrival.result)
    return reports


def carrying(address: str, orders: int) -> dict[str, float]:
    """Processor time of one order and its report beyond the work itself, by process."""
    workers = workers_on(address, 1)
    try:
        round_trips(workers, 5, 1)
        link = family_of(workers.process_id)
        (relay,) = relays()
        here, there = time.process_time(), cpu_seconds(link)
        actor = cpu_seconds([relay])
        reports = round_trips(workers, orders, 1)
        return {
            "processor ms, coordinator": 1e3 * (time.process_time() - here) / len(reports),
            "processor ms, process beside it": 1e3 * (cpu_seconds(link) - there) / len(reports),
            "processor ms, actor": 1e3 * (cpu_seconds([relay]) - actor) / len(reports),
        }
    finally:
        workers.close()


def sizes(address: str, orders: int) -> dict[str, float]:
    """Bytes of the reports of one worker, from the first until little is new."""
    workers = workers_on(address, 1)
    try:
        reports = round_trips(workers, orders, 30_000)
    finally:
        workers.close()
    packed = [len(pickle.dumps(report)) for report in reports]
    order = WorkerOrder(SETTINGS, "0/0/0", 50_000, 1.0)
    return {
        "bytes of an order without news": len(pickle.dumps(order)),
        "bytes of the first report": packed[0],
        "bytes of a report, largest": max(packed),
        "bytes of a report, median": statistics.median(packed),
        "bytes of the last report": packed[-1],
        "new states of the first report": len(reports[0].states) / 8,
    }


def made_report(first: int, number: int) -> WorkerReport:
    """A report with so many states that nobody knows, ten of them a tape."""
    states = list(range(first, first + number))
    tapes = []
    for part in range(number // 10):
        tape = first.to_bytes(8, "big") + bytes([part]) * 200
        tapes.append(CorpusTape(tape, pack(states[10 * part :][:10]), 99, ""))
    return WorkerReport("0", 50_000, 60, 1.0, pack(states), bytes(number), tuple(tapes))


def merging(repeats: int) -> dict[str, float]:
    """Milliseconds of processor and of wall time that a report costs the coordinator."""
    found: dict[str, list[float]] = {}
    status = CampaignStatus(target=TARGET, level="pool", scope="", activity="running")
    with tempfile.TemporaryDirectory() as place, CampaignFolder(Path(place), SETTINGS) as folder:
        for number, name in (
            (0, "nothing new"),
            (100, "100 new states"),
            (1_000, "1,000 new states"),
        ):
            state = CampaignState()
            for repeat in range(repeats):
                report = made_report((number << 40) + repeat * number, number)
                began = time.process_time()
                news = merge(state, report)
                merged = time.process_time() - began
                began, wall = time.process_time(), time.monotonic()
                folder.record([news], state, status)
                recorded = time.process_time() - began
                found.setdefault(f"merge ms, {name}", []).append(merged)
                found.setdefault(f"record ms, {name}", []).append(recorded)
                found.setdefault(f"record ms of wall time, {name}", []).append(
                    time.monotonic() - wall
                )
    return {name: 1e3 * statistics.median(values) for name, values in found.items()}


def recording_together(repeats: int) -> dict[str, float]:
    """Milliseconds of wall time of one transaction for so many reports of ten new states each."""
    found: dict[str, float] = {}
    status = CampaignStatus(target=TARGET, level="pool", scope="", activity="running")
    for together in (1, 10, 100):
        with (
            tempfile.TemporaryDirectory() as place,
            CampaignFolder(Path(place), SETTINGS) as folder,
        ):
            state, seconds = CampaignState(), []
            for repeat in range(repeats):
                numbers = range(repeat * together, (repeat + 1) * together)
                news = [merge(state, made_report(number * 10, 10)) for number in numbers]
                began = time.monotonic()
                folder.record(news, state, status)
                seconds.append(time.monotonic() - began)
        found[f"record ms of wall time, reports together: {together}"] = statistics.median(seconds)
    return {name: 1e3 * value for name, value in found.items()}


def telling(repeats: int) -> dict[str, float]:
    """Milliseconds of an order with what a thousand others found: as the coordinator makes it."""
    log = [(worker, pack([worker]), ()) for worker in range(1_000)]
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        others = [entry for entry in log if entry[0] != 5]
        order = WorkerOrder(SETTINGS, "0", 1, 1.0, b"".join(states for _, states, _ in others))
        pickle.dumps(order)
        seconds.append(time.process_time() - began)
    return {"order ms, news of 1,000 reports": 1e3 * statistics.median(seconds)}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=200, help="round trips for each figure")
    add_destination(parser, "ray")
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("left out: there is no Ray here; make ray, and run this in .venv-ray")
        return 0
    figures = merging(options.orders) | recording_together(options.orders)
    figures |= telling(options.orders)
    with cluster() as address:
        figures |= start_and_memory(address)
        figures |= carrying(address, options.orders)
        figures |= sizes(address, 20)
    for name, value in figures.items():
        print(f"  {name:<46}{value:>14,.3f}")
    record = {
        **surroundings(),
        "ray": importlib.metadata.version("ray"),
        "orders": options.orders,
        "figures": figures,
    }
    return 0 if write_record(options.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
