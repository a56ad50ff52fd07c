"""Listening to real sockets: vLLM's own publisher, what is lost, and endpoints that are none."""

from __future__ import annotations

import importlib
import socket
import time
from contextlib import suppress

import pytest

from poolproof.cli.watched_events import Listener
from poolproof.targets.event_endpoint import EndpointError, EventEndpoint


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    def without(name, *rest):
        if name == "zmq":
            raise ImportError(name)
        return importlib_import(name, *rest)

    importlib_import = importlib.import_module
    monkeypatch.setattr("poolproof.targets.event_endpoint.importlib.import_module", without)
    with pytest.raises(EndpointError, match=r"needs pyzmq.*pip install 'poolproof\[events\]'"):
        EventEndpoint("tcp://127.0.0.1:1")


@pytest.fixture
def publisher():
    """vLLM's own publisher at two free ports, with the addresses."""
    events = pytest.importorskip("vllm.distributed.kv_events")
    live, replay = (f"tcp://*:{free_port()}" for _ in range(2))
    publisher = events.ZmqEventPublisher(0, live, replay, buffer_steps=5, topic="kv")
    yield events, publisher, *(text.replace("*", "127.0.0.1") for text in (live, replay))
    publisher.shutdown()


def stored(events, number, parent=None):
    tokens = [number, number]
    return events.BlockStored([b"%d" % number], parent, tokens, 2, None, "GPU", None)


def publish(events, publisher, *told):
    publisher.publish(events.KVEventBatch(ts=time.time(), events=list(told)))


def heard(endpoint, listener, most_s=10.0):
    """Hears one batch."""
    batch = endpoint.next(most_s)
    assert batch is not None
    listener.hear(batch)


def joined(events, publisher, endpoint, listener):
    """A subscription takes a while; batches until the first is heard."""
    for _ in range(200):
        publish(events, publisher)
        batch = endpoint.next(0.05)
        if batch is not None:
            listener.hear(batch)
            while (more := endpoint.next(0.2)) is not None:
                listener.hear(more)
            return
    raise AssertionError("nothing was heard")


def restarted(events, live, replay):
    """A new publisher at the addresses of one that was shut down, once they are free."""
    zmq = pytest.importorskip("zmq")
    addresses = [text.replace("127.0.0.1", "*") for text in (live, replay)]
    for _ in range(200):
        with suppress(zmq.ZMQError):
            return events.ZmqEventPublisher(0, *addresses, topic="kv")
        time.sleep(0.05)
    raise AssertionError("the addresses are still taken")


@pytest.mark.vllm
def test_vllms_publisher_is_understood_with_replay_loss_and_restart(publisher, capsys):
    events, told, live, replay = publisher
    with EventEndpoint(live, replay, "kv") as endpoint:
        listener = Listener(endpoint)
        joined(events, told, endpoint, listener)
        view = listener.views[0]
        publish(events, told, stored(events, 1), stored(events, 2, b"1"))
        heard(endpoint, listener)
        assert (view.holds(b"1"), view.num_resident) in {(True, 2), (None, 2)}
        assert listener.status == 0
        # A batch that is lost on its way is asked for again.
        publish(events, told, stored(events, 3, b"2"))
        publish(events, told, events.BlockRemoved([b"3"], "GPU"))
        assert endpoint.next(10.0) is not None
        heard(endpoint, listener)
        assert (view.counts.lost, view.counts.stored, view.num_resident) == (0, 3, 2)
        publish(events, told, events.AllBlocksCleared())
        heard(endpoint, listener)
        publish(events, told, events.BlockRemoved([b"1"], "GPU"))
        heard(endpoint, listener)
        assert listener.num_faults == {"removed": 1}
        # Another engine at the same address: its numbers begin again.
        told.shutdown()
        again = restarted(events, live, replay)
        try:
            joined(events, again, endpoint, listener)
        finally:
            again.shutdown()
        assert (view.counts.restarts, view.num_resident, view.is_certain) == (1, 0, True)
    assert "removes block 31 from GPU, which is not stored there" in capsys.readouterr().out


@pytest.mark.vllm
def test_the_replay_endpoint_gives_what_is_left_and_ends(publisher):
    events, told, live, replay = publisher
    for number in range(8):
        publish(events, told, stored(events, number))
    with EventEndpoint(live, replay, "kv") as endpoint:
        deadline = time.monotonic() + 10
        kept = []
        while len(kept) < 5 and time.monotonic() < deadline:
            kept = [batch.sequence for batch in endpoint.replay(0, 10.0)]
        assert kept == [3, 4, 5, 6, 7]
        assert [batch.sequence for batch in endpoint.replay(6, 10.0)] == [6, 7]


@pytest.mark.vllm
def test_endpoints_that_are_none_or_do_not_answer_are_one_line():
    pytest.importorskip("zmq")
    with pytest.raises(EndpointError, match=r"nowhere is no endpoint .* write tcp://HOST:PORT"):
        EventEndpoint("nowhere")
    address = f"tcp://127.0.0.1:{free_port()}"
    with EventEndpoint(address, address) as endpoint:
        assert endpoint.next(0.05) is None
        with pytest.raises(EndpointError, match=r"did not answer within 0\.1 s"):
            list(endpoint.replay(0, 0.1))
    with EventEndpoint(address) as endpoint, pytest.raises(EndpointError, match=r"--replay"):
        list(endpoint.replay(4, 0.1))


@pytest.mark.vllm
def test_what_is_published_that_is_no_batch_is_said():
    zmq = pytest.importorskip("zmq")
    address = f"tcp://127.0.0.1:{free_port()}"
    context = zmq.Context()
    socket_of_another = context.socket(zmq.PUB)
    socket_of_another.bind(address)
    try:
        with EventEndpoint(address) as endpoint:
            listener = Listener(endpoint)
            for _ in range(200):
                socket_of_another.send_multipart([b"", (0).to_bytes(8, "big"), b"\xc1"])
                socket_of_another.send_multipart([b"hello"])
                if listener._next(0.05) is not None or listener.num_unreadable > 1:
                    break
            assert listener.num_unreadable > 1
            assert listener.status == 1
    finally:
        context.destroy(linger=0)
