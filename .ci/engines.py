"""Fetch the wheels of the engines that are read as source, and unpack what the adapters import.

Usage: python .ci/engines.py FOLDER

FOLDER/NAME-VERSION/ then holds the engine's own files, unmodified, with its licence.  Nothing of
an engine is installed or run: a wheel is a zip file, and its hash is pinned here.  An engine whose
folder is complete is left as it is.  A wheel that already lies in FOLDER/wheels is not fetched
again, so that a machine without a network can be given the files by hand.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

# The wheels are read, not installed: whichever interpreter runs this, it takes the same ones.
ANY_WHEEL = [
    *("--no-deps", "--only-binary", ":all:", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311", "--abi", "none"),
    *("--platform", "manylinux1_x86_64", "--platform", "manylinux_2_28_x86_64"),
    *("--platform", "manylinux_2_34_x86_64", "--platform", "any"),
]
COMPLETE = ".complete"


@dataclass(frozen=True)
class Engine:
    """A pinned wheel, and which of its members are wanted (a name, or a folder ending in /)."""

    pin: str
    wheel: str
    sha256: str
    members: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The name of its folder: NAME-VERSION."""
        return self.pin.replace("==", "-")


ENGINES = (
    # The last release of the block manager that the V0 documents describe.
    Engine(
        "vllm==0.2.7",
        "vllm-0.2.7-cp311-cp311-manylinux1_x86_64.whl",
        "adb96ec1c18b40f59cefb849425be4d1a247ab6489b69ff072867d62ffe83ce4",
        (
            "vllm/block.py",
            "vllm/core/block_manager.py",
            "vllm/core/policy.py",
            "vllm/core/scheduler.py",
            "vllm/sampling_params.py",
            "vllm/sequence.py",
            "vllm/utils.py",
            "vllm-0.2.7.dist-info/LICENSE",
        ),
    ),
    Engine(
        "sglang==0.5.23",
        "sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl",
        "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
        ("sglang/srt/", "sglang/kernels/ops/attention/", "sglang-0.5.23.dist-info/"),
    ),
    Engine(
        "lmcache==0.5.6",
        "lmcache-0.5.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "14530ff72b96056e894c9b8dc70c10d019e7802799bbfde9cec298700b799194",
        ("lmcache/", "lmcache-0.5.6.dist-info/"),
    ),
    # nano-vLLM itself is on no package index.  This port carries its block manager of August 2025
    # (commit df99418) with another package name and nothing else changed but two line breaks.
    Engine(
        "nano-vllm-npu==0.0.2",
        "nano_vllm_npu-0.0.2-py3-none-any.whl",
        "14ad6de3a8ba42103489c0f540db25f86f02390548f43871a62533e99d4875d2",
        (
            "nanovllmnpu/engine/block_manager.py",
            "nanovllmnpu/engine/sequence.py",
            "nanovllmnpu/sampling_params.py",
            "nano_vllm_npu-0.0.2.dist-info/",
        ),
    ),
)


def digest(path: Path) -> str:
    """Hash a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(engine: Engine, wheels: Path) -> Path:
    """Return the wheel with the pinned hash, from `wheels` or from the package index."""
    wheel = wheels / engine.wheel
    if not wheel.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        command = [*pip, "--quiet", *ANY_WHEEL, "--dest", str(wheels), engine.pin]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode or not wheel.exists():
            reason = (done.stderr.strip() or f"no {engine.wheel} among its files").splitlines()[-1]
            sys.exit(
                f"{engine.pin} could not be fetched: {reason}\n"
                f"With a network, run this again; without one, put {engine.wheel} into {wheels}."
            )
    found = digest(wheel)
    if found != engine.sha256:
        sys.exit(
            f"{wheel} has SHA-256 {found}, not {engine.sha256}: it is not the file that was looked "
            "at. Remove it and run this again."
        )
    return wheel


def unpack(engine: Engine, wheel: Path, folder: Path) -> int:
    """Put the wanted members into the engine's folder, whole or not at all; return how many."""
    with (
        zipfile.ZipFile(wheel) as archive,
        tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as scratch,
    ):
        folders = tuple(member for member in engine.members if member.endswith("/"))
        wanted = [
            name
            for name in archive.namelist()
            if name in engine.members
            or (name.startswith(folders) and (name.endswith(".py") or ".dist-info/" in name))
        ]
        missing = sorted(set(engine.members).difference(wanted, folders))
        if missing:
            sys.exit(f"{wheel.name} has no {', '.join(missing)}")
        archive.extractall(scratch, wanted)
        (Path(scratch) / COMPLETE).write_text(f"{engine.sha256}\n", "utf-8")
        place = folder / engine.folder
        shutil.rmtree(place, ignore_errors=True)
        Path(scratch).rename(place)
        # What the context manager removes at its end.
        Path(scratch).mkdir()
    return len(wanted)


def is_complete(engine: Engine, place: Path) -> bool:
    """Whether a folder was made of this wheel, and has every member that is wanted now."""
    complete = place / COMPLETE
    if not complete.exists() or complete.read_text("utf-8").strip() != engine.sha256:
        return False
    return all((place / member).exists() for member in engine.members)


def main() -> None:
    """Prepare every engine that is not complete yet."""
    folder = Path(sys.argv[1])
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for engine in ENGINES:
        if is_complete(engine, folder / engine.folder):
            print(f"{folder / engine.folder} is complete")
            continue
        count = unpack(engine, fetch(engine, wheels), folder)
        print(f"{folder / engine.folder}: {count} files of {engine.wheel}")


if __name__ == "__main__":
    main()
