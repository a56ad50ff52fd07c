"""Pool and manager as a library with a C interface, for engines in other languages to link with.

    python -m poolproof.impl.c_interface FOLDER

writes FOLDER/poolproof.h, which says what each function does, and FOLDER/libpoolproof.so. The
library holds no second pool: cffi starts the interpreter that built it and calls `PoolFunctions`
and `ManagerFunctions` below, so that whatever is certified of the Python source holds for what C
gets. Needs cffi, a C compiler, and a Python with a shared library: `pip install
'poolproof[embed]'`.
"""

from __future__ import annotations

import re
import secrets
import sys
import sysconfig
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import ChunkedLocal, FullAttention, SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheBlocks, KVCacheManager
from poolproof.impl.kv_cache_request import ImageSpan, Request

__all__ = [
    "DECLARATIONS",
    "HEADER",
    "BuildError",
    "ManagerFunctions",
    "PoolFunctions",
    "bind",
    "build",
]

HEADER = Path(__file__).with_name("poolproof.h")
NONE, FEWER_FREE, MISUSE, FAILED = -1, -2, -3, -4
"""As in the header."""
ADAPTER, SALT, IMAGE = 1, 2, 3
DELAY_CACHE, WHOLE_MUST_FIT = 1, 2
_ID_BYTES = 8
_PREFIX = "poolproof_"

Given = ParamSpec("Given")


class BuildError(Exception):
    """The library cannot be built here; one line says why and what helps."""


Functions = TypeVar("Functions", bound="_Functions")


def _answering(
    method: Callable[Concatenate[Functions, Given], int],
) -> Callable[Concatenate[Functions, Given], int]:
    """What is raised becomes a negative number, and its words what `error` has."""

    @wraps(method)
    def answer(functions: Functions, /, *given: Given.args, **named: Given.kwargs) -> int:
        # The interpreter may go on with another thread in the middle of a method.
        with functions.turn:
            try:
                return method(functions, *given, **named)
            except MemoryError as error:
                return functions.failed(FEWER_FREE, error)
            except (ValueError, TypeError, IndexError) as error:
                return functions.failed(MISUSE, error)
            except Exception as error:  # noqa: BLE001 -- nothing may cross into C
                return functions.failed(FAILED, error)

    return answer


class _Shared:
    """Why the last call that failed did, and whose turn it is, for functions of both kinds."""

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self.error = ffi.new("char[]", b"")
        self.turn = Lock()

    def keep(self, error: Exception) -> None:
        self.error = self._ffi.new("char[]", str(error).encode("utf-8", "replace"))


class _Functions:
    """What calls with the pointers of an `ffi` have in common."""

    def __init__(self, ffi: Any, shared: _Shared) -> None:
        self._ffi, self._shared = ffi, shared
        self.turn = shared.turn

    def failed(self, number: int, error: Exception) -> int:
        """Keep the words of what went wrong, and return its number."""
        self._shared.keep(error)
        return number

    def _given(self, pointer: Any, count: int) -> Any:
        if count < 0:
            raise ValueError(f"a list cannot have {count} elements")
        if count and pointer == self._ffi.NULL:
            raise ValueError(f"a list of {count} elements is NULL")
        return pointer

    def _numbers(self, numbers: Any, count: int) -> list[int]:
        given = self._given(numbers, count)
        found: list[int] = self._ffi.unpack(given, count) if count else []
        return found

    def _written(self, block_ids: Any, blocks: list[int]) -> int:
        """How many they are."""
        if blocks:
            given = self._given(block_ids, len(blocks))
            self._ffi.buffer(given, _ID_BYTES * len(blocks))[:] = array("q", blocks).tobytes()
        return len(blocks)

    def _text(self, words: Any) -> str:
        if words == self._ffi.NULL:
            return ""
        found: str = self._ffi.string(words).decode("utf-8")
        return found


