"""`kvproto keys`: make a pair of keys for the control plane."""

from __future__ import annotations

import json
from pathlib import Path

from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine


def main(argv: list[str]) -> int:
    """`kvproto keys`."""
    parser = CommandLine(
        prog="kvproto keys",
        description="Make a pair of CURVE keys: FOLDER/NAME.key_secret (mode 0600) and FOLDER/NAME.key.",
        epilog="An endpoint is given the secret file, keys='FOLDER/NAME.key_secret', and talks to those whose public "
        "file (*.key) lies beside it: copy NAME.key there, and NAME.key_secret nowhere.",
    )  # fmt: skip
    parser.add_argument("folder", type=Path, help="where the files go; made if it is not there, for its owner alone")
    parser.add_argument("name", nargs="?", default="kvproto", help="of the pair (default: kvproto)")
    parser.add_argument("--json", action="store_true", help="the two files' names as one JSON document, for tools")
    args = parser.parse_args(argv)
    from kvproto.io.control.keys import make_pair  # which needs pyzmq, and the help does not

    secret, public = make_pair(args.folder, args.name)
    if args.json:
        say(json.dumps({"secret": str(secret), "public": str(public)}))
        return WELL
    say(f"{secret}  the pair: for this process alone")
    say(f"{public}  its public half: for the folders of its peers")
    return WELL
