"""The workers of a cluster as a coordinator sees them, and a coordinator when they come and go."""

from __future__ import annotations

import pickle
import time
from multiprocessing import Pipe

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main
from poolproof.contract.target import TargetError
from poolproof.fuzz.cluster import ray_workers
from poolproof.fuzz.cluster.host import HostSetup, Refusal
from poolproof.fuzz.cluster.link_messages import (
    Answered,
    Connected,
    Give,
    Gone,
    Open,
    Ready,
    Refused,
    WorkerLost,
)
from poolproof.fuzz.cluster.ray_workers import ClusterError, RayWorkers, check_reachable
from poolproof.fuzz.coordinator import MOST_LOSSES, Campaign, CampaignBudget
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.messages import WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.workers import Arrival, LostWorker
from poolproof.harness.isolation import Died, Limits

SETTINGS = CampaignSettings("impl", "pool", 4)
REPORT = WorkerReport("0/0/0", 10, 1, 0.5, pack([1]), b"\0")


@pytest.fixture(name="link")
def link_(monkeypatch):
    """The other end of the line to the process that speaks to Ray."""
    ours, theirs = Pipe()

    class NoProcess:
        line = theirs

        def close(self):
            theirs.close()

    monkeypatch.setattr(ray_workers, "Companion", lambda *_, **__: NoProcess())
    yield ours
    ours.close()


def workers_on(link, *events, say=None, num_workers=2):
    for event in events:
        link.send(event)
    setup = HostSetup(str, Limits(), "/")
    said = [] if say is None else say
    return RayWorkers(
        "there:1", setup, num_workers, said.append, connect_timeout_s=0.1, start_timeout_s=0.1
    )


def order_for(worker):
    return WorkerOrder(SETTINGS, f"0/0/{worker}", 10, 1.0)


def test_workers_are_idle_and_fresh_once_they_are_ready(link):
    workers = workers_on(link, Connected(2), Ready(0))
    assert isinstance(link.recv(), Open)
    assert workers.idle() == [0]
    assert workers.is_fresh(0)
    link.send(Ready(1))
    assert workers.wait(1.0) == []
    assert workers.num_workers == 2
    workers.close()


def test_a_report_frees_its_worker(link):
    workers = workers_on(link, Connected(2), Ready(0))
    link.recv()
    workers.give(0, order_for(0))
    assert workers.idle() == []
    assert link.recv() == Give(0, pickle.dumps(order_for(0)))
    link.send(Answered(0, pickle.dumps(REPORT)))
    assert workers.wait(1.0) == [Arrival(0, REPORT)]
    assert workers.idle() == [0]
    assert not workers.is_fresh(0)
    workers.close()


def test_a_worker_that_its_machine_cost_is_lost_without_a_culprit(link):
    workers = workers_on(link, Connected(2), Ready(0))
    workers.give(0, order_for(0))
    link.send(WorkerLost(0, "the machine went"))
    link.send(Ready(1))
    assert workers.wait(1.0) == [Arrival(0, LostWorker(None, sentence="the machine went"))]
    assert workers.idle() == [1]
    workers.close()


def test_a_worker_that_the_target_cost_begins_anew(link):
    workers = workers_on(link, Connected(2), Ready(0))
    workers.give(0, order_for(0))
    lost = LostWorker(Died(status=9), b"tape", "a worker died")
    link.send(Answered(0, pickle.dumps(lost)))
    assert workers.wait(1.0) == [Arrival(0, lost)]
    assert workers.is_fresh(0)
    assert workers.idle() == [0]
    workers.close()


def test_a_machine_without_the_target_is_named_once_and_left_out(link):
    said = []
    refused = Refused("b", "no module named mine")
    workers = workers_on(link, Connected(3), refused, refused, Ready(0), say=said, num_workers=3)
    assert said == ["left out   b: no module named mine"]
    assert workers.idle() == [0]
    workers.close()


def test_a_cluster_without_the_target_is_an_error_that_names_it(link):
    with pytest.raises(ClusterError) as refused:
        workers_on(link, Connected(2), Refused("a", "no mine.py"), Refused("b", "no mine.py"))
    assert "no machine of the Ray cluster at there:1 can work" in str(refused.value)
    assert "a says: no mine.py" in str(refused.value)


def test_machines_that_left_are_not_waited_for(link):
    with pytest.raises(ClusterError) as refused:
        workers_on(link, Connected(3), Refused("a", "no mine.py"), Connected(1), num_workers=None)
    assert "a says: no mine.py" in str(refused.value)


def test_when_time_is_over_a_refusal_says_more_than_that(link):
    with pytest.raises(ClusterError) as refused:
        workers_on(link, Connected(3), Refused("a", "no mine.py"), num_workers=3)
    assert "a says: no mine.py" in str(refused.value)


