"""What all tests share: draws, cases that wait for CI, signals, and what the collector looks at.

What is drawn depends on nothing that happens to be imported. Newer releases of Hypothesis mix
constants into what they draw that they read from the source of every imported module of a checkout.
So what a derandomised run does depended on which tests had run before in the same process, and each
process that was forked to certify something read the whole checkout first, for more than a second.
Beside an installed Poolproof, as users have it and as CI tests every other interpreter, there are
none of these constants.
"""

import gc
import importlib
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import hypothesis.strategies
import pytest


def pytest_configure() -> None:
    """Leave the modules of the checkout unread."""
    try:
        providers = importlib.import_module("hypothesis.internal.conjecture.providers")
        none = providers._local_constants  # noqa: SLF001 - there is no public switch
    except (ImportError, AttributeError):
        return  # A release that reads none.
    providers._get_local_constants = lambda: none  # noqa: SLF001 - the same


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Two workers for each processor: tests wait for processes, and for limits of time to pass.

    One for each where every worker imports PyTorch and keeps it busy.
    """
    chosen = config.option.markexpr
    if any(heavy in chosen.replace(f"not {heavy}", "") for heavy in ("vllm", "kernels")):
        return None
    return 2 * (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--share K/M`: the K-th of M shares of the cases that wait for CI, to run them in turn."""
    parser.addoption("--share", metavar="K/M", type=_share, default=(0, 1))


def _share(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and int(of)):
        raise ValueError(text)
    return int(number) % int(of), int(of)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`some(n)`: of the cases of this test n run by default, evenly spread; the rest is deep.

    `some(0)` is for a test whose behaviour a shorter one shows as well: all of it is deep.
    """
    share, of = config.getoption("share")
    left_out: set[pytest.Item] = set()
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some"):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for of_one in cases.values():
        (number,) = next(of_one[0].iter_markers("some")).args
        kept = {len(of_one) * place // number for place in range(number)}
        waiting = [item for place, item in enumerate(of_one) if place not in kept]
        # Tests with few cases must not all begin in the same share.
        first = zlib.crc32(of_one[0].nodeid.encode()) if of > 1 else 0
        for place, item in enumerate(waiting):
            item.add_marker(pytest.mark.deep)
            if (first + place) % of != share:
                left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collector need look through it again.

    Thousands of tests cost a full collection more than a tenth of a second, in this process and in
    each one that is forked from it; every isolated target has one before it starts.
    """
    # Older releases of Hypothesis make their source of randomness with the first test, and ask
    # the collector who refers to it: frozen objects are not seen.
    _first_example()
    _leave_out_what_is_there()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file leaves behind stays as well: modules, caches, what pytest knows of its tests."""
    if nextitem is None or nextitem.path != item.path:
        _leave_out_what_is_there()


def _leave_out_what_is_there() -> None:
    """No later collection looks at what there is now."""
    gc.collect()
    gc.freeze()


@hypothesis.settings(max_examples=1, database=None)
@hypothesis.given(hypothesis.strategies.none())
def _first_example(_: None) -> None:
    """Hypothesis has run once."""


@pytest.fixture
def heeded_signals() -> Iterator[None]:
    """Signals that end a command are heeded here and in what is started, and not ignored.

    A shell starts what it runs in the background with SIGINT ignored, and nohup with SIGHUP.
    """
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.getsignal(getattr(signal, name)) for name in names}
    for name in names:
        usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
        if before[name] is signal.SIG_IGN:
            signal.signal(getattr(signal, name), usual)
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)
