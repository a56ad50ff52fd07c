"""Build what a release consists of, from a clean export, and use each file as a stranger would.

Usage: python .ci/release.py               everything, into build/release; publishes nothing
       python .ci/release.py --tag v1.2.3  only: is this the version, and do the changes say so?

The export is of the last commit: files that are not in it are in no release. Each distribution is
installed into an environment of its own, which certifies `impl`. The SBOM (CycloneDX) is of an
environment that holds the wheel and what it asked for.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "build" / "release"


class NotReadyError(Exception):
    """Something that a release needs is missing or contradicts another part."""


def version_of(tree: Path) -> str:
    """The version of a tree, from the one place where it stands."""
    text = (tree / "interface" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise NotReadyError('interface/__init__.py has no line __version__ = "..."')
    return found[1]


def heading_of(tree: Path, version: str) -> str:
    """The heading under which CHANGELOG.md tells what the version changed."""
    changes = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    for heading, text in re.findall(
        r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", changes, re.DOTALL | re.MULTILINE
    ):
        if re.split(r"[ ,]", heading)[0] == version:
            if not text.strip():
                raise NotReadyError(f"CHANGELOG.md says nothing under {heading!r}")
            return str(heading)
    raise NotReadyError(f"CHANGELOG.md has no heading '## {version}': add what it changed")


def check_tag(tree: Path, tag: str) -> None:
    """Raises NotReadyError unless a tag names the version, whose changes are complete."""
    version = version_of(tree)
    if tag != f"v{version}":
        raise NotReadyError(
            f"the tag is {tag}, the version {version}: tag v{version}, or change __version__ in "
            "interface/__init__.py"
        )
    heading = heading_of(tree, version)
    if "not released" in heading:
        raise NotReadyError(f"CHANGELOG.md still says {heading!r}: write the date there")


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and give its output. Raises NotReadyError with the output if it fails."""
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        called = " ".join(map(str, command))
        raise NotReadyError(f"{called} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def export(folder: Path) -> None:
    """Write the files of the last commit to a folder."""
    archive = subprocess.run(
        ["git", "archive", "HEAD"], check=True, cwd=ROOT, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")


def certify_with(distribution: Path, scratch: Path, version: str) -> Path:
    """Install a distribution into a fresh environment and use it; give that environment."""
    environment = scratch / distribution.name.replace(".", "-")
    # Without pip: the environment then holds what the distribution asked for, and nothing else.
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    run(*pip, "--python", python, "install", "--quiet", distribution)
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    poolproof = environment / "bin" / "poolproof"
    said = run(poolproof, "--version", cwd=elsewhere).strip()
    if said != f"poolproof {version}":
        raise NotReadyError(f"{distribution.name} calls itself {said!r}, not 'poolproof {version}'")
    run(poolproof, "certify", "impl", "--depth", "quick", cwd=elsewhere)
    print(f"{distribution.name}: installed, certified impl")
    return environment


def name_version(bill: Path, version: str) -> None:
    """Add our own version to an SBOM: its writer does not see one that is computed in a build."""
    written = json.loads(bill.read_text(encoding="utf-8"))
    written["metadata"]["component"]["version"] = version
    bill.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def dry_run() -> None:
    """Everything short of publishing. Raises NotReadyError at the first thing that is wrong."""
    shutil.rmtree(RELEASE, ignore_errors=True)
    dist = RELEASE / "dist"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tree = scratch / "tree"
        export(tree)
        version = version_of(tree)
        print(f"version {version}; CHANGELOG.md: ## {heading_of(tree, version)}")
        run(sys.executable, "-m", "build", "--outdir", dist, tree)
        built = sorted(dist.iterdir())
        names = [one.name for one in built]
        wanted = [f"poolproof-{version}-py3-none-any.whl", f"poolproof-{version}.tar.gz"]
        if names != wanted:
            raise NotReadyError(f"built {', '.join(names)}; wanted {', '.join(wanted)}")
        run(sys.executable, "-m", "twine", "check", "--strict", *built)
        print(f"metadata: twine check --strict passes for {', '.join(names)}")
        environments = [certify_with(one, scratch, version) for one in built]
        bill = RELEASE / "poolproof.cdx.json"
        run(
            *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
            *("--pyproject", tree / "pyproject.toml", "--mc-type", "library"),
            *("--output-format", "JSON", "--output-file", bill),
            environments[0] / "bin" / "python",
        )
        name_version(bill, version)
        print(f"SBOM: {bill.relative_to(ROOT)}")


def main() -> int:
    """Check a tag, or do all but publish."""
    arguments = sys.argv[1:]
    try:
        if len(arguments) == 2 and arguments[0] == "--tag":
            check_tag(ROOT, arguments[1])
        elif arguments:
            print((__doc__ or "").partition("Usage:")[2].partition("\n\n")[0], file=sys.stderr)
            return 2
        else:
            dry_run()
    except NotReadyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
