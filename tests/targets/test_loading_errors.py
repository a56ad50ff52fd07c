"""Each way in which a target string can be wrong, and the message that it gives."""

from __future__ import annotations

import sys

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets import apart, installed_vllm
from poolproof.targets.load import load_target

GOOD = """
class Pool:
    profile = {"eviction": "lru"}
    def __init__(self, num_blocks, *, enable_caching=True): pass
    def allocate(self, n): return []
    def touch(self, block_ids): pass
    def free(self, block_ids): pass
    def cache(self, block_ids, hashes): pass
    def lookup(self, block_hash): return None
    def num_free(self): return 0
"""


def message(text: str, **options: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(text, **options)
    found = str(caught.value)
    assert found.count("\n") < 2, "more than two lines"
    return found


@pytest.fixture
def write(tmp_path):
    def write_file(text: str, name: str = "pool.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


def test_unknown_names_get_suggestions():
    found = message("implt")
    assert "unknown target 'implt'; did you mean impl" in found
    assert "reference, reference-queue, reference-index, reference-manager" in found
    assert "path/to/file.py:Class" in found
    assert "no target was given" in message("")


def test_a_file_without_a_class():
    assert "names a file but no class in it; write pool.py:Class" in message("pool.py")
    assert "names no class" in message("pool.py:")


def test_a_missing_file_and_a_folder(tmp_path):
    assert "absent.py does not exist" in message(f"{tmp_path}/absent.py:Pool")
    assert "is a folder" in message(f"{tmp_path}/:Pool")


def test_a_file_that_raises_names_the_users_line(write):
    path = write("def prepare():\n    return {}['key']\n\nprepare()\n")
    assert "cannot be imported: KeyError: 'key' (pool.py line 2)" in message(f"{path}:Pool")


def test_the_users_line_stands_even_when_a_library_raises(write):
    path = write("import json\n\njson.loads('{')\n")
    found = message(f"{path}:Pool")
    assert "JSONDecodeError" in found
    assert "(pool.py line 3)" in found


def test_a_syntax_error_names_its_line(write):
    found = message(f"{write('x = 1' + chr(10) + 'class Pool(:')}:Pool")
    assert "SyntaxError" in found
    assert "pool.py line 2" in found


def test_a_missing_dependency_is_named(write):
    found = message(f"{write('import a_module_that_is_not_there')}:Pool")
    assert "it needs the module a_module_that_is_not_there" in found
    assert sys.executable in found


def test_exiting_on_import(write):
    found = message(f"{write('import sys' + chr(10) + 'sys.exit(3)')}:Pool")
    assert "it exits the process with 3 (pool.py line 2)" in found


def test_a_failed_import_leaves_nothing_behind(write, tmp_path):
    before = (set(sys.modules), list(sys.path))
    message(f"{write('1 / 0')}:Pool")
    assert (set(sys.modules), list(sys.path)) == before


def test_a_missing_module_and_one_that_fails(write, tmp_path, monkeypatch):
    assert "there is no module no_such_package" in message("no_such_package.pool:Pool")
    write("import not_there_either", "failing_pool_module.py")
    write("1 / 0", "dividing_pool_module.py")
    monkeypatch.chdir(tmp_path)
    assert "needs the module not_there_either" in message("failing_pool_module:Pool")
    assert "ZeroDivisionError" in message("dividing_pool_module:Pool")


def test_a_package_of_the_checkout_that_cannot_be_imported_is_pointed_at(tmp_path):
    inner = tmp_path / "checkout" / "some_engine" / "core"
    inner.mkdir(parents=True)
    (inner / "pool.py").write_text("from some_engine.core.block import Block")
    checkout = tmp_path / "checkout"
    said = message(f"{inner / 'pool.py'}:Pool")
    assert f"it stands in {checkout}: set PYTHONPATH={checkout}, or install that folder" in said


def test_a_missing_class_lists_those_there(write):
    path = write(GOOD)
    assert "has no class Poll; its classes are Pool" in message(f"{path}:Poll")
    assert "it defines no class" in message(f"{write('x = 1', 'empty.py')}:Pool")


def test_something_that_is_no_class(write):
    assert "is not a class but int" in message(f"{write('Pool = 7')}:Pool")


def test_a_class_of_no_known_shape(write):
    found = message(f"{write('class Pool:' + chr(10) + '    def borrow(self): pass')}:Pool")
    assert "Pool has none of the known shapes" in found
    assert "it has borrow" in found


def test_a_class_that_lacks_methods(write):
    path = write(GOOD.replace("def lookup", "def look").replace("def touch", "def pin"))
    assert "Pool lacks lookup(), touch(), which a pool target needs" in message(f"{path}:Pool")


def test_a_queue_that_lacks_methods(write):
    path = write("class Q:\n    def __init__(self, n): pass\n    def popleft(self): pass\n")
    assert "Q lacks remove(), append(), num_free(), free_order()" in message(f"{path}:Q")


def test_a_constructor_with_other_arguments(write):
    path = write(GOOD.replace("*, enable_caching=True", "block_size"))
    found = message(f"{path}:Pool")
    assert "cannot be built as Pool(num_blocks, enable_caching=True)" in found
    assert "block_size" in found


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ('{"evictoin": "lru"}', "unknown profile key 'evictoin'"),
        ('{"eviction": "random"}', "'eviction' must be one of lru, unhashed-first"),
        ('"lru"', "profile must be a mapping"),
    ],
)
def test_a_profile_that_does_not_exist(write, profile, expected):
    path = write(GOOD.replace('{"eviction": "lru"}', profile))
    assert expected in message(f"{path}:Pool")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("impl[evict=lru]", "unknown profile key 'evict'"),
        ("impl[eviction=fifo]", "must be one of lru"),
        ("impl[eviction]", "'eviction' in 'impl[eviction]' is not key=value"),
        ("impl[eviction=lru,eviction=lifo]", "'eviction' stands twice"),
        ("impl[eviction=unspecified]", "eviction must be one of"),
        ("impl[retention=may-drop]", "impl has retention=exact only; `reference` takes every row"),
        ("impl-queue[misuse=ignores]", "always raises on misuse"),
        ("reference[duplicates=third]", "must be one of kept, first, last"),
    ],
)
def test_overrides_that_do_not_exist(text, expected):
    assert expected in message(text)


