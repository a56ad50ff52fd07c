"""The pool as a C library: each function of the header, what it answers, and a program over it."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from poolproof.impl import c_interface
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.c_interface import HEADER, BuildError, CFunctions, build

cffi = pytest.importorskip("cffi")

ROOT = Path(__file__).resolve().parents[2]
NONE, FEWER_FREE, MISUSE, FAILED = -1, -2, -3, -4
SIZE = 8
DECLARED = re.sub(
    r"/\*.*?\*/|^#.*?$", "", HEADER.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
)


class Caller:
    """Calls the functions with pointers, as C does, in this process."""

    def __init__(self):
        self.ffi = cffi.FFI()
        self.ffi.cdef(DECLARED)
        self.calls = CFunctions(self.ffi)

    def new(self, num_blocks=4, hash_size=SIZE, options=b""):
        given = self.ffi.NULL if options is None else self.ffi.new("char[]", options)
        return self.calls.pool_new(num_blocks, hash_size, given)

    def ids(self, *blocks):
        return self.ffi.new("int64_t[]", list(blocks) or 1)

    def hashes(self, *names):
        return self.ffi.new("uint8_t[]", b"".join(name.ljust(SIZE, b".") for name in names))

    def allocate(self, pool, count):
        block_ids = self.ffi.new("int64_t[]", 16)
        status = self.calls.pool_allocate(pool, count, block_ids)
        return list(block_ids[0:count]) if status == 0 else status

    @property
    def error(self):
        return self.ffi.string(self.calls.error()).decode()


@pytest.fixture
def c():
    return Caller()


def test_each_function_of_the_header_is_one_of_the_calls():
    declared = re.findall(r"\bpoolproof_(\w+)\(", DECLARED)
    methods = [name for name in vars(CFunctions) if not name.startswith("_")]
    assert sorted([*declared, "bind", "failed"]) == sorted(methods)


def test_the_functions_are_bound_by_the_names_of_the_header():
    bound = {}

    class Binding(cffi.FFI):
        def def_extern(self, name, **answers):
            return lambda method: bound.update({name: (method.__name__, answers)})

    CFunctions(Binding()).bind()
    assert bound["poolproof_pool_allocate"] == ("pool_allocate", {"error": FAILED})
    assert bound["poolproof_pool_new"] == ("pool_new", {"error": FAILED})
    assert bound["poolproof_error"] == ("error", {})


def test_the_numbers_of_what_goes_wrong_are_those_of_the_header(c):
    names = ("NONE", "FEWER_FREE", "MISUSE", "FAILED")
    library = c.ffi.dlopen(None)
    assert [getattr(library, f"POOLPROOF_{name}") for name in names] == [
        getattr(c_interface, name) for name in names
    ]


def test_blocks_are_taken_held_and_given_back_in_order(c):
    pool = c.new()
    assert c.allocate(pool, 3) == [0, 1, 2]
    assert c.calls.pool_touch(pool, c.ids(1), 1) == 0
    assert c.calls.pool_ref_count(pool, 1) == 2
    assert c.calls.pool_free(pool, c.ids(2, 1, 0), 3) == 0
    order = c.ids(9, 9, 9, 9)
    assert c.calls.pool_free_order(pool, order) == c.calls.pool_num_free(pool) == 3
    assert list(order) == [3, 2, 0, 9]
    before, after = c.ids(9), c.ids(9)
    assert c.calls.pool_free_neighbours(pool, 3, before, after) == 1
    assert (before[0], after[0]) == (NONE, 2)
    assert c.calls.pool_free_neighbours(pool, 1, before, after) == 0


def test_what_is_cached_is_found_until_it_is_evicted_or_forgotten(c):
    pool = c.new()
    held = c.allocate(pool, 2)
    assert c.calls.pool_cache(pool, c.ids(*held), c.hashes(b"a", b"b"), 2) == 0
    found = c.ids(9, 9, 9)
    assert c.calls.pool_lookup_prefix(pool, c.hashes(b"a", b"b", b"c"), 3, found) == 2
    assert list(found) == [0, 1, 9]
    carried = c.ffi.new("uint8_t[]", SIZE)
    assert c.calls.pool_block_hash(pool, 1, carried) == 1
    assert bytes(carried) == b"b......."
    assert c.calls.pool_evict(pool, c.ids(0), 1) == 0
    assert c.calls.pool_block_hash(pool, 0, carried) == 0
    assert c.calls.pool_lookup(pool, c.hashes(b"a")) == NONE
    assert c.calls.pool_lookup(pool, c.hashes(b"b")) == 1
    assert c.calls.pool_reset(pool) == 0
    c.calls.pool_free(pool, c.ids(*held), 2)
    assert c.calls.pool_reset(pool) == 1
    assert c.calls.pool_lookup(pool, c.hashes(b"b")) == NONE


def test_options_are_those_of_the_pool(c):
    pool = c.new(options=b"eviction=lifo,null_block=0,enable_caching=false")
    assert c.allocate(pool, 2) == [1, 2]
    c.calls.pool_free(pool, c.ids(1, 2), 2)
    assert c.allocate(pool, 2) == [2, 1]
    c.calls.pool_cache(pool, c.ids(1), c.hashes(b"a"), 1)
    assert c.calls.pool_lookup(pool, c.hashes(b"a")) == NONE
    assert c.new(options=None) == 2


def test_empty_lists_need_no_memory(c):
    pool = c.new()
    assert c.calls.pool_touch(pool, c.ffi.NULL, 0) == 0
    assert c.calls.pool_cache(pool, c.ffi.NULL, c.ffi.NULL, 0) == 0
    assert c.calls.pool_lookup_prefix(pool, c.ffi.NULL, 0, c.ffi.NULL) == 0
    assert c.allocate(pool, 0) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (b"size=1", "'size=1' is no option of a pool; known are enable_caching, null_block"),
        (b"eviction", "'eviction' is no option"),
        (b"null_block=first", "null_block cannot be 'first'"),
        (b"enable_caching=yes", "enable_caching cannot be 'yes'"),
        (b"eviction=random", "random"),
    ],
)
def test_a_pool_that_cannot_be_made_is_a_negative_number(c, options, words):
    assert c.new(options=options) == MISUSE
    assert words in c.error


def test_sizes_that_cannot_be_are_said(c):
    assert c.new(num_blocks=0) == MISUSE
    assert "num_blocks" in c.error
    assert c.new(hash_size=0) == MISUSE
    assert "hash_size must be at least 1, not 0" in c.error


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (lambda c, pool: c.allocate(pool, 5), FEWER_FREE, "5 blocks asked for, 4 of 4 free"),
        (lambda c, pool: c.allocate(pool, -1), MISUSE, "-1"),
        (lambda c, pool: c.calls.pool_allocate(pool, 2, c.ffi.NULL), MISUSE, "of 2 elements is"),
        (lambda c, pool: c.calls.pool_free(pool, c.ids(0), 1), MISUSE, "0"),
        (lambda c, pool: c.calls.pool_touch(pool, c.ids(0), -1), MISUSE, "cannot have -1 elements"),
        (lambda c, pool: c.calls.pool_touch(pool, c.ffi.NULL, 2), MISUSE, "of 2 elements is NULL"),
        (lambda c, pool: c.calls.pool_ref_count(pool, 4), MISUSE, "there is no block 4 among 4"),
        (lambda c, pool: c.calls.pool_ref_count(pool, -1), MISUSE, "there is no block -1 among 4"),
    ],
)
def test_what_is_refused_changes_nothing_and_says_why(c, call, status, words):
    pool = c.new()
    assert c.error == ""
    assert call(c, pool) == status
    assert words in c.error
    assert c.calls.pool_num_free(pool) == 4


def test_a_pool_that_was_deleted_is_an_error_and_others_stay(c):
    first, second = c.new(), c.new()
    assert c.calls.pool_delete(first) == 0
    for call in (c.calls.pool_num_free, c.calls.pool_delete):
        assert call(first) == MISUSE
        assert c.error == "pool 1 is none, or was deleted"
    assert c.calls.pool_num_free(0) == MISUSE
    assert c.calls.pool_num_free(second) == 4


def test_what_nobody_foresaw_does_not_cross_into_c(c, monkeypatch):
    def fails(pool):
        raise RuntimeError("out of order")

    monkeypatch.setattr(BlockPool, "num_free", fails)
    assert c.calls.pool_num_free(c.new()) == FAILED
    assert c.error == "out of order"


def test_what_keeps_a_library_from_being_built_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 0)
    with pytest.raises(BuildError, match="has no shared library to link with"):
        build(tmp_path)
    monkeypatch.setitem(sys.modules, "cffi", None)
    assert c_interface.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("poolproof: cffi is not installed; pip install")
    assert c_interface.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_the_path_of_an_environment_is_one_string_of_c():
    assert c_interface._wide("/usr/v1.0/bin/python3") == "/usr/v1.0/bin/python3"
    assert c_interface._wide('/a "b"\\/\u00e9') == r"/a\040\042b\042\134/\U000000e9"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example: the pool behind the protocol of programs, all of it in C."""
    compiler = shutil.which("cc")
    if compiler is None or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("there is no C compiler (cc) here, or no shared library of Python")
    folder = tmp_path_factory.mktemp("embedded")
    library = build(folder)
    sources = [ROOT / "examples/embedded/main.c", *(ROOT / "examples/c").glob("poolproof_*.c")]
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", *sources]
    command += [library, f"-Wl,-rpath,{folder}", "-o", folder / "embedded_pool"]
    subprocess.run(command, check=True)
    return folder / "embedded_pool"


def poolproof(*arguments):
    command = [sys.executable, "-m", "poolproof", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_in_c_embeds_the_pool(program):
    done = poolproof("protocol", "smoke", f"cmd:{program}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
def test_the_embedded_pool_holds_and_a_wrong_use_of_it_does_not(program, tmp_path):
    report = ["--depth", "quick", "--report", str(tmp_path)]
    done = poolproof("certify", f"cmd:{program}", *report)
    assert done.returncode == 0, done.stdout + done.stderr
    done = poolproof("certify", f"cmd:{program} --bug frees-backwards", *report)
    assert done.returncode == 1
    assert "ORD" in done.stdout
