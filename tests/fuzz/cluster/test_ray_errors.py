"""A cluster that is not there, or is none: one line and exit status 2."""

from __future__ import annotations

import socket
import subprocess
from functools import partial

import pytest

from poolproof.fuzz.cluster.host import HostSetup
from poolproof.fuzz.cluster.ray_workers import ClusterError, RayWorkers
from poolproof.harness.isolation import Limits
from poolproof.targets.load import load_target


def test_where_nobody_listens(fuzz_command, tmp_path):
    ran = subprocess.run(
        [*fuzz_command, "impl", "--ray", "127.0.0.1:1", "--folder", "campaign"],
        check=False, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.startswith("poolproof: no Ray cluster answers at 127.0.0.1:1")
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "campaign").exists()


def test_what_listens_and_is_no_cluster():
    setup = HostSetup(partial(load_target, "impl"), Limits(), "/")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError) as refused:
            RayWorkers(address, setup, 1, print, connect_timeout_s=5.0)
    assert "does not answer as the head of a Ray cluster" in str(refused.value)
