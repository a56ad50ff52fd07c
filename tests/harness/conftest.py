"""What tests of processes need before they begin."""

import gc
from multiprocessing import resource_tracker

import pytest

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
