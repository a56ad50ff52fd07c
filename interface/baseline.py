"""The baseline: a certificate of an earlier commit whose findings do not fail this one."""

from __future__ import annotations

import json
from pathlib import Path

from poolproof.certificate import Certificate, CertificateError

__all__ = ["BaselineError", "read_baseline"]


class BaselineError(ValueError):
    """A baseline that cannot be used; the message names the file and the cause."""


def read_baseline(path: Path) -> Certificate:
    """The certificate in a file that `--json` wrote. Raises BaselineError."""
    try:
        return Certificate.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BaselineError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BaselineError(f"{path} is not JSON: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise BaselineError(
            f"{path} line {error.lineno} is not JSON ({error.msg}); "
            "the file is damaged or cut short"
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, CertificateError):
            raise BaselineError(f"{path}: {error}") from error
        raise BaselineError(f"{path} cannot be read as JSON: {error}") from error