def test_a_cluster_without_a_free_processor_is_named(link):
    with pytest.raises(ClusterError) as refused:
        workers_on(link, Connected(2))
    assert "no processor of it is free" in str(refused.value)


def test_what_does_not_answer_as_a_cluster_is_named(link):
    with pytest.raises(ClusterError) as refused:
        workers_on(link)
    assert "name the address that `ray start` printed" in str(refused.value)


@pytest.mark.parametrize("last", [Gone("its head is gone"), None])
def test_a_cluster_that_ends_is_named_with_what_to_do(link, last):
    workers = workers_on(link, Connected(2), Ready(0))
    link.send(last) if last else link.close()
    with pytest.raises(ClusterError) as gone:
        workers.wait(1.0)
    assert "the same command goes on with it" in str(gone.value)
    workers.close()


def test_what_the_target_refuses_on_a_machine_is_the_target_s_error(link):
    workers = workers_on(link, Connected(2), Ready(0))
    workers.give(0, order_for(0))
    link.send(Answered(0, pickle.dumps(Refusal("a", "it has no pool level"))))
    with pytest.raises(TargetError) as refused:
        workers.wait(1.0)
    assert str(refused.value) == "a: it has no pool level"
    workers.close()


def test_our_own_bugs_are_not_the_target_s(link):
    workers = workers_on(link, Connected(2), Ready(0))
    workers.give(0, order_for(0))
    link.send(Answered(0, pickle.dumps(Refusal("a", "KeyError: 3", is_ours=True))))
    with pytest.raises(RuntimeError):
        workers.wait(1.0)
    workers.close()


@pytest.mark.parametrize("address", ["nonsense", "http://there:1", "ray://there:10001", "there:"])
def test_what_is_no_address_is_named(address, monkeypatch):
    monkeypatch.setattr(ray_workers.importlib.util, "find_spec", lambda _: object())
    with pytest.raises(ClusterError) as refused:
        check_reachable(address)
    assert "it is HOST:PORT" in str(refused.value)


def test_where_nobody_listens_is_named(monkeypatch):
    monkeypatch.setattr(ray_workers.importlib.util, "find_spec", lambda _: object())
    with pytest.raises(ClusterError) as refused:
        check_reachable("127.0.0.1:1")
    assert "no Ray cluster answers at 127.0.0.1:1" in str(refused.value)


def test_that_ray_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(ray_workers.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ClusterError) as refused:
        check_reachable("auto")
    assert "pip install 'poolproof[ray]'" in str(refused.value)


def test_other_machines_and_no_processes_at_all_exclude_each_other():
    ran = CliRunner().invoke(main, ["fuzz", "impl", "--ray", "auto", "--in-process"])
    assert ran.exit_code == 2
    assert "--ray runs the target on other machines" in ran.output


class Machines:
    """Workers whose machines go with each of the first orders; then there is none for a while."""

    num_workers = 1

    def __init__(self, num_losses, num_empty):
        self._left = num_losses
        self._empty = num_empty
        self._number = 0
        self._order = None
        self.streams = []

    def idle(self):
        if self._order is not None:
            return []
        if not self._left and self._empty:
            self._empty -= 1
            return []
        return [self._number]

    def is_fresh(self, worker):
        return True

    def give(self, worker, order):
        self._order = order
        self.streams.append(order.stream)

    def wait(self, timeout_s):
        order, self._order = self._order, None
        if order is None:
            return []
        worker = self._number
        if self._left:
            self._left -= 1
            self._number += 1
            return [Arrival(worker, LostWorker(None, sentence="gone"))]
        return [Arrival(worker, REPORT)]

    def close(self):
        pass


def test_a_session_outlives_any_number_of_machines(tmp_path):
    machines = Machines(num_losses=MOST_LOSSES + 5, num_empty=3)
    with CampaignFolder(None, SETTINGS) as folder:
        status = Campaign(
            SETTINGS, machines, folder, None, budget=CampaignBudget(steps=15), scope="",
            num_possible=None,
            show=lambda _: None, say=lambda _: None,
        ).run()  # fmt: skip
    assert status.num_steps == 20
    assert status.num_workers_lost == MOST_LOSSES + 5
    assert status.findings == ()
    assert len(set(machines.streams)) >= MOST_LOSSES + 6


def test_a_session_without_workers_ends_with_its_time(tmp_path):
    machines = Machines(num_losses=0, num_empty=1 << 30)
    began = time.monotonic()
    with CampaignFolder(None, SETTINGS) as folder:
        status = Campaign(
            SETTINGS, machines, folder, None, budget=CampaignBudget(seconds=0.2), scope="",
            num_possible=None, show=lambda _: None, say=lambda _: None,
        ).run()  # fmt: skip
    assert status.num_steps == 0
    assert time.monotonic() - began >= 0.2
