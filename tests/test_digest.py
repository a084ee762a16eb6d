"""The digest sees every change of what two builds must share, names its part, and sees nothing else."""

from __future__ import annotations

import compileall
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import msgspec
import pytest
from support.builds import SOURCE, Edit, build, digest_of, write_digest
from support.digests import Digests
from support.night import by_night

from kvproto.fsm.digest import differing, joined
from kvproto.protocol.codec import RawHello
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.messages import Hello
from kvproto.protocol.tables import TABLES
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.claims.protocol_digest import FILE, computed_digest, digest_file, protocol_texts
from kvproto.verify.framework.table_patching import TablePatch

INTERPRETERS = [f"python3.{minor}" for minor in range(11, 15) if minor != sys.version_info.minor]

#: hazards in what ranks do beside their tables, which the digest does not cover
BESIDE = {
    "staging-on-one-side", "room-id-reuse", "misaligned-chunk", "slot-overtaken",
    "epoch-unread", "heard-while-down", "former-life-waits", "others-writes-count", "others-rooms-end",
    "others-group-is-left", "rank-is-enough", "anybody-is-party", "lease-unread", "quiet-told-once", "watermark-to-one",
    "usable-untold", "share-starves-oldest", "refused-by-digest", "no-common-version",
    "state-before-the-last-token", "state-kept-on-withdrawal", "state-over-pages",
}  # fmt: skip
BEAT = "row(S.UP,             TimerFired,                         when=heard, let=beat, do=(send_beat,))\n"
SILENT = (
    "row(S.UP,             TimerFired,                         when=falls_silent, let=beat,"
    " do=(send_beat, announce_silent))\n"
)
GRANT = "    #: the region that the part was written to, as it was told; 0: the part is in the pages\n    grant: U64\n"
#: what is changed: (what stands in the source, what stands there in the other build, the part that differs)
CHANGES: dict[str, tuple[str, str, str]] = {
    "a field added": (
        'your part of this chunk is in place."""\n\n    chunk: Chunk\n',
        'your part of this chunk is in place."""\n\n    chunk: Chunk\n    grant: U64\n', "messages",
    ),
    "a field removed": (
        "    chunk: Chunk\n" + GRANT + "\n\nclass ChunkAck", "    chunk: Chunk\n\n\nclass ChunkAck", "messages",
    ),
    "fields reordered": (
        "    chunk: Chunk\n" + GRANT + "\n\nclass ChunkAck",
        GRANT + "    chunk: Chunk\n\n\nclass ChunkAck", "messages",
    ),
    "a field of the handshake added": (
        "    endpoint: Annotated[bytes, Meta(max_length=MAX_ENDPOINT)]\n",
        "    endpoint: bytes\n    zone: U32\n", "messages",
    ),
    "a bound": (
        "Why = Annotated[str, Meta(max_length=1024)]", "Why = Annotated[str, Meta(max_length=512)]", "messages",
    ),
    "an exclusive bound": (
        "Size = Annotated[int, Meta(ge=0, lt=2**48)]", "Size = Annotated[int, Meta(ge=0, lt=2**47)]", "messages",
    ),
    "a message's name": ('tag="CHUNK_ACK"', 'tag="CHUNK_OK"', "messages"),
    "the wire version": ("code speaks\nVERSION = 3", "code speaks\nVERSION = 4", "messages"),
    "a cause's number": ("    FORGOTTEN = 12\n", "    FORGOTTEN = 99\n", "messages"),
    "what a cause means": (
        "return self in asked", "return self is Cause.DECODE_ABORTED", "messages",
    ),
    "what is judged of a frame": (
        "if kind is Open and body.prefix > body.tokens:",
        "if kind is Open and body.prefix >= body.tokens:", "messages",
    ),
    "the numbers before a note": ('struct.Struct("<QI")', 'struct.Struct("<QQ")', "notification"),
    "the cut of heads": (
        "return place * (units // tp), units // tp", "return place * (units // tp) + 1, units // tp", "layout",
    ),
    "the cut of layers": ("stage - (self.pp - more)", "stage - (self.pp + more)", "layout"),
    "the cut of tokens": (
        "    first = prefix + k // groups * chunk_tokens\n", "    first = k * chunk_tokens\n", "layout"
    ),
    "where parts begin": ("PART_ALIGNMENT: Final = 256", "PART_ALIGNMENT: Final = 512", "layout"),
    "where rows lie": (
        "return page * strides.page + slot * strides.token + head * strides.head\n",
        "return slot * strides.page + page * strides.token + head * strides.head\n", "layout",
    ),
    "a layout's field": (
        "    page_size: int  #: tokens a page\n", "    page_size: int  #: tokens a page\n    skew: int\n", "layout",
    ),
    "when a region is usable": ("round_ - 1 < mark[0] or", "round_ - 1 <= mark[0] or", "ring"),
    "the mark of an empty ring": (
        "self.round, self.head = self.round + 1, 0\n", "self.round, self.head = self.round, 0\n", "ring",
    ),
    "a timer that follows from others": ("self.lease.period + self.write.period", "self.lease.period", "timing"),
    "a timer more": (
        "    forget: Timer = Timer(600.0)\n",
        "    forget: Timer = Timer(600.0)\n    rest: Timer = Timer(1.0)\n", "timing",
    ),
    "an event's field": ("    usable: bool\n    lease: float\n", "    lease: float\n    usable: bool\n", "vocabulary"),
    "an effect's field": (
        'up (`why` empty), `CLOSED`, `LOST`, `SILENT` or refused."""\n\n    link: int\n',
        'up (`why` empty), `CLOSED`, `LOST`, `SILENT` or refused."""\n\n    link: int\n    rank: int\n', "vocabulary",
    ),
    "a row's timer again": (
        "ChunkLanded,                   let=place, again=True)",
        "ChunkLanded,                   let=place)", "decode_room",
    ),
    "a row's verb": (
        "ignore(S.DRAINING,     ChunkAcked, ", "refuse(S.DRAINING,     ChunkAcked, ", "prefill_send",
    ),
    "a row's target": (
        "row(S.FILLING,       RoomStopped,      S.QUARANTINED)",
        "row(S.FILLING,       RoomStopped,      S.FREED)", "decode_grant",
    ),
    "rows' order": (BEAT + SILENT, SILENT + BEAT, "prefill_link"),
    "a row gone": ("row(S.QUARANTINED,   RoomDrained,      S.FREED,         do=(free, close))\n", "", "decode_grant"),
    "effects' order": (
        "let=drain, do=(say_noted, drain_grants))", "let=drain, do=(drain_grants, say_noted))", "decode_room",
    ),
    "a state's number": (
        "    LOST = 3\n    #: the peers cannot work together, and know why\n    REFUSED = 4\n",
        "    REFUSED = 3\n    #: the peers cannot work together, and know why\n    LOST = 4\n", "prefill_link",
    ),
    "a state's timer": ('S.AWAIT_ACK: "answer"', 'S.AWAIT_ACK: "resend"', "prefill_send"),
    "a value's default": (
        "    #: the engine has opened the room\n    owned: bool = True",
        "    #: the engine has opened the room\n    owned: bool = False", "prefill_room",
    ),
    "a guard": ("return v.by_pages | 1 << e.peer == v.writers", "return v.by_pages == v.writers", "decode_grant"),
    "a guard's helper": ("return v.asked & ~v.by_pages & ~v.arrived", "return v.asked & ~v.by_pages", "decode_grant"),
    "a helper's helper": ("return aux and _placed(v, done)", "return aux and bool(done)", "decode_room"),
    "a change": (
        "return replace(v, mark_round=e.round, mark_tail=e.tail)",
        "return replace(v, mark_tail=e.tail)", "prefill_link",
    ),
    "an effect": (
        "return do.Transmit(v.to.link, v.to.epoch, e.room, StgNotify(e.chunk, v.grant))",
        "return do.Transmit(v.to.link, v.to.epoch, e.room, StgNotify(e.chunk, 0))", "prefill_send",
    ),
    "what an effect says of a cause": (
        "RaiseLinkDown(e.peer, Cause.LINK_LOST)", "RaiseLinkDown(e.peer, Cause.NO_ANSWER)", "prefill_link",
    ),
}  # fmt: skip

