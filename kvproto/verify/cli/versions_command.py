"""Versions command: writes what is kept of wire versions and agreements, in `spec/versions/`.

python -m kvproto.verify.cli.versions_command

The file of a released wire version stays as it is.  An agreement's results are written only if they are new, or its
version is: a change that keeps the version is refused by name.
"""

from __future__ import annotations

import json
import sys

from kvproto.cli.console import note, say
from kvproto.verify.claims.agreements import FILE, faults, text, vectors
from kvproto.verify.draw.generated_docs import ROOT
from kvproto.verify.draw.wire_versions import write


def write_agreements() -> list[str]:
    """Write the results of agreements that are new; return the sentences of those that may not change."""
    path, now = ROOT / FILE, vectors()
    kept = json.loads(path.read_text()) if path.exists() else {}
    same = {name: each for name, each in now.items() if name in kept and kept[name]["version"] == each["version"]}
    wrong = faults({name: kept[name] for name in same}, same)
    if not wrong:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(now))
    return wrong


if __name__ == "__main__":
    refused = write_agreements()
    for sentence in refused:
        note(sentence)
    say(f"{write().relative_to(ROOT)} and {FILE} {'are not both' if refused else 'are'} up to date")
    sys.exit(bool(refused))
