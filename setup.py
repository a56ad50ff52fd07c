"""Compute what goes into the wheel; everything else is declared in pyproject.toml.

Why this is code and not a list in pyproject.toml: folder ``x/`` at the top of the tree is the
package ``poolproof.x`` and ``interface/`` is ``poolproof`` itself.  setuptools can rename folders
(``package-dir``) and can find packages, but ``packages.find`` does not apply the renaming, so
beside a renaming the packages have to be listed one by one, nested ones included.  A list kept by
hand fails silently: a nested folder that it misses works in an editable install, which looks at
the tree, and is absent from the wheel.  So the list is read off the tree here, and
``.ci/compare_wheel.py`` holds the finished wheel against the tracked files by a rule of its own.

The rule: a top-level folder is a package if and only if it has an ``__init__.py``; below it every
folder that holds Python files, however deep, is a package, and every other file is data.

With POOLPROOF_COMPILE=1 in the environment the modules through which every step of a run goes are
compiled by Cython as well, from the same sources, and the wheel is one for this machine.  The
statements that verdicts quote, ``contract/`` and ``invariants/``, are never compiled.
"""

import atexit
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
ROOT_PACKAGE = "poolproof"
ROOT_FOLDER = "interface"
# The manual, which `poolproof explain` quotes.  Only its pages are packed; generators/, which makes
# their tables, stays out.
MANUAL = "docs"

COMPILES = os.environ.get("POOLPROOF_COMPILE", "0") == "1"
# 3.2 fails inside its own compiler on `match`; a major release may change what code means.
CYTHON = "cython>=3.3,<4"
# Where a step spends its time.  exploration/orbit_space.py was tried and got slower by a third, and
# harness/isolation/ is known by its frames on a child's stack, where compiled ones do not show.
COMPILED = (
    "fuzz/manager_states.py",
    "fuzz/novelty_graph.py",
    "fuzz/one_block.py",
    "fuzz/pool_run.py",
    "fuzz/recorded_choices.py",
    "harness/choices.py",
    "harness/engine_facts.py",
    "harness/engine_session.py",
    "harness/engine_workload.py",
    "harness/event_mirror.py",
    "harness/every_invariant.py",
    "harness/facts.py",
    "harness/manager_admissions.py",
    "harness/manager_cache.py",
    "harness/manager_calls.py",
    "harness/manager_endings.py",
    "harness/manager_facts.py",
    "harness/manager_growth.py",
    "harness/manager_memory.py",
    "harness/manager_prompts.py",
    "harness/manager_session.py",
    "harness/manager_tables.py",
    "harness/manager_workload.py",
    "harness/pool_check.py",
    "harness/pool_judges.py",
    "harness/pool_session.py",
    "harness/pool_workload.py",
    # The core of impl/: one source that is quick both ways, with types beside it (.pxd).
    "impl/block_loops.py",
    "impl/key_table.py",
    "reference/content_names.py",
    "reference/dict_pool.py",
    "reference/engine_model.py",
    "reference/recurrent_states.py",
    "reference/sequence_model.py",
    "reference/sequence_needs.py",
    "reference/shadow_memory.py",
    "reference/state_starts.py",
    "reference/step_oracle.py",
)


def visible(path: Path) -> bool:
    """Tell whether a file or folder belongs to the project, not to a tool that ran here."""
    return not path.name.startswith(".") and path.name != "__pycache__"


def is_python_folder(folder: Path) -> bool:
    """Tell whether a folder is a package: it holds Python files, at whatever depth."""
    return any(folder.rglob("*.py"))


def packages_below(folder: Path, name: str) -> dict[str, Path]:
    """Name the package in a folder and all that are nested in it, at any depth."""
    found = {name: folder}
    for child in sorted(folder.iterdir()):
        if child.is_dir() and visible(child) and is_python_folder(child):
            found.update(packages_below(child, f"{name}.{child.name}"))
    return found


def data_below(folder: Path, inside: Path) -> list[str]:
    """List the data files of one package, those in folders that are no packages included."""
    found: list[str] = []
    for child in sorted(folder.iterdir()):
        if not visible(child):
            continue
        if child.is_dir():
            if not is_python_folder(child):
                found += data_below(child, inside)
        elif child.suffix not in {".py", ".pyc", ".pyo"}:
            # setuptools reads these as glob patterns, so a bracket in a name must be escaped.
            found.append(glob.escape(child.relative_to(inside).as_posix()))
    return found


def top_level_folders() -> dict[str, Path]:
    """Map package names to the top-level folders, the renaming that gives the layout its names."""
    folders = {ROOT_PACKAGE: ROOT / ROOT_FOLDER}
    for init in sorted(ROOT.glob("*/__init__.py")):
        folder = init.parent
        if folder.name == ROOT_FOLDER or not visible(folder):
            continue
        # interface/ is poolproof itself, so interface/x would have the same name as x/: one of the
        # two would win without a word.
        for twin in (ROOT / ROOT_FOLDER / folder.name, ROOT / ROOT_FOLDER / f"{folder.name}.py"):
            # Of a folder that is gone Python may have left its bytecode.
            if twin.is_file() or (twin.is_dir() and is_python_folder(twin)):
                message = (
                    f"{twin.relative_to(ROOT)} and {folder.name}/ would both be "
                    f"{ROOT_PACKAGE}.{folder.name}; rename one of them."
                )
                raise SystemExit(message)
        folders[f"{ROOT_PACKAGE}.{folder.name}"] = folder
    return folders


