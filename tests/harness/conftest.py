"""What tests of processes need before they begin, and how commands are carried out by hand."""

import gc
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

import pytest

from poolproof.contract.commands import Command
from poolproof.contract.violation import Violation
from poolproof.harness.isolation.process_tree import end_children


@pytest.fixture
def no_children() -> None:
    """End what earlier tests may have left: the tracker that `spawn` starts once, and orphans."""
    gc.collect()
    # The standard library offers no public way to end it.
    tracker = resource_tracker._resource_tracker  # noqa: SLF001 - see above
    if tracker._fd is not None:  # noqa: SLF001 - see above
        tracker._stop()  # noqa: SLF001 - see above
    end_children()


@pytest.fixture
def run() -> Callable[..., Violation | None]:
    """Carries commands out, all of them defined, and answers the first violation."""

    def first(session: Any, *commands: Command) -> Violation | None:
        for command in commands:
            assert session.is_defined(command), command
            violation: Violation | None = session.step(command)
            if violation is not None:
                return violation
        return None

    return first
