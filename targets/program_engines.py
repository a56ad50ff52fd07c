"""Engines in other languages that `poolproof engines` fetches and builds into programs.

The engine's own sources are compiled unmodified, beside a program of ours below `targets/programs`
that plays the engine's scheduler and speaks the protocol (docs/protocol.md). Nothing is fetched but
those sources: crates that they use and the bookkeeping hardly needs have stand-ins beside the
program. Building takes some seconds, and is done again where the sources, the program or the
compiler have changed. The program is then a target like any other (`command_target.py`).

The server part is `examples/rust/poolproof`, so these engines need a checkout of Poolproof.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.command_target import command_target
from poolproof.targets.source_engines import PublishedEngine, fetched_folder
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

__all__ = ["MISTRALRS", "SERVER_SOURCES", "TGI", "ProgramEngine", "built_program", "program_target"]


@dataclass(frozen=True, kw_only=True)
class ProgramEngine(PublishedEngine):
    """One engine in Rust; `modules` are compiled into the program under these names."""

    modules: Mapping[str, str] = field(default_factory=dict)
    """Module names, each with its path in the repository."""
    program: str = ""
    """Our program below `targets/programs`."""
    stand_ins: Sequence[str] = ()
    """Crates that have one."""
    compiler: str = "rustc"


def program_target(engine: ProgramEngine, name: str, overrides: Mapping[str, Any]) -> Target:
    """The target `name`: the engine as it was fetched, or the checkout behind a colon.

    Raises TargetError where it has not been fetched, or the compiler is missing or refuses it.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    program = built_program(engine, Path(path).expanduser() if path else None)
    target = command_target(name, f"cmd:{shlex.quote(str(program))}", overrides)
    return replace(target, notes=(*target.notes, *engine.notes))


def built_program(engine: ProgramEngine, root: Path | None = None) -> Path:
    """The engine's program, built if it has to be. Raises TargetError in one line."""
    sources = root or fetched_folder(engine)
    for path in engine.modules.values():
        if not (sources / path).is_file():
            raise engine.no_checkout(sources, path)
    if not SERVER_SOURCES.is_dir():
        raise TargetError(
            f"{engine.name} is built together with examples/rust/poolproof, which is not installed "
            "with Poolproof; use a checkout of it"
        )
    compiler = shutil.which(engine.compiler)
    if compiler is None:
        raise TargetError(f"{engine.name} needs {engine.compiler}, which is not installed")
    build = _Build(engine, sources.resolve(), SERVER_SOURCES, compiler)
    program = sources / "program" / build.digest() / engine.name
    if not program.is_file():
        try:
            program.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=program.parent, prefix=".building-") as scratch:
                build.run(Path(scratch)).rename(program)
        except OSError as error:
            raise TargetError(f"{engine.name} cannot be built in {sources}: {error}") from error
    return program.resolve()


_CHECKOUT = Path(__file__).resolve().parent.parent
SERVER_SOURCES = _CHECKOUT / "examples" / "rust" / "poolproof" / "src"
"""The server that each program is built with; it is not there in an installed Poolproof."""
_PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True)
class _Build:
    engine: ProgramEngine
    sources: Path
    server: Path
    compiler: str

    def digest(self) -> str:
        """What the program is made of: the next one is built elsewhere."""
        version = subprocess.run(
            [self.compiler, "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL
        ).stdout
        files = [
            *(self.sources / path for path in self.engine.modules.values()),
            _PROGRAMS / self.engine.program,
            *map(_stand_in, self.engine.stand_ins),
            *sorted(self.server.glob("*.rs")),
        ]
        made_of = [version, json.dumps(self._settings()).encode()]
        made_of += [hashlib.sha256(file.read_bytes()).digest() for file in files]
        return hashlib.sha256(b"\0".join(made_of)).hexdigest()[:12]

    def run(self, scratch: Path) -> Path:
        """Compile the stand-ins, the server and the program, each as a crate of its own."""
        crates = {name: _stand_in(name) for name in self.engine.stand_ins}
        crates["poolproof"] = self.server / "lib.rs"
        for name, path in crates.items():
            self._compile(scratch, path, "--crate-type=rlib", f"--crate-name={name}")
        modules = "".join(
            f'#[allow(warnings)]\n#[path = "{self.sources / path}"]\nmod {name};\n'
            for name, path in self.engine.modules.items()
        )
        (scratch / "modules.rs").write_text(modules, encoding="utf-8")
        externs = [f"--extern={name}" for name in crates]
        path = _PROGRAMS / self.engine.program
        self._compile(scratch, path, *externs, "-o", str(scratch / self.engine.name))
        return scratch / self.engine.name

    def _settings(self) -> dict[str, str]:
        return {
            "POOLPROOF_ENGINE_VERSION": self.engine.commit[:7],
            "POOLPROOF_ENGINE_PROFILE": json.dumps(self.engine.rows),
        }

    def _compile(self, scratch: Path, path: Path, *options: str) -> None:
        # Debug assertions are what engines check themselves with, and overflow is an error.
        command = [self.compiler, "--edition=2021", "-Copt-level=2", "-Cdebug-assertions=on"]
        command += ["--cap-lints=allow", f"-L{scratch}", f"--out-dir={scratch}", *options]
        modules = {"POOLPROOF_ENGINE_MODULES": str(scratch / "modules.rs")}
        done = subprocess.run(
            [*command, str(path)], capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, **self._settings(), **modules},
        )  # fmt: skip
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("error")]
            what = said[0] if said else f"{self.engine.compiler} ended with {done.returncode}"
            raise TargetError(
                f"{self.engine.name} does not build from {self.sources}: {what}; the program was "
                f"written for commit {self.engine.commit[:7]} of {self.engine.address}"
            )


