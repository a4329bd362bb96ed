"""A certificate for servers on this host, which nobody signed but itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["self_signed"]


def self_signed(directory: Path) -> Path:
    """Make a certificate for localhost, and return the file that has it and its key."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    found, key = directory / "server.pem", directory / "server.key"
    subprocess.run([*made, "-keyout", key, "-out", found], check=True, capture_output=True)
    found.write_text(key.read_text() + found.read_text())
    return found