#: what may be changed: comments, sentences, annotations, numbers that an engine chooses, where a helper stands
SAME: dict[str, tuple[Edit, ...]] = {
    "comments and docstrings": (
        ('"""Every prefill rank takes part, and everything is in place already."""\n', '"""All."""\n    # so\n'),
        ("    #: tokens a chunk\n    chunk_tokens: Tokens\n", "    chunk_tokens: Tokens  # a number\n"),
    ),
    "annotations": (
        ("def _waiting(v: V) -> int:\n", "def _waiting(v):\n"),
        (
            "    end = min(first + terms.window, end_chunk(v))",
            "    end: int = min(first + terms.window, end_chunk(v))",
        ),
    ),
    "sentences": (
        ('"a late request: what is staged is in place"', '"too late"'),
        ("an abort without a cause: it would read", "an abort without a cause reads"),
    ),
    "what an engine chooses": (("forget: Timer = Timer(600.0)", "forget: Timer = Timer(60.0)"),),
    "how a line is laid out": (
        ("return v.asked & ~v.by_pages & ~v.arrived", "return (v.asked\n    & ~v.by_pages & ~v.arrived)"),
    ),
    "a number that gets a name": (
        ("def usable(round_", "FIRST = 0\n\n\ndef usable(round_"),
        ("return round_ == 0 or", "return round_ == FIRST or"),
    ),
}  # fmt: skip


def parts(digest: str) -> dict[str, str]:
    return dict(word.partition(":")[::2] for word in digest.split())


