"""What all tests share: what Hypothesis draws depends on nothing that happens to be imported.

Newer releases of Hypothesis mix constants into what they draw that they read from the source of
every imported module of a checkout. So what a derandomised run does depended on which tests had run
before in the same process, and each process that was forked to certify something read the whole
checkout first, for more than a second. Beside an installed Poolproof, as users have it and as CI
tests every other interpreter, there are none of these constants.
"""

import importlib


def pytest_configure() -> None:
    """Leave the modules of the checkout unread."""
    try:
        providers = importlib.import_module("hypothesis.internal.conjecture.providers")
        none = providers._local_constants  # noqa: SLF001 - there is no public switch
    except (ImportError, AttributeError):
        return  # A release that reads none.
    providers._get_local_constants = lambda: none  # noqa: SLF001 - the same
