"""Keys of the control plane: who a process is, and whom it talks to.

CURVE, libzmq's own security, gives each process a pair of keys of 32 bytes.  The one that listens proves that it holds
its secret key, so does the one that connects, and everything between them is encrypted.  Whose key it is the library
does not ask; so here a peer counts only if its public key is on this process's list.

Two files a pair, in the format of pyzmq and czmq (`kvproto keys` makes them): `NAME.key_secret`, readable by its owner
alone, and `NAME.key` with the public half.  A process is given its secret file; its list is all of `*.key` beside it.
So to let a peer in is to copy its public file there, and to put it out is to delete that and to start anew.  Processes
of one engine instance may share a pair: its own public file lies beside the secret one, so they let each other in.

The address of a process that listens with keys carries its public key, `tcp://10.0.0.7:4000#<64 hex digits>`, so that
whoever passes addresses on passes keys on as well.  That makes nobody trusted: the caller looks the key up in its list.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import zmq
import zmq.auth
from zmq.utils import z85

from kvproto.call_arguments import checked
from kvproto.errors import ArgumentError

SECRET, PUBLIC = ".key_secret", ".key"
KEY_BYTES = 32
#: what stands between an address and the key of who listens there
MARK = "#"
#: hosts of tcp:// that no other machine can reach
_LOCAL_HOSTS = ("localhost", "lo", "[::1]")
_FILE = '# kvproto: a {kind} key for CURVE\nmetadata\ncurve\n    public-key = "{public}"\n'


@dataclass(frozen=True, slots=True)
class Keys:
    """A process's own pair, and the public keys of those that it talks to; 32 bytes each."""

    public: bytes
    secret: bytes = field(repr=False)
    allowed: frozenset[bytes] = field(repr=False)

    @classmethod
    @checked
    def load(cls, secret_file: str | Path) -> Self:
        """The pair in this file; allowed is whose public file (`*.key`) lies beside it.

        ArgumentError: the file is not there, holds no pair, or others may read it.
        """
        path = Path(secret_file)
        public, secret = _read(path)
        if secret is None:
            raise ArgumentError(f"{path} has no secret key: give the file that ends in {SECRET}")
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ArgumentError(f"{path} is open to others than its owner: chmod 600 {path}")
        return cls(public, secret, frozenset(_read(each)[0] for each in path.parent.glob(f"*{PUBLIC}")))


def make_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a pair: the paths of its secret file (mode 0600) and its public one.

    ArgumentError: a file of that name is there already; nothing is ever overwritten.
    """
    if not name or "/" in name:
        raise ArgumentError(f"{name!r} names no key: give a file's name without a folder")
    public, secret = (each.decode() for each in zmq.curve_keypair())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = folder / f"{name}{SECRET}", folder / f"{name}{PUBLIC}"
    for path in paths:
        if path.exists():
            raise ArgumentError(f"{path} is there already: name another pair, or delete both files of this one")
    _write(paths[0], 0o600, _FILE.format(kind="SECRET", public=public) + f'    secret-key = "{secret}"\n')
    _write(paths[1], 0o644, _FILE.format(kind="public", public=public))
    return paths


def with_key(address: str, keys: Keys | None) -> str:
    """The address as it is passed on."""
    return address if keys is None else f"{address}{MARK}{keys.public.hex()}"


def split_key(address: str) -> tuple[str, bytes | None]:
    """Split an address into place and listener's key (None: it has none).  ValueError: no valid key."""
    place, mark, text = address.partition(MARK)
    if not mark:
        return place, None
    key = bytes.fromhex(text)
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes, not of {KEY_BYTES}")
    return place, key


def beyond_loopback(address: str) -> bool:
    """Whether another machine might reach this address, or be reached by it, as with an unknown name."""
    scheme, _, rest = address.partition("://")
    host = rest.rpartition(":")[0]
    return scheme == "tcp" and host not in ("", *_LOCAL_HOSTS) and not _is_loopback(host)


def _is_loopback(host: str) -> bool:
    numbers = host.split(".")
    return len(numbers) == 4 and numbers[0] == "127" and all(each.isdecimal() for each in numbers)  # noqa: PLR2004


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        pair = zmq.auth.load_certificate(path)
        public, secret = (None if each is None else z85.decode(each) for each in pair)
    except (OSError, ValueError, LookupError, struct.error) as error:  # of a damaged line pyzmq has no check
        raise ArgumentError(f"{path} is no key: {error}; kvproto keys makes them") from error
    for key in (public, secret):
        if key is not None and len(key) != KEY_BYTES:
            raise ArgumentError(f"{path} is no key: {len(key)} bytes, not {KEY_BYTES}; kvproto keys makes them")
    assert public is not None
    return public, secret


def _write(path: Path, mode: int, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