def test_the_constants_are_those_of_the_tables_and_the_source() -> None:
    stale = differing(tables_digest(), computed_digest())
    assert not stale, f"kvproto/{FILE} is stale, run `make digest`: {stale}"
    assert (SOURCE / FILE).read_text() == digest_file(), f"kvproto/{FILE} was edited by hand, run `make digest`"


@pytest.mark.parametrize("broken", ["", "<<<<<<< ours\n", None])
def test_one_command_writes_the_constants_whatever_stands_in_their_file(broken: str | None, tmp_path: Path) -> None:
    file = build(tmp_path, CHANGES["a bound"][:2]) / "kvproto" / FILE
    file.unlink()
    if broken is not None:
        file.write_text(broken)
    write_digest(tmp_path)
    assert parts(digest_of(tmp_path)) == dict(re.findall(r'"(\w+)": "(\w+)"', file.read_text()))
    assert parts(digest_of(tmp_path)) != parts(computed_digest())


@pytest.fixture(scope="module")
def digests() -> Iterator[Digests]:
    made = Digests()
    yield made
    made.close()


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_and_its_part_is_named(what: str, tmp_path: Path, digests: Digests) -> None:
    old, new, part = CHANGES[what]
    ours, theirs = parts(tables_digest()), parts(digests.of(build(tmp_path, (old, new))))
    assert [name for name in ours if ours[name] != theirs[name]] == [part]


@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_meaning_changes_nothing(what: str, tmp_path: Path, digests: Digests) -> None:
    assert differing(digests.of(build(tmp_path, *SAME[what])), tables_digest()) == ""


def test_every_planted_hazard_is_another_build() -> None:
    ours, unseen = protocol_texts(), set()
    asked = list(MUTANTS)[:: by_night(1, by_day=3)]
    for name in asked:
        with TablePatch() as bench:
            MUTANTS[name].apply(bench)
            unseen |= {name} if protocol_texts() == ours else set()
    assert unseen == BESIDE & {*asked}
    assert protocol_texts() == ours


def test_a_helper_that_moves_to_another_file_is_the_same(tmp_path: Path) -> None:
    body = "def _waiting(v: V) -> int:\n    return v.asked & ~v.by_pages & ~v.arrived\n"
    build(tmp_path, (body, "from kvproto.elsewhere import _waiting\n"))
    (tmp_path / "kvproto" / "elsewhere.py").write_text(body.replace("v: V", "v"))
    assert digest_of(tmp_path) == tables_digest()


def test_it_is_the_same_in_every_process_and_at_any_time() -> None:
    folder = SOURCE.parent
    assert {digest_of(folder, PYTHONHASHSEED=seed) for seed in ("1", "2")} == {tables_digest()}
    assert protocol_texts() == protocol_texts()


@pytest.mark.parametrize("python", INTERPRETERS)
def test_it_is_the_same_in_every_interpreter(python: str) -> None:
    command = [python, "-c", "import msgspec"]
    if which(python) is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"no {python} with msgspec here")
    assert digest_of(SOURCE.parent, python) == tables_digest()


def test_without_sources_the_error_names_the_remedy(tmp_path: Path) -> None:
    build(tmp_path)
    compileall.compile_dir(tmp_path / "kvproto", legacy=True, quiet=2, maxlevels=10)
    for file in tmp_path.rglob("*.py"):
        file.unlink()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        digest_of(tmp_path)
    assert "cannot be read: install its package with its sources" in caught.value.stderr


def test_every_part_has_a_text_and_the_whole_fits_into_a_call() -> None:
    texts = protocol_texts()
    assert all(texts.values())
    assert [word.partition(":")[0] for word in tables_digest().split()] == list(texts)
    assert {table.name for table in TABLES} < set(texts)
    assert len(tables_digest()) <= 1024
    assert not re.search(r"0x[0-9a-f]{6,}", "".join(texts.values())), "an address in memory"


def test_a_call_begins_as_every_call_does() -> None:
    ours, every = (msgspec.structs.fields(kind) for kind in (Hello, RawHello))
    assert [(field.name, field.type) for field in ours[: len(every)]] == [(field.name, field.type) for field in every]
    assert Hello.__struct_config__.tag == RawHello.__struct_config__.tag


def test_differing_parts_are_named_with_both_hashes() -> None:
    ours = "layout:aa ring:bb"
    assert differing("layout:aa ring:cc", ours) == "the builds differ in ring (cc against bb)"
    assert differing("layout:aa", ours) == "the builds differ in ring (none against bb)"
    assert differing(f"{ours} more:dd", ours) == "the builds differ in more (dd against none)"
    assert differing("0123", ours) == "digest '0123' against 'layout:aa ring:bb'"
    assert joined({"layout": "aa", "ring": "bb"}) == ours
    assert differing(ours, ours) == differing("", "") == ""