def test_an_api_that_does_not_exist_or_does_not_fit(write):
    assert "unknown --api 'v2'" in message("impl", api="v2")
    assert "impl is a native target; leave out --api vllm-v1" in message("impl", api="vllm-v1")
    path = write(GOOD)
    assert "Pool lacks get_new_blocks()" in message(f"{path}:Pool", api="vllm-v1")
    assert "Pool is a pool, not a queue" in message(f"{path}:Pool", api="queue")


def test_vllm_that_is_not_installed(monkeypatch):
    def import_module(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="vllm")

    monkeypatch.setattr(installed_vllm.importlib, "import_module", import_module)
    for name in ("vllm", "vllm-queue"):
        found = message(name)
        assert "vllm is not installed where Poolproof runs; run `make vllm`" in found


def test_vllm_that_cannot_be_imported(tmp_path, monkeypatch):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("import a_library_that_is_gone\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = message("vllm")
    assert "vllm is installed but vllm.v1.core.block_pool cannot be imported" in found
    assert "a_library_that_is_gone" in found


def test_a_constructor_that_raises_is_left_for_the_run(write):
    path = write(GOOD.replace("enable_caching=True): pass", "enable_caching=True): 1 / 0"))
    target = load_target(f"{path}:Pool")
    with pytest.raises(ZeroDivisionError):
        target.make(2, True)


VICIOUS = [
    "while True: pass", "raise SystemExit(3)", "x = [0] * 10**12",
    "import os; os.kill(os.getppid(), 9); os._exit(1)", "import os; os.kill(0, 9)",
    # A daemon holds open what its parent had open.
    "import os, time; os.fork() or (os.setsid(), time.sleep(3), os._exit(0)); os._exit(1)",
]  # fmt: skip


@pytest.mark.parametrize("body", VICIOUS)
def test_a_vicious_constructor_costs_no_command(write, monkeypatch, body):
    monkeypatch.setattr(apart, "_SECONDS", 0.3)
    text = GOOD.replace('profile = {"eviction": "lru"}', "x = 0").replace("def touch", "def pin")
    path = write(
        text.replace("=True): pass", f"=True):\n        self.profile = {{}}\n        {body}")
    )
    assert load_target(f"{path}:Pool").profile.assumed