class BuildWithManual(build_py):
    """Copies the pages of the manual into the package; an editable install reads them in place."""

    def run(self) -> None:
        """Copy modules and data, and then the pages."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / ROOT_PACKAGE / "manual"
        folder.mkdir(parents=True, exist_ok=True)
        for page in sorted((ROOT / MANUAL).glob("*.md")):
            shutil.copyfile(page, folder / page.name)


class BuildWithRecord(build_ext):
    """Compiles, and records from what: interface/compiled_core.py leaves aside what is older."""

    def run(self) -> None:
        """Compile what a compiler is there for, say what is left pure, and write the record."""
        for extension in self.extensions:
            # Without a compiler the build goes on.  Set here: cythonize drops it.
            extension.optional = True
        super().run()
        made: dict[str, str] = {}
        suffix = ""
        for extension in self.extensions:
            file = Path(self.get_ext_fullpath(extension.name))
            if not file.exists():
                continue
            _, *folders, module = extension.name.split(".")
            made[extension.name] = source_digest(ROOT.joinpath(*folders, f"{module}.py"))
            suffix = file.name.removeprefix(module)
        missed = len(self.extensions) - len(made)
        if missed:
            print(
                f"poolproof: {missed} of {len(self.extensions)} modules were not compiled, see the "
                "compiler's messages above; they run as Python.",
                file=sys.stderr,
            )
        if made:
            record = Path(self.build_lib) / ROOT_PACKAGE / "compiled.json"
            record.write_text(json.dumps({"suffix": suffix, "modules": made}, indent=1), "utf-8")


def source_digest(source: Path) -> str:
    """Digest a source and the types beside it, as interface/compiled_core.py does."""
    types = source.with_suffix(".pxd")
    return hashlib.sha256(
        source.read_bytes() + b"\0" + (types.read_bytes() if types.exists() else b"")
    ).hexdigest()


def scratch_folder() -> str:
    """Give the build a folder of its own that goes when the build has ended.

    setuptools' default is build/ beside this file, and it packs whatever it finds there: a module
    that was renamed since the last build would stay in every later wheel, and two builds at the
    same time would mix.
    """
    folder = tempfile.mkdtemp(prefix="poolproof-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def compiled(scratch: str) -> list[Extension]:
    """The modules that are compiled, from C files in the scratch folder."""
    # pip asks by this command what the build needs: Cython is not there before it knows.
    if not COMPILES or sys.argv[1:2] == ["egg_info"]:
        return []
    if "editable_wheel" in sys.argv:
        # The compiled files would stand beside the sources, and changes would have no effect.
        raise SystemExit("POOLPROOF_COMPILE=1 is for plain installs; leave out --editable.")
    from Cython.Build import cythonize

    # Cython looks for the types of poolproof.x.y in poolproof/x/y.pxd, below a folder it is given.
    types = Path(scratch) / "types"
    for source in map(Path, COMPILED):
        with_types = source.with_suffix(".pxd")
        if with_types.exists():
            package = types / ROOT_PACKAGE / source.parent
            package.mkdir(parents=True, exist_ok=True)
            for folder in (package, *package.relative_to(types).parents[:-1]):
                (types / folder / "__init__.py").touch()
            shutil.copy(with_types, package)
    modules = [
        Extension(
            f"{ROOT_PACKAGE}.{source.removesuffix('.py').replace('/', '.')}",
            [source],
            # Symbols for debugging would be four fifths of the wheel.
            extra_compile_args=["-g0"],
        )
        for source in COMPILED
    ]
    extensions: list[Extension] = cythonize(
        modules,
        build_dir=scratch,
        include_path=[str(types)],
        language_level="3",
        # Annotations are for people and mypy: a target may answer anything, whatever they say.
        compiler_directives={"annotation_typing": False},
    )
    return extensions


TOP = top_level_folders()
PACKAGES = {
    package: folder
    for name, top in TOP.items()
    for package, folder in packages_below(top, name).items()
}
SCRATCH = scratch_folder()

setup(
    packages=sorted(PACKAGES),
    package_dir={name: folder.relative_to(ROOT).as_posix() for name, folder in TOP.items()},
    package_data={name: data_below(folder, folder) for name, folder in PACKAGES.items()},
    # The data files are exactly those listed above, not also those that a manifest names.
    include_package_data=False,
    ext_modules=compiled(SCRATCH),
    cmdclass={"build_py": BuildWithManual, "build_ext": BuildWithRecord},
    setup_requires=[CYTHON] if COMPILES else [],
    options={"build": {"build_base": SCRATCH}, "build_ext": {"parallel": os.cpu_count() or 1}},
)