class PoolFunctions(_Functions):
    """The functions whose names begin with `poolproof_pool_`.

    A pool is a number and no pointer, so that one that was deleted is an error and no crash.
    """

    def __init__(self, ffi: Any, shared: _Shared) -> None:
        super().__init__(ffi, shared)
        self._pools: dict[int, tuple[BlockPool, int]] = {}
        self._num_made = 0

    def add(self, pool: BlockPool, hash_size: int) -> int:
        """The number of a pool that was made elsewhere."""
        self._num_made += 1
        self._pools[self._num_made] = pool, hash_size
        return self._num_made

    def drop(self, number: int) -> None:
        """Forget a pool, if it is there."""
        self._pools.pop(number, None)

    @_answering
    def pool_new(self, num_blocks: int, hash_size: int, options: Any) -> int:
        """A number that stands for the pool."""
        if hash_size < 1:
            raise ValueError(f"poolproof_pool_new: hash_size must be at least 1, not {hash_size}")
        arguments = _arguments("pool", self._text(options), _POOL_OPTIONS)
        return self.add(BlockPool(num_blocks, **arguments), hash_size)

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
        self._found(pool)[0].touch(self._numbers(block_ids, count))
        return 0

    @_answering
    def pool_free(self, pool: int, block_ids: Any, count: int) -> int:
        """One reference less for each."""
        self._found(pool)[0].free(self._numbers(block_ids, count))
        return 0

    @_answering
    def pool_cache(self, pool: int, block_ids: Any, hashes: Any, count: int) -> int:
        """A hash for each."""
        found, size = self._found(pool)
        found.cache(self._numbers(block_ids, count), self._hashes(hashes, count, size))
        return 0

    @_answering
    def pool_evict(self, pool: int, block_ids: Any, count: int) -> int:
        """No hash for any."""
        self._found(pool)[0].evict(self._numbers(block_ids, count))
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

    def _hashes(self, hashes: Any, count: int, size: int) -> list[bytes]:
        given = self._given(hashes, count)
        held = bytes(self._ffi.buffer(given, count * size)) if count else b""
        return [held[start : start + size] for start in range(0, count * size, size)]


@dataclass(slots=True)
class _Managed:
    """A manager with the requests that its caller knows by number, and what was found for them."""

    manager: KVCacheManager
    hasher: BlockHasher | None
    pool: int
    num_groups: int
    requests: dict[int, Request] = field(default_factory=dict)
    found: dict[int, tuple[KVCacheBlocks, int]] = field(default_factory=dict)

    def request(self, number: int) -> Request:
        """The request of a number. Raises ValueError."""
        try:
            return self.requests[number]
        except KeyError:
            raise ValueError(f"there is no request {number}, or it was deleted") from None


