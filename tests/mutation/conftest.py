"""The list is read by a module that stands beside the script that runs the mutants."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "mutation"))
