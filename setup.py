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
"""

import atexit
import glob
import shutil
import tempfile
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
ROOT_PACKAGE = "poolproof"
ROOT_FOLDER = "interface"


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
            if twin.exists():
                message = (
                    f"{twin.relative_to(ROOT)} and {folder.name}/ would both be "
                    f"{ROOT_PACKAGE}.{folder.name}; rename one of them."
                )
                raise SystemExit(message)
        folders[f"{ROOT_PACKAGE}.{folder.name}"] = folder
    return folders


def scratch_folder() -> str:
    """Give the build a folder of its own that goes when the build has ended.

    setuptools' default is build/ beside this file, and it packs whatever it finds there: a module
    that was renamed since the last build would stay in every later wheel, and two builds at the
    same time would mix.
    """
    folder = tempfile.mkdtemp(prefix="poolproof-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


TOP = top_level_folders()
PACKAGES = {
    package: folder
    for name, top in TOP.items()
    for package, folder in packages_below(top, name).items()
}

setup(
    packages=sorted(PACKAGES),
    package_dir={name: folder.relative_to(ROOT).as_posix() for name, folder in TOP.items()},
    package_data={name: data_below(folder, folder) for name, folder in PACKAGES.items()},
    # The data files are exactly those listed above, not also those that a manifest names.
    include_package_data=False,
    options={"build": {"build_base": scratch_folder()}},
)
