"""Tests of the kernels: collected with `-m kernels`, or more behind it, where torch and triton are.

CI leaves out those that are deep as well: `-m "kernels and not deep"`.

The kernels are interpreted, and Triton decides that when they are imported, so the variable is set
here, before any test file is.
"""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def _are_asked_for(config: pytest.Config) -> bool:
    return config.getoption("markexpr", "").startswith("kernels")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    if not _are_asked_for(config):
        return True
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from poolproof.kernels.interpreter import prepare_interpreter

    torch.set_num_threads(1)
    prepare_interpreter()
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _are_asked_for(config):
        return  # To look at thousands of other tests would cost each process its time.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("kernels")
