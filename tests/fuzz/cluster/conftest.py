"""Tests over a real Ray cluster: collected with `-m ray` alone, where Ray is.

The cluster is several nodes in processes of this machine. Everything is bound to the loopback
address, nothing is reported to anybody, and nodes get little memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MEMORY = 80_000_000


def _are_asked_for(config: pytest.Config) -> bool:
    return config.getoption("markexpr", "").strip() == "ray"


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return None if _are_asked_for(config) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _are_asked_for(config):
        return  # To look at thousands of other tests would cost each process its time.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("ray")


class Nodes:
    """A cluster of nodes with a processor each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args=self._settings(1))
        self.address: str = self._cluster.address

    @staticmethod
    def _settings(processors: int) -> dict[str, Any]:
        return {
            "num_cpus": processors,
            "object_store_memory": MEMORY,
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
        }

    def add(self) -> Any:
        """A node joins."""
        return self._cluster.add_node(**self._settings(1))

    def kill(self, node: Any) -> None:
        """A node goes, and all that runs on it."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """The directory of the cluster goes; its nodes stay."""
        for server in self._cluster.head_node.all_processes["gcs_server"]:
            server.process.kill()

    def kill_a_worker(self) -> bool:
        """A worker goes, its node stays; False if none was found."""
        nodes = self._cluster.list_all_nodes()
        raylets = {node.all_processes["raylet"][0].process.pid for node in nodes}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                name = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"ray::Relay" in name and parent in raylets:
                    os.kill(int(entry.name), signal.SIGKILL)
                    return True
        return False

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session", autouse=True)
def _settings_of_ray() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Despite its name: Ray then takes the loopback address for this machine's.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # How long a process of Ray's goes on without the head of its cluster.
        patch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
        # Not where tests stand: the nodes must not find by accident what only the driver has.
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module", name="nodes")
def nodes_() -> Iterator[Nodes]:
    nodes = Nodes()
    nodes.add()
    yield nodes
    nodes.close()


@pytest.fixture(name="short_lived_nodes")
def short_lived_nodes_() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture(name="fuzz_command")
def fuzz_command_() -> list[str]:
    """The command line of this environment."""
    return [sys.executable, "-m", "poolproof", "fuzz"]
