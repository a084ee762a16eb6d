"""Digest command: writes the generated constants of the digest, as `make digest` does.

python -m kvproto.verify.cli.digest_command
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import kvproto
from kvproto.cli.console import say
from kvproto.verify.claims.protocol_digest import FILE, digest_file


def write_digest(package: Path) -> bool:
    """Write the generated file of the package in this folder; whether it has changed.

    A new file takes the place of the old one: a copy of the tree whose files are links keeps its own.
    """
    path, text = package / FILE, digest_file()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
    return True


if __name__ == "__main__":
    changed = write_digest(Path(kvproto.__file__).parent)
    say(f"kvproto/{FILE} {'is written anew' if changed else 'is up to date'}")
