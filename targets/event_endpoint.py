"""Listens to the KV events of a live engine over ZMQ, and asks again for what was lost.

Needs pyzmq and one of msgspec and msgpack (`pip install poolproof[events]`); vLLM brings the first
two along. An engine publishes (topic, 8 bytes of sequence number, payload) on a PUB socket; asked
for a number on its replay endpoint, it sends what it still has from there on, and an end mark.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.errors import PoolproofError
from poolproof.contract.kv_events import EventBatch, EventError, batch_from
from poolproof.contract.outside import said_by

__all__ = ["EndpointError", "EventEndpoint"]

_END = -1


class EndpointError(PoolproofError):
    """An endpoint that cannot be listened to; the message names it and says what to do."""


class EventEndpoint:
    """A subscription to `address`, and to `replay_address` where the engine has one.

    Raises EndpointError where a package is missing or an address is none.
    """

    def __init__(self, address: str, replay_address: str | None = None, topic: str = "") -> None:
        self.address = address
        self.replay_address = replay_address
        self._zmq = _package("zmq", "pyzmq")
        self._decode = _decoder()
        self._context = self._zmq.Context()
        try:
            self._live = self._socket(self._zmq.SUB, address)
            self._live.setsockopt(self._zmq.SUBSCRIBE, topic.encode())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the sockets, whatever is still under way."""
        self._context.destroy(linger=0)

    def next(self, timeout_s: float) -> EventBatch | None:
        """The next batch; None if none came in that time. Raises EventError for what is none."""
        if not self._live.poll(int(timeout_s * 1_000)):
            return None
        return self._batch(self._live.recv_multipart())

    def replay(self, first: int, timeout_s: float) -> Iterator[EventBatch]:
        """The batches from number `first` on that the engine still has.

        Raises EndpointError where there is no replay endpoint, or it does not answer.
        """
        if self.replay_address is None:
            raise EndpointError(
                f"batches before {first} cannot be asked for: name the engine's replay endpoint "
                "with --replay"
            )
        # A fresh one each time: a request that was never answered would come back as another's.
        socket = self._socket(self._zmq.DEALER, self.replay_address)
        try:
            socket.send_multipart((b"", first.to_bytes(8, "big")))
            while True:
                if not socket.poll(int(timeout_s * 1_000)):
                    raise EndpointError(
                        f"{self.replay_address} did not answer within {timeout_s:g} s; see "
                        "whether it is the engine's replay endpoint"
                    )
                frames = socket.recv_multipart()
                # Some releases send an empty delimiter first, as to a REQ socket.
                frames = frames[1:] if len(frames) > 2 and not frames[0] else frames
                if _is_end(frames):
                    return
                yield self._batch(frames)
        finally:
            socket.close(linger=0)

    def _socket(self, kind: int, address: str) -> Any:
        socket = self._context.socket(kind)
        try:
            socket.connect(address)
        except self._zmq.ZMQError as error:
            socket.close(linger=0)
            raise EndpointError(
                f"{address} is no endpoint that can be connected to ({said_by(error)}); write "
                "tcp://HOST:PORT, such as tcp://127.0.0.1:5557"
            ) from error
        return socket

    def _batch(self, frames: list[bytes]) -> EventBatch:
        """From (topic, number, payload), or without the topic."""
        if len(frames) < 2 or len(frames[-2]) != 8:
            raise EventError(
                f"{self.address} sent a message of {len(frames)} parts that is no batch of KV "
                "events: a topic, 8 bytes of number and a payload belong in it"
            )
        sequence = int.from_bytes(frames[-2], "big", signed=True)
        try:
            value = self._decode(frames[-1])
        except Exception as error:
            raise EventError(
                f"batch {sequence} of {self.address} is not msgpack: {said_by(error, 200)}"
            ) from error
        return batch_from(sequence, value)


def _is_end(frames: list[bytes]) -> bool:
    return any(
        len(frame) == 8 and int.from_bytes(frame, "big", signed=True) == _END
        for frame in frames[:-1]
    )


def _package(name: str, distribution: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EndpointError(
            f"listening to KV events needs {distribution}, which is not installed; run "
            "`pip install 'poolproof[events]'`"
        ) from error


def _decoder() -> Callable[[bytes], Any]:
    """msgspec's, which vLLM brings along, or msgpack's."""
    try:
        msgspec: Any = importlib.import_module("msgspec.msgpack")
    except ImportError:
        msgpack = _package("msgpack", "msgspec or msgpack")
        return lambda data: msgpack.unpackb(data, raw=False, strict_map_key=False)
    decode: Callable[[bytes], Any] = msgspec.decode
    return decode