def _stand_in(name: str) -> Path:
    return _PROGRAMS / "stand_ins" / f"{name}.rs"


_TGI_SOURCES = "backends/v3/src"

TGI = ProgramEngine(
    name="tgi",
    what="the BlockAllocator of Hugging Face's TGI over its radix trie (Rust)",
    address="https://github.com/huggingface/text-generation-inference",
    commit="db931fcf42da018a3657580c64bf2720f167f9ab",
    files=(f"{_TGI_SOURCES}/block_allocator.rs", f"{_TGI_SOURCES}/radix.rs", "LICENSE"),
    modules={
        "block_allocator": f"{_TGI_SOURCES}/block_allocator.rs",
        "radix": f"{_TGI_SOURCES}/radix.rs",
    },
    program="tgi.rs",
    stand_ins=("slotmap", "text_generation_router", "tokio", "tracing"),
    rows={
        # Block 0 is kept for health checks.
        "null_block": 0,
        # The prompt of a request goes into the trie when its allocation is dropped.
        "publishes": "finish",
        # A whole prompt may be found; its last token is then computed again, in place.
        "index": "content",
        "hits": "sound",
        "generation_tokens": 8,
        # The unused end of a node that somebody uses is not evicted.
        "admission": "sound",
        "duplicates": "first",
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    notes=(
        "adapters, salts and images: other tokens; the server turns the trie off for adapters",
        "max_new_tokens is 9 for each request, so that its slots end 8 tokens behind its prompt",
        "windows, Gaudi: not driven; forks, truncation, drafts, preemption: there are none",
        "tokio, tracing, slotmap and the router's Env are stand-ins",
    ),
)  # fmt: skip

_MISTRALRS_SOURCES = "mistralrs-core/src/paged_attention"
_MISTRALRS_MODULES = ("block_hash", "block_pool", "kv_cache_manager")

MISTRALRS = ProgramEngine(
    name="mistralrs",
    what="the KVCacheManager of mistral.rs over its BlockPool (Rust)",
    address="https://github.com/EricLBuehler/mistral.rs",
    commit="9e922623f24b32d41f3892b74f0eed18707f4e6c",
    files=(*(f"{_MISTRALRS_SOURCES}/{name}.rs" for name in _MISTRALRS_MODULES), "LICENSE"),
    modules={name: f"{_MISTRALRS_SOURCES}/{name}.rs" for name in _MISTRALRS_MODULES},
    program="mistralrs.rs",
    stand_ins=("metrics", "tracing"),
    rows={
        "null_block": 0,
        "publishes": "computed",
        "index": "exact",
        "hits": "exact",
        "full_hit": "recompute-token",
        "duplicates": "kept",
        "never": "untold",
        "collisions": "trusted",
        "eviction": "lru",
        "release_order": "tail-first",
        "misuse": "undefined",
    },
    notes=(
        "adapters are generations, as the engine numbers them; images attend causally",
        "trimming after speculation, several groups, chunked prompts: not driven",
        "metrics and tracing are stand-ins",
    ),
)
