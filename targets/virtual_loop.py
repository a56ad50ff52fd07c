"""An event loop of asyncio without a thread, a clock or sockets: it runs what is given to it.

Whoever gives it something from outside, as another thread would, finds it done as far as it comes.
Time passes where `pass_time` is called, and what an executor would do is left to `offload`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any

from poolproof.contract.adapter_fault import HandedOver

__all__ = ["VirtualLoop"]

Offload = Callable[[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"], None]

_BEGINNING = 1_000.0


class VirtualLoop(asyncio.AbstractEventLoop, HandedOver):
    """One that runs until nothing is ready, in the order in which things became ready.

    `offload` gets a function, its arguments and the future of its result. `wire` is what
    coroutines of this loop reach others by.
    """

    def __init__(self) -> None:
        self.offload: Offload = _nobody
        self.wire: Any = None
        self._now = _BEGINNING
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self._now

    def next_timer(self) -> float | None:
        """When somebody has waited long enough; None while nobody waits for that."""
        self._timers = [timer for timer in self._timers if not timer.cancelled()]
        return min((timer.when() for timer in self._timers), default=None)

    def pass_time(self, now: float) -> None:
        """It is so late now."""
        self._now = now
        due = [timer for timer in self._timers if timer.when() <= now]
        self._timers = [timer for timer in self._timers if timer.when() > now]
        self._ready.extend(sorted(due))
        self.run()

    def run(self) -> None:
        """Run what is ready, and what becomes ready by that."""
        before = asyncio._get_running_loop()  # noqa: SLF001 -- public for those who write loops
        asyncio._set_running_loop(self)  # noqa: SLF001 -- public for those who write loops
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 -- what a loop calls
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001 -- public for those who write loops

    def call_soon(  # type: ignore[override]  # the stub's generics add nothing here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # the stub's generics add nothing here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.call_soon(callback, *args, context=context)
        if asyncio._get_running_loop() is None:  # noqa: SLF001 -- public for those who write loops
            self.run()
        return handle

    def call_later(  # type: ignore[override]  # the stub's generics add nothing here
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the stub's generics add nothing here
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers.append(timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # the stub's generics add nothing here
        self, coro: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **kwargs)

    def run_in_executor(  # type: ignore[override]  # the stub's generics add nothing here
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        del executor
        future = self.create_future()
        self.offload(func, args, future)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task ends with an error that nobody asks for, or with its instance."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A handle that is cancelled says so; it is dropped with the next look."""


def _nobody(func: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]) -> None:
    del args, future
    raise TypeError(f"nobody is there to call {func.__name__}")