class ManagerFunctions(_Functions):
    """The functions whose names begin with `poolproof_manager_`."""

    def __init__(self, ffi: Any, shared: _Shared, pools: PoolFunctions) -> None:
        super().__init__(ffi, shared)
        self._pools = pools
        self._managers: dict[int, _Managed] = {}
        self._num_made = 0

    @_answering
    def manager_new(
        self, num_blocks: int, block_size: int, max_model_len: int, options: Any
    ) -> int:
        """A number that stands for the manager."""
        given = _arguments("manager", self._text(options), _MANAGER_OPTIONS)
        function, seed = given.pop("hash", "sha256"), given.pop("seed", None)
        manager = KVCacheManager(num_blocks, block_size, max_model_len=max_model_len, **given)
        hasher = BlockHasher(
            function,
            seed=secrets.token_bytes(32) if seed is None else seed,
            block_size=block_size,
        )
        pool = self._pools.add(manager.block_pool, _HASH_SIZES[function])
        self._num_made += 1
        groups = len(given.get("groups", (FullAttention(),)))
        caching = hasher if manager.enable_caching else None
        self._managers[self._num_made] = _Managed(manager, caching, pool, groups)
        return self._num_made

    @_answering
    def manager_delete(self, manager: int) -> int:
        """Forget the manager, its requests and its pool."""
        self._pools.drop(self._found(manager).pool)
        del self._managers[manager]
        return 0

    @_answering
    def manager_pool(self, manager: int) -> int:
        """The number of its pool."""
        return self._found(manager).pool

    @_answering
    def manager_request_new(  # noqa: PLR0917 -- C has no names for arguments
        self, manager: int, request: int, tokens: Any, count: int, keys: Any, num_keys: int
    ) -> int:
        """A request without blocks."""
        held = self._found(manager)
        if request in held.requests:
            raise ValueError(f"there is a request {request} already; delete it first")
        token_ids = self._tokens(tokens, count)
        extra = self._extra_keys(keys, num_keys)
        held.requests[request] = Request(str(request), token_ids, hasher=held.hasher, **extra)
        return 0

    @_answering
    def manager_request_append(self, manager: int, request: int, tokens: Any, count: int) -> int:
        """More tokens."""
        self._found(manager).request(request).append(self._tokens(tokens, count))
        return 0

    @_answering
    def manager_request_truncate(self, manager: int, request: int, num_tokens: int) -> int:
        """How many tokens are still computed."""
        held = self._found(manager)
        found = held.request(request)
        kept = held.manager.truncate(found, num_tokens)
        held.found.pop(request, None)
        found.num_computed_tokens = kept
        found.num_in_flight_tokens = min(found.num_in_flight_tokens, kept)
        found.truncate(num_tokens)
        return kept

    @_answering
    def manager_request_delete(self, manager: int, request: int) -> int:
        """No blocks, and no request."""
        held = self._found(manager)
        held.manager.free(held.request(request))
        del held.requests[request]
        held.found.pop(request, None)
        return 0

    @_answering
    def manager_computed_blocks(self, manager: int, request: int) -> int:
        """How many tokens are cached."""
        held = self._found(manager)
        found = held.manager.get_computed_blocks(held.request(request))
        held.found[request] = found
        return found[1]

    @_answering
    def manager_allocate_slots(  # noqa: PLR0917 -- C has no names for arguments
        self,
        manager: int,
        request: int,
        num_new_tokens: int,
        num_cached_tokens: int,
        num_lookahead_tokens: int,
        flags: int,
    ) -> int:
        """How many blocks were taken."""
        held = self._found(manager)
        asked = held.request(request)
        if flags & ~(DELAY_CACHE | WHOLE_MUST_FIT):
            raise ValueError(f"allocate_slots: there are no flags {flags}")
        blocks, num_found = held.found.get(request, (None, 0))
        if num_cached_tokens not in {0, num_found}:
            raise ValueError(
                f"allocate_slots: {num_cached_tokens} tokens of request {request} are said to be "
                f"cached; poolproof_manager_computed_blocks found {num_found} since its last slots"
            )
        new = held.manager.allocate_slots(
            asked,
            num_new_tokens,
            num_cached_tokens,
            blocks if num_cached_tokens else None,
            num_lookahead_tokens,
            delay_cache_blocks=bool(flags & DELAY_CACHE),
            full_sequence_must_fit=bool(flags & WHOLE_MUST_FIT),
        )
        if new is None:
            raise MemoryError(
                f"request {request} needs more blocks than the "
                f"{held.manager.block_pool.num_free()} that are free"
            )
        held.found.pop(request, None)
        asked.num_computed_tokens += num_cached_tokens
        return sum(map(len, new.blocks))

    @_answering
    def manager_set_computed(
        self, manager: int, request: int, num_tokens: int, num_in_flight: int
    ) -> int:
        """How far it is."""
        held = self._found(manager)
        found = held.request(request)
        if not 0 <= num_in_flight <= num_tokens <= found.num_tokens:
            raise ValueError(
                f"set_computed: of {found.num_tokens} tokens of request {request} {num_tokens} "
                f"cannot be computed, {num_in_flight} of them in flight"
            )
        if num_tokens and not any(held.manager.get_block_ids(found.request_id)):
            raise ValueError(f"set_computed: request {request} has no blocks")
        found.num_computed_tokens, found.num_in_flight_tokens = num_tokens, num_in_flight
        return 0

    @_answering
    def manager_cache_blocks(self, manager: int, request: int, num_tokens: int) -> int:
        """Its full blocks are found from now on."""
        held = self._found(manager)
        held.manager.cache_blocks(held.request(request), num_tokens)
        return 0

    @_answering
    def manager_new_step(self, manager: int) -> int:
        """A step begins."""
        self._found(manager).manager.new_step_starts()
        return 0

    @_answering
    def manager_preempt(self, manager: int, request: int) -> int:
        """Its blocks are free."""
        held = self._found(manager)
        found = held.request(request)
        held.manager.free(found)
        held.found.pop(request, None)
        found.num_computed_tokens = found.num_in_flight_tokens = 0
        found.num_preemptions += 1
        return 0

    @_answering
    def manager_block_table(self, manager: int, request: int, group: int, block_ids: Any) -> int:
        """How many blocks, and which."""
        held = self._found(manager)
        if not 0 <= group < held.num_groups:
            raise ValueError(f"there is no group {group} among {held.num_groups}")
        table = held.manager.get_block_ids(held.request(request).request_id)[group]
        return len(table) if block_ids == self._ffi.NULL else self._written(block_ids, table)

    @_answering
    def manager_reset_prefix_cache(self, manager: int) -> int:
        """Whether it is empty."""
        return int(self._found(manager).manager.reset_prefix_cache())

    def _found(self, manager: int) -> _Managed:
        try:
            return self._managers[manager]
        except KeyError:
            raise ValueError(f"manager {manager} is none, or was deleted") from None

    def _tokens(self, tokens: Any, count: int) -> list[int]:
        token_ids = self._numbers(tokens, count)
        if token_ids and min(token_ids) < 0:
            raise ValueError(f"a token is a number of at least 0, not {min(token_ids)}")
        return token_ids

    def _extra_keys(self, keys: Any, count: int) -> dict[str, Any]:
        """Adapter, salt and images as arguments of `Request`. Raises ValueError."""
        found: dict[str, Any] = {"lora": None, "salt": None, "images": []}
        given = self._given(keys, count)
        for place in range(count):
            key = given[place]
            name = self._text(key.name)
            if key.kind == IMAGE:
                if key.first_token < 0 or key.num_tokens < 1:
                    raise ValueError(
                        f"an image cannot have {key.num_tokens} tokens from {key.first_token} on"
                    )
                found["images"].append(ImageSpan(name, key.first_token, key.num_tokens))
                continue
            if key.kind not in {ADAPTER, SALT}:
                raise ValueError(f"there is no extra key of kind {key.kind}")
            made = LoRA(name, self._text(key.path)) if key.kind == ADAPTER else Salt(name)
            argument = "lora" if key.kind == ADAPTER else "salt"
            if found[argument] is not None:
                raise ValueError(f"a request has one {argument}, not two")
            found[argument] = made
        return found


