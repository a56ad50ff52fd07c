"""How many processes run the tests."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"


@pytest.mark.parametrize(
    ("chosen", "each"),
    [
        ("not vllm and not deep and not kernels and not ray", 2),
        ("", 2),
        ("deep and some", 2),
        ("vllm", None),
        ("kernels and not deep", None),
    ],
)
def test_each_processor_has_two_workers_unless_these_import_pytorch(chosen, each):
    spec = importlib.util.spec_from_file_location("conftest_of_the_checkout", CONFTEST)
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    config = SimpleNamespace(option=SimpleNamespace(markexpr=chosen))
    asked = conftest.pytest_xdist_auto_num_workers(config)
    assert asked == (each and each * os.cpu_count())
