"""Hold the layering: turn the table in pyproject.toml into contracts of import-linter, run them.

Usage: python .ci/layers.py FOLDER      (FOLDER holds an installed copy; `make layers` makes one)

The table [tool.layering.layers] says for each folder what it may import.  Contracts written by
hand would have to list what each may *not* import, and a folder added later would be missing from
all of those lists; here it is forbidden to everybody until a line says otherwise.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "poolproof"


def children_of(package: Path) -> set[str]:
    """Name the modules and packages directly inside an installed package."""
    modules = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def pytest_files(folder: str) -> list[str]:
    """Name the modules that pytest collects in a folder: they use whatever they test against."""
    names = sorted(path.stem for path in (ROOT / folder).glob("*.py"))
    return [name for name in names if name.startswith("test_") or name == "conftest"]


def contract(name: str, sources: list[str], forbidden: list[str], **options: Any) -> str:
    """Write one contract of the kind 'these must not import those'."""
    values = {
        "name": name,
        "type": "forbidden",
        "source_modules": sources,
        "forbidden_modules": forbidden,
        **options,
    }
    # A list of strings, a string and a boolean look the same in JSON and in TOML.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(["[[tool.importlinter.contracts]]", *lines, ""])


def contracts(tables: dict[str, Any], children: set[str], folders: set[str]) -> list[str]:
    """Write all contracts for the folders that there are."""
    layers, heavy = tables["layers"], tables["heavy"]
    everything = sorted(children)
    written = [
        contract(
            f"{PACKAGE} itself imports nothing (whoever imports a part runs it first)",
            [PACKAGE],
            [f"{PACKAGE}.{child}" for child in everything],
            as_packages=False,
        )
    ]
    for folder in sorted(folders):
        allowed = layers[folder]
        written.append(
            contract(
                f"{folder} imports {', '.join(allowed) or 'nothing of ours'}",
                [f"{PACKAGE}.{folder}"],
                [f"{PACKAGE}.{child}" for child in everything if child not in {folder, *allowed}],
                ignore_imports=[
                    f"{PACKAGE}.{folder}.{name} -> {PACKAGE}.**" for name in pytest_files(folder)
                ],
                unmatched_ignore_imports_alerting="none",
            )
        )
    for name, owners in heavy.items():
        written.append(
            contract(
                f"only {', '.join(owners)} may import {name}",
                [f"{PACKAGE}.{child}" for child in everything if child not in owners],
                [name],
                # Whoever uses the owner uses the package through it, and may.
                allow_indirect_imports=True,
            )
        )
    return written


def main() -> int:
    """Check the table against the tree, then run import-linter on what the table says."""
    copy = Path(sys.argv[1]).resolve()
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["layering"]
    folders = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"interface"}
    unknown = sorted(folders - set(tables["layers"]))
    if unknown:
        print(
            f"[tool.layering.layers] in pyproject.toml says nothing about {', '.join(unknown)}: "
            "add a line with what it may import.",
            file=sys.stderr,
        )
        return 1
    config = copy.parent / "layers.toml"
    head = (
        f'[tool.importlinter]\nroot_package = "{PACKAGE}"\n'
        # Needed to see imports of packages that are not ours.
        "include_external_packages = true\n\n"
    )
    written = contracts(tables, children_of(copy / PACKAGE), folders)
    config.write_text(head + "\n".join(written), "utf-8")
    linter = Path(sys.executable).with_name("lint-imports")
    command = [str(linter), str(config), "--no-cache"]
    return subprocess.run(
        command, check=False, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