def _arguments(
    what: str, options: str, known: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """`eviction=lru,null_block=0` as arguments. Raises ValueError."""
    found: dict[str, Any] = {}
    for part in filter(None, options.split(",")):
        name, is_given, value = part.partition("=")
        if not is_given or name not in known:
            raise ValueError(f"{part!r} is no option of a {what}; known are {', '.join(known)}")
        try:
            found[name] = known[name](value)
        except (ValueError, KeyError):
            raise ValueError(f"{name} cannot be {value!r}") from None
    return found


_POOL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "enable_caching": {"true": True, "false": False}.__getitem__,
    "null_block": int,
    **dict.fromkeys(("eviction", "duplicates", "recache", "null_in_lists", "misuse"), str),
}
"""Partial keys and events have no functions in the header."""

_HASH_SIZES = {"sha256": 32, "xxh128": 16, "xxh64": 8}


def _groups(text: str) -> tuple[FullAttention, ...]:
    return tuple(map(_group, text.split("+")))


def _group(text: str) -> FullAttention:
    kind, _, size = text.partition(":")
    if text == "full":
        return FullAttention()
    if kind == "window":
        return SlidingWindow(window=int(size))
    if kind == "chunk":
        return ChunkedLocal(chunk_size=int(size))
    raise ValueError(text)


_MANAGER_OPTIONS: dict[str, Callable[[str], Any]] = {
    "groups": _groups,
    "hash": {name: name for name in _HASH_SIZES}.__getitem__,
    "seed": bytes.fromhex,
    "enable_caching": _POOL_OPTIONS["enable_caching"],
    "use_eagle": _POOL_OPTIONS["enable_caching"],
}
"""Recurrent states are copied by whoever has them, and events are read in Python."""

DECLARATIONS = re.sub(
    r"^#ifdef __cplusplus.*?#endif$|/\*.*?\*/|^#.*?$",
    "",
    HEADER.read_text("utf-8"),
    flags=re.DOTALL | re.MULTILINE,
)
"""The header as cffi reads it: without comments, directives, and what is for C++."""

FUNCTIONS = tuple(re.findall(r"\b(poolproof_\w+)\(", DECLARATIONS))

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
from poolproof.impl.c_interface import bind
bind(ffi)
"""


def bind(ffi: Any) -> None:
    """Make the functions of the header call those above."""
    shared = _Shared(ffi)
    pools = PoolFunctions(ffi, shared)
    managers = ManagerFunctions(ffi, shared, pools)
    for name in FUNCTIONS:
        method = name.removeprefix(_PREFIX)
        if method == "error":
            ffi.def_extern(name=name)(lambda: shared.error)
            continue
        functions = managers if method.startswith("manager_") else pools
        # A call that ends in KeyboardInterrupt has this answer.
        ffi.def_extern(name=name, error=FAILED)(getattr(functions, method))


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
    builder.embedding_api(DECLARATIONS)
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
