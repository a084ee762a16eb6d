"""Fleet build: a kvproto in a folder of its own, so that engines of one fleet run different ones.

The *older* one is a commit of this repository's history, by default the first whose wire versions are negotiated.  The
*newer* one is this tree with a wire version more: a field more in STAGING_REQ, as a release would add one.  So their
tables differ by all that has changed since, and two newer ones work at a version of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

TOP = Path(__file__).parents[2]
#: the commit that the older build is made of
OLDER = "32d493aa756ee23402468fd9816b8a25897de20d"
MESSAGES = Path("kvproto", "protocol", "messages.py")
#: what stands once in MESSAGES, and what the newer build has there
EDITS = (
    ("code speaks\nVERSION = 3\n", "code speaks\nVERSION = 4\n"),
    (
        "    asked: Moment = 0.0\n\n\nclass StagingRsp",
        "    asked: Moment = 0.0\n    soon: bool = False\n\n\nclass StagingRsp",
    ),
)
TELL = (
    "import json; from kvproto.protocol.digest import DIGEST; from kvproto.protocol.messages import OLDEST, VERSION;"
    "print(json.dumps({'oldest': OLDEST, 'newest': VERSION, 'digest': DIGEST}))"
)


class FleetBuild(msgspec.Struct, frozen=True):
    """A package in a folder: the wire versions that it speaks, and the digest of its tables."""

    name: str
    folder: Path
    oldest: int
    newest: int
    digest: str

    def environment(self) -> dict[str, str]:
        """For a process that runs this build."""
        return {**os.environ, "PYTHONPATH": str(self.folder)}


def older(folder: Path, commit: str) -> FleetBuild:
    """Return the build of this commit; SystemExit: this checkout does not have it."""
    fresh(folder)
    archive = ["git", "-C", str(TOP), "archive", commit, "kvproto"]
    try:
        packed = subprocess.run(archive, capture_output=True, check=True).stdout  # noqa: S603  # our own commit
    except (OSError, subprocess.CalledProcessError) as error:
        said = f"this checkout has no commit {commit}, which the older build is made of: fetch the whole history, or "
        raise SystemExit(f"{said}name another one (--older)") from error
    # Earlier commits pickle msgspec.UNSET, which pickle looks for in all modules, in the order of their import:
    # some of transformers' import others when they are asked for a name, and fail where torchvision is missing.
    (folder / "sitecustomize.py").write_text("import msgspec\n")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)  # noqa: S603, S607  # what git packed
    return told(f"the commit {commit[:8]}", folder)


def newer(folder: Path) -> FleetBuild:
    """Return this tree's build, with a wire version more."""
    fresh(folder)
    shutil.copytree(TOP / "kvproto", folder / "kvproto", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / MESSAGES
    text = file.read_text()
    for old, new in EDITS:
        if text.count(old) != 1:
            raise SystemExit(f"{MESSAGES} has {old!r} {text.count(old)} times: EDITS are to be brought up to date")
        text = text.replace(old, new)
    file.write_text(text)
    digest = [sys.executable, "-m", "kvproto.verify.cli.digest_command"]
    subprocess.run(digest, env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, check=True)  # noqa: S603
    return told("this tree with a wire version more", folder)


def fresh(folder: Path) -> None:
    """Have an empty folder there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def told(name: str, folder: Path) -> FleetBuild:
    """Return what the package in this folder says of itself."""
    command, environment = [sys.executable, "-c", TELL], {**os.environ, "PYTHONPATH": str(folder)}
    said = subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=True).stdout  # noqa: S603
    return FleetBuild(name, folder, **msgspec.json.decode(said))
