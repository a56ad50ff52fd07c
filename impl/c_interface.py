"""`BlockPool` as a library with a C interface, for engines in other languages to link with.

    python -m poolproof.impl.c_interface FOLDER

writes FOLDER/poolproof.h, which says what each function does, and FOLDER/libpoolproof.so. The
library holds no second pool: cffi starts the interpreter that built it and calls `CFunctions`
below, so that whatever is certified of the Python source holds for what C gets. Needs cffi, a C
compiler, and a Python with a shared library: `pip install 'poolproof[embed]'`.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from array import array
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from poolproof.impl.block_pool import BlockPool

__all__ = ["HEADER", "BuildError", "CFunctions", "build"]

HEADER = Path(__file__).with_name("poolproof.h")
NONE, FEWER_FREE, MISUSE, FAILED = -1, -2, -3, -4
"""As in the header."""
_ID_BYTES = 8
_PREFIX = "poolproof_"

Given = ParamSpec("Given")


class BuildError(Exception):
    """The library cannot be built here; one line says why and what helps."""


def _answering(
    method: Callable[Concatenate[CFunctions, Given], int],
) -> Callable[Concatenate[CFunctions, Given], int]:
    """What is raised becomes a negative number, and its words what `error` has."""

    @wraps(method)
    def answer(functions: CFunctions, /, *given: Given.args, **named: Given.kwargs) -> int:
        try:
            return method(functions, *given, **named)
        except MemoryError as error:
            return functions.failed(FEWER_FREE, error)
        except (ValueError, TypeError, IndexError) as error:
            return functions.failed(MISUSE, error)
        except Exception as error:  # noqa: BLE001 -- nothing may cross into C
            return functions.failed(FAILED, error)

    return answer


class CFunctions:
    """The functions of the header, called with the pointers of an `ffi`.

    A pool is a number and no pointer, so that one that was deleted is an error and no crash.
    """

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self._pools: dict[int, tuple[BlockPool, int]] = {}
        self._num_made = 0
        self._error = ffi.new("char[]", b"")

    def bind(self) -> None:
        """Become what the library's functions call."""
        for name in FUNCTIONS:
            # A call that ends in KeyboardInterrupt has this answer.
            answers = {} if name == "poolproof_error" else {"error": FAILED}
            self._ffi.def_extern(name=name, **answers)(getattr(self, name.removeprefix(_PREFIX)))

    def failed(self, number: int, error: Exception) -> int:
        """Keep the words of what went wrong, and return its number."""
        self._error = self._ffi.new("char[]", str(error).encode("utf-8", "replace"))
        return number

    def error(self) -> Any:
        """Why the last call that failed did."""
        return self._error

    @_answering
    def pool_new(self, num_blocks: int, hash_size: int, options: Any) -> int:
        """A number that stands for the pool."""
        if hash_size < 1:
            raise ValueError(f"poolproof_pool_new: hash_size must be at least 1, not {hash_size}")
        text = "" if options == self._ffi.NULL else self._ffi.string(options).decode("utf-8")
        pool = BlockPool(num_blocks, **_arguments(text))
        self._num_made += 1
        self._pools[self._num_made] = pool, hash_size
        return self._num_made

    @_answering
    def pool_delete(self, pool: int) -> int:
        """Forget the pool."""
        self._found(pool)
        del self._pools[pool]
        return 0

    @_answering
    def pool_allocate(self, pool: int, count: int, block_ids: Any) -> int:
        """Blocks are written to `block_ids`."""
        found = self._found(pool)[0]
        # Before anything is taken: a list that is not there would lose the blocks.
        self._given(block_ids, max(0, min(count, found.num_blocks)))
        self._written(block_ids, found.allocate(count))
        return 0

    @_answering
    def pool_touch(self, pool: int, block_ids: Any, count: int) -> int:
        """One more reference for each."""
        self._found(pool)[0].touch(self._ids(block_ids, count))
        return 0

    @_answering
    def pool_free(self, pool: int, block_ids: Any, count: int) -> int:
        """One reference less for each."""
        self._found(pool)[0].free(self._ids(block_ids, count))
        return 0

    @_answering
    def pool_cache(self, pool: int, block_ids: Any, hashes: Any, count: int) -> int:
        """A hash for each."""
        found, size = self._found(pool)
        found.cache(self._ids(block_ids, count), self._hashes(hashes, count, size))
        return 0

    @_answering
    def pool_evict(self, pool: int, block_ids: Any, count: int) -> int:
        """No hash for any."""
        self._found(pool)[0].evict(self._ids(block_ids, count))
        return 0

    @_answering
    def pool_lookup_prefix(self, pool: int, hashes: Any, count: int, block_ids: Any) -> int:
        """How many are found."""
        found, size = self._found(pool)
        return self._written(block_ids, found.lookup_prefix(self._hashes(hashes, count, size)))

    @_answering
    def pool_lookup(self, pool: int, block_hash: Any) -> int:
        """A block that carries it."""
        found, size = self._found(pool)
        carrier = found.lookup(self._hashes(block_hash, 1, size)[0])
        return NONE if carrier is None else carrier

    @_answering
    def pool_reset(self, pool: int) -> int:
        """Whether every hash is forgotten."""
        return int(self._found(pool)[0].reset())

    @_answering
    def pool_num_free(self, pool: int) -> int:
        """How many are free."""
        return self._found(pool)[0].num_free()

    @_answering
    def pool_ref_count(self, pool: int, block_id: int) -> int:
        """How many hold it."""
        return self._of(pool, block_id)[0].ref_count(block_id)

    @_answering
    def pool_free_order(self, pool: int, block_ids: Any) -> int:
        """How many are free, and which."""
        return self._written(block_ids, self._found(pool)[0].free_order())

    @_answering
    def pool_free_neighbours(self, pool: int, block_id: int, before: Any, after: Any) -> int:
        """Whether it is free, and between which."""
        neighbours = self._of(pool, block_id)[0].free_neighbours(block_id)
        if neighbours is None:
            return 0
        for pointer, block in zip((before, after), neighbours, strict=True):
            self._given(pointer, 1)[0] = NONE if block is None else block
        return 1

    @_answering
    def pool_block_hash(self, pool: int, block_id: int, block_hash: Any) -> int:
        """Whether it has one."""
        found, size = self._of(pool, block_id)
        carried = found.block_hash(block_id)
        if carried is None:
            return 0
        self._ffi.buffer(self._given(block_hash, 1), size)[:] = carried
        return 1

    def _found(self, pool: int) -> tuple[BlockPool, int]:
        try:
            return self._pools[pool]
        except KeyError:
            raise ValueError(f"pool {pool} is none, or was deleted") from None

    def _of(self, pool: int, block_id: int) -> tuple[BlockPool, int]:
        """The pool, if it has such a block."""
        found = self._found(pool)
        if not 0 <= block_id < found[0].num_blocks:
            raise ValueError(f"there is no block {block_id} among {found[0].num_blocks}")
        return found

    def _given(self, pointer: Any, count: int) -> Any:
        if count < 0:
            raise ValueError(f"a list cannot have {count} elements")
        if count and pointer == self._ffi.NULL:
            raise ValueError(f"a list of {count} elements is NULL")
        return pointer

    def _ids(self, block_ids: Any, count: int) -> list[int]:
        given = self._given(block_ids, count)
        found: list[int] = self._ffi.unpack(given, count) if count else []
        return found

    def _hashes(self, hashes: Any, count: int, size: int) -> list[bytes]:
        given = self._given(hashes, count)
        held = bytes(self._ffi.buffer(given, count * size)) if count else b""
        return [held[start : start + size] for start in range(0, count * size, size)]

    def _written(self, block_ids: Any, blocks: list[int]) -> int:
        """How many they are."""
        if blocks:
            given = self._given(block_ids, len(blocks))
            self._ffi.buffer(given, _ID_BYTES * len(blocks))[:] = array("q", blocks).tobytes()
        return len(blocks)


