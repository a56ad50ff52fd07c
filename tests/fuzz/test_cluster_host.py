"""The process that runs the target for a worker of a cluster, without a cluster."""

from __future__ import annotations

import pickle
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from poolproof.fuzz.cluster.companion import Companion
from poolproof.fuzz.cluster.host import Hosting, HostSetup, Refusal
from poolproof.fuzz.messages import MESSAGE_VERSION, WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import unpack
from poolproof.fuzz.workers import LostWorker
from poolproof.harness.isolation import Died, Isolation, Limits
from poolproof.targets.load import load_target

HERE = Path(__file__).parent
HOSTILE = HERE.parent / "certification" / "hostile_targets.py"

pytestmark = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")


def setup_for(target: str, folder: Path = HERE) -> tuple[int, bytes]:
    limits = Limits(call_timeout_s=30.0, memory_mib=300)
    return HostSetup(partial(load_target, target), limits, str(folder)).packed()


def order_for(target: str, *, begins: bool = True) -> bytes:
    return pickle.dumps(
        WorkerOrder(CampaignSettings(target, "pool", 4), "s", 300, 60.0, begins=begins)
    )


def heard(host: Companion):
    return pickle.loads(host.line.recv_bytes())  # noqa: S301 -- our own bytes


def test_an_order_is_carried_out():
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send(setup_for("impl"))
        assert isinstance(heard(host), Hosting)
        for begins in (True, False):
            host.line.send_bytes(order_for("impl", begins=begins))
            report = heard(host)
            assert isinstance(report, WorkerReport)
            assert report.num_steps >= 300
            assert len(unpack(report.states)) == len(report.depths)


def test_a_target_that_ends_the_process_comes_home_as_a_loss_with_its_tape():
    target = f"{HOSTILE}:ExitsTheProcess"
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send(setup_for(target))
        assert isinstance(heard(host), Hosting)
        for _ in range(2):
            host.line.send_bytes(order_for(target))
            lost = heard(host)
            assert isinstance(lost, LostWorker)
            assert isinstance(lost.outcome, Died)
            assert lost.tape


def test_an_order_for_a_worker_that_knows_more_than_it_does_is_not_carried_out():
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send(setup_for("impl"))
        heard(host)
        host.line.send_bytes(order_for("impl", begins=False))
        lost = heard(host)
        assert isinstance(lost, LostWorker)
        assert lost.outcome is None


def test_relative_paths_are_looked_up_where_the_coordinator_was_started(tmp_path):
    (tmp_path / "mine.py").write_text("from poolproof.impl.block_pool import BlockPool as Pool\n")
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send(setup_for("mine.py:Pool", tmp_path))
        assert isinstance(heard(host), Hosting)


def test_a_target_that_is_not_there_is_named(tmp_path):
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send(setup_for("mine.py:Pool", tmp_path))
        refusal = heard(host)
        assert isinstance(refusal, Refusal)
        assert "mine.py" in refusal.sentence
        assert refusal.machine


def test_another_version_is_named_and_not_unpickled():
    with closing(Companion("poolproof.fuzz.cluster.host")) as host:
        host.line.send((MESSAGE_VERSION + 1, b"something else"))
        refusal = heard(host)
        assert isinstance(refusal, Refusal)
        assert "install the same Poolproof on every machine" in refusal.sentence


def test_a_host_ends_when_nobody_waits_for_it():
    host = Companion("poolproof.fuzz.cluster.host")
    host.line.send(setup_for("impl"))
    heard(host)
    host.line.send_bytes(order_for("impl"))
    time.sleep(0.05)
    host.close()
    assert host._process.returncode is not None
    assert host._process.returncode >= 0