def _arguments(options: str) -> dict[str, Any]:
    """`eviction=lru,null_block=0` as arguments of `BlockPool`. Raises ValueError."""
    found: dict[str, Any] = {}
    for part in filter(None, options.split(",")):
        name, is_given, value = part.partition("=")
        if not is_given or name not in _OPTIONS:
            raise ValueError(f"{part!r} is no option of a pool; known are {', '.join(_OPTIONS)}")
        try:
            found[name] = _OPTIONS[name](value)
        except (ValueError, KeyError):
            raise ValueError(f"{name} cannot be {value!r}") from None
    return found


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "enable_caching": {"true": True, "false": False}.__getitem__,
    "null_block": int,
    **dict.fromkeys(("eviction", "duplicates", "recache", "null_in_lists", "misuse"), str),
}
"""Partial keys and events have no functions in the header."""

_DECLARED = re.sub(
    r"/\*.*?\*/|^#.*?$", "", HEADER.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
)
"""The header as cffi reads it: without comments and directives."""

FUNCTIONS = tuple(re.findall(r"\b(poolproof_\w+)\(", _DECLARED))

_FIND = """
#include "{header}"

/* Before the interpreter starts: it is to find the packages of the environment that built this.
 * Deprecated since Python 3.11 for a call that cffi, which starts it, does not make. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
__attribute__((constructor)) static void find_environment(void) {{
    if (!Py_IsInitialized()) Py_SetProgramName(L"{python}");
}}
"""

_START = """
from _poolproof_c import ffi
from poolproof.impl.c_interface import CFunctions
CFunctions(ffi).bind()
"""


def build(folder: Path) -> Path:
    """Write header and library into the folder, and return the library. Raises BuildError."""
    try:
        import cffi
    except ImportError:
        raise BuildError("cffi is not installed; pip install 'poolproof[embed]'") from None
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise BuildError(
            f"{sys.executable} has no shared library to link with; use a Python that was built "
            "with --enable-shared, such as a distribution's own"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HEADER.name).write_text(HEADER.read_text("utf-8"), "utf-8")
    builder = cffi.FFI()
    builder.embedding_api(_DECLARED)
    source = _FIND.format(header=HEADER.name, python=_wide(sys.executable))
    builder.set_source("_poolproof_c", source, include_dirs=[str(folder.resolve())])
    builder.embedding_init_code(_START)
    try:
        return Path(builder.compile(tmpdir=str(folder), target="libpoolproof.*"))
    except Exception as error:  # cffi and setuptools raise classes of their own by version
        raise BuildError(
            f"the library was not compiled: {error}; is there a C compiler?"
        ) from error


def _wide(text: str) -> str:
    """What stands between the quotes of a wide string in C."""
    written = (f"\\{ord(one):03o}" if one.isascii() else f"\\U{ord(one):08x}" for one in text)
    is_plain = re.compile(r"[A-Za-z0-9/._-]").match
    return "".join(one if is_plain(one) else code for one, code in zip(text, written, strict=True))


def main(arguments: list[str]) -> int:
    """The exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m poolproof.impl.c_interface FOLDER", file=sys.stderr)
        return 2
    try:
        library = build(Path(arguments[0]))
    except (BuildError, OSError) as error:
        print(f"poolproof: {error}", file=sys.stderr)
        return 2
    print(f"wrote {library.parent / HEADER.name} and {library}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
