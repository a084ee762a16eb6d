"""Every bound of the running code lies between two sizes, each for a reason.

A bound that is off by a hundred times fails no behaviour test, since these set it small: it shows as memory that grows,
as a pass that takes too long, or as work that is done again.  The table is by hand; a new constant has no row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from support import fake_vllm

from kvproto.settings import BOUNDS as SETTINGS_BOUNDS
from kvproto.settings import Settings

fake_vllm.install()  # the constants of vLLM's adapter stand in modules that import vLLM

PACKAGE = Path(__file__).parent.parent / "kvproto"
FOLDERS = ("adapters", "data", "endpoint", "io/control", "io/kernels", "layout", "loop", "metrics", "protocol", "rank")
#: beside those folders; the other files of theirs have numbers of a form, which other tests know
FILES = "io/doorbell.py", *(f"io/transports/{name}.py" for name in (
    "device_maps", "memory", "mooncake", "nixl", "nixl_metadata", "twin_writes",
))  # fmt: skip
#: it imports SGLang, and names no whole number; these are ZeroMQ's own
LEFT_OUT = {"adapters/sglang/facts.py", "io/control/polled_socket.py"}
#: by module and name: the least and the most, and why
BOUNDS: dict[str, tuple[int, int, str]] = {
    "adapters.card.MAX_TEXT": (1 << 14, 1 << 20, "a card with the addresses of as many ranks as a group may have"),
    "adapters.card.MAX_ADDRESS": (128, 1024, "a host name has 253 characters at most"),
    "adapters.card.MAX_DATA_PARALLEL": (256, 1 << 14, "as many groups are derived from one card"),
    "adapters.card.U48": (1 << 48, 1 << 48, "an incarnation on the wire"),
    "adapters.card.U64": (1 << 64, 1 << 64, "a group on the wire"),
    "adapters.card_trust.SHORTEST": (16, 32, "bytes of a secret that nobody guesses"),
    "adapters.card_trust.INSTANCES": (32, 4096, "links and plans that requests can make a decode rank hold"),
    "adapters.sglang.room_lives.KEPT": (8 * 4096, 1 << 20, "longer than an endpoint keeps tombstones: a number"),
    "adapters.vllm.connector.ROOMS": (1024, 1 << 16, "more than requests that a decode instance has at a time"),
    "adapters.sglang.bootstrap.KEPT": (256, 1 << 16, "cards of a decode rank; each is kilobytes"),
    "adapters.sglang.bootstrap.ASKERS": (4, 64, "threads; servers that do not answer hold one for seconds"),
    "adapters.sglang.bootstrap.DIGITS": (4, 9, "of a data-parallel rank"),
    "adapters.sglang.http_server.CONNECTIONS": (64, 4096, "descriptors of an engine's process"),
    "adapters.sglang.http_server.HEAD": (1 << 13, 1 << 16, "bytes; of each connection as many are held"),
    "adapters.sglang.http_server.DIGITS": (6, 9, "of the length of a body, which is compared with its bound"),
    "adapters.sglang.room_directory.MOST": (512, 1 << 15, "rooms of one report: some tens of kilobytes"),
    "adapters.sglang.room_directory.ALL": (1 << 13, 1 << 20, "rooms of an instance that are under way"),
    "adapters.sglang.windows.SLACK": (16, 256, "tokens by which pages of both sides may differ; each travels"),
    "adapters.vllm.ranks.CHUNK_TOKENS": (128, 4096, "a forward's worth of tokens, or less"),
    "adapters.vllm.ranks.RING": (1 << 27, 1 << 33, "bytes of the device's memory beside the pool"),
    "adapters.vllm.router_answers.PIECE": (1 << 12, 1 << 20, "bytes of a stream that are held a client"),
    "adapters.vllm.router_answers.LONGEST_WORD": (24, 64, "bytes of a word that a piece's end may cut in two"),
    "adapters.vllm.router.LONGEST": (1 << 24, 1 << 30, "bytes of a request with images"),
    "data.device_alarm.MOST": (2, 64, "the driver holds a pipe for each"),
    "data.end_pages.WORD": (4, 4, "bytes of a page number in messages"),
    "data.gathers.AHEAD": (2, 8, "one runs and one is ready; more take slots from other rooms"),
    "data.launches.TOGETHER": (2, 64, "one kernel's arguments; a single launch costs as much as several small ones"),
    "data.mapped_pages.MOST_SLOTS": (1 << 16, 1 << 22, "slots whose numbers are kept on a device, 4 bytes each"),
    "data.mapped_parts.LONG": (1 << 24, 1 << 30, "bytes whose gain is worth what copy engines cost the host"),
    "data.page_writes.CUTS": (32, 4096, "byte runs of a page, kept for a part"),
    "data.peer_tables.BLOCK": (1 << 16, 1 << 22, "bytes on the device; hundreds of tables share what a block costs"),
    "data.peer_tables.MOST": (1 << 12, 1 << 16, "bytes that the driver takes from memory that is not page-locked"),
    "data.peer_tables.ALIGN": (16, 256, "bytes that a kernel may read at once"),
    "data.prefill_data.READY": (64, 256, "stores of one forward's batch; as many launches are kept as there may be"),
    "data.prefill_data.WHOLE": (100, 100, "per cent"),
    "data.prepared_launches.KEPT": (64, 4096, "slots and regions; each holds arguments on the host"),
    "data.prepared_pages.PIECES": (1024, 131072, "each takes some 200 bytes of the library, and 60 ns to make"),
    "data.room_entry.FEW": (8, 256, "an array's operations cost as much as so many numbers"),
    "data.room_entry.MARKS": (16, 1024, "forwards of a room that may be under way; each holds an event"),
    "data.staged_writes.SMALL": (1 << 14, 1 << 21, "bytes that take the wire no longer than a post takes"),
    "data.staging_buffers.PARTS": (512, 1 << 16, "parts of a buffer, each a view"),
    "data.write_times.MOST": (4, 128, "writes of one observation; of fewer their polls are a part that counts"),
    "data.writes.BUDGET": (1024, 1 << 17, "pieces of one pass: tens of milliseconds"),
    "data.writes.TOGETHER": (2, 64, "small writes of one moment; more wait for the last of them"),
    "endpoint.engine_news.PENDING": (256, 1 << 16, "events that an engine may be behind; each is an object"),
    "endpoint.explain.NAMED": (2, 16, "names in a sentence that is still read"),
    "endpoint.farewells.EPOCH_BITS": (16, 16, "bits of an epoch below its rank's incarnation"),
    "endpoint.host_pool.PERCENT": (2, 50, "per cent of the multiprocessors, which forwards want"),
    "endpoint.prefill_groups.STEPS": (4, 256, "each holds a plan, also of a group that is gone"),
    "endpoint.resume_point.MAX_TEXT": (1 << 20, 1 << 24, "characters of digests of 100,000 heads"),
    "endpoint.validation.MOST_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "what a message can say"),
    "io.control.bundle.ADDED": (257, 257, "bytes beside the frames of a bundle: its mark, and a length for each"),
    "io.control.bundle.BUNDLE": (64, 64, "frames of a message: peers refuse more"),
    "io.control.bundle._LENGTH": (4, 4, "bytes on the wire"),
    "io.control.control.GONE_KEPT": (256, 1 << 14, "peers that are gone; one that is forgotten is told of again"),
    "io.control.control.MAX_BYTES": (1 << 25, 1 << 28, "bytes for a peer that does not read; several large frames"),
    "io.control.control.MAX_FRAME": (1 << 17, 1 << 20, "bytes of a frame that no caller has bounded"),
    "io.control.control.MAX_QUEUE": (1 << 14, 1 << 18, "frames for a peer that does not read: each is an object"),
    "io.control.control.SOCKETS": (3 << 10, 1 << 16, "three for each link that a rank may dial, of 1,024"),
    "io.control.gate.BURST": (128, 4096, "ranks of an instance that begin at once; a flood's handshakes"),
    "io.control.gate.PACE": (16, 1024, "handshakes a second: each with keys takes 100 us of the loop's thread"),
    "io.control.gate.SOURCES": (256, 1 << 14, "addresses that came lately, so that many of them do not fill memory"),
    "io.control.gate.TURN": (2, 64, "questions between two looks at frames"),
    "io.control.keys.KEY_BYTES": (32, 32, "CURVE's own"),
    "io.control.poller.PR_SET_TIMERSLACK": (29, 29, "Linux's own"),
    "io.control.sockets.MAX_INT": ((1 << 31) - 1, (1 << 31) - 1, "a C int"),
    "io.control.sockets.SEAL": (33, 64, "bytes that CURVE adds to a part; a frame with them has to pass"),
    "io.control.sockets.WINDOW": (16, 256, "messages in a pipe: of the largest ones a few hundred megabytes at most"),
    "io.control.unanswered.ASKED": (2, 8, "looks without an answer; one alone may be late"),
    "io.control.unanswered.LOOKS": (2, 64, "connections that one look takes"),
    "io.control.unanswered.TIMES": (2, 16, "looks within the time for an answer"),
    "io.control.unread.ADDED": (1 << 13, 1 << 19, "bytes of frames' heads and of one read beside a message"),
    "io.control.unread.LOOKS": (2, 64, "connections that one look takes"),
    "io.control.unread.WAITING": (66, 128, "a window of messages, one that is read and one without room"),
    "io.control.unread._COOKIE": (57, 57, "SO_COOKIE of Linux"),
    "io.control.watched.MOST": (64, 1 << 14, "events of one look; what is left is seen by the next"),
    "io.doorbell.LONGEST": (1 << 14, 1 << 17, "more than a transport's notification has; a socket takes some more"),
    "io.doorbell.MOST": (512, 1 << 14, "datagrams that a local socket queues, by Linux's settings; a syscall each"),
    "io.kernels.batch.RUN_TIME_ARGUMENTS": (15, 15, "as many as the kernel takes"),
    "io.kernels.batch.CELL_ARGUMENTS": (34, 34, "as many as the kernel takes for a cell"),
    "io.kernels.batch.MAX_ROWS": (256, 4096, "rows of a tile; registers hold them"),
    "io.kernels.batch.MAX_UNITS": (1 << 30, (1 << 31) - 1, "the kernel counts units in 32 bits"),
    "io.kernels.cache_pool.ANY_PAGE": (1 << 32, 1 << 32, "a page number on the wire"),
    "io.kernels.digest.SPREAD": (16, 16, "both sides' digests are compared"),
    "io.kernels.digest.FACTOR_1": (0x9E3779B97F4A7C15, 0x9E3779B97F4A7C15, "both sides' digests are compared"),
    "io.kernels.digest.FACTOR_2": (0xBF58476D1CE4E5B9, 0xBF58476D1CE4E5B9, "both sides' digests are compared"),
    "io.kernels.digest.WORD_DOMAIN": (1 << 32, 1 << 32, "both sides' digests are compared"),
    "io.kernels.digest.KIND_STEP": (1 << 24, 1 << 24, "both sides' digests are compared"),
    "io.kernels.digesting.ROOMS": (128, 1 << 14, "rooms that an engine has not asked about; each holds a table"),
    "io.kernels.engine_pages.LEAST": (1 << 17, 1 << 22, "bytes that a copy engine moves in the time of one call"),
    "io.kernels.engine_pages.TOGETHER": (8, 256, "copies of one call, which holds up the next one"),
    "io.kernels.flat_batch.NARROW": (16, 64, "units that a warp moves in words of less than a sector are slow"),
    "io.kernels.flat.MAX_SOURCES": (4, 4, "sources of a launch; the kernel has arguments for each"),
    "io.kernels.flat_batch.RUN_TIME_ARGUMENTS": (26, 26, "as many as the kernel takes"),
    "io.kernels.page_stacks.LEAST_ROWS": (4, 16, "copies of a batch that take the host as long as a stack"),
    "io.kernels.page_stacks.LEAST_BYTES": (1 << 20, 1 << 24, "bytes that an engine moves while a stack is queued"),
    "io.kernels.page_stacks._NEAR": (4, 64, "parts of a cache, whose rows lie between those of two layers"),
    "io.kernels.page_stacks._UNIFIED": (4, 4, "the driver's number"),
    "io.kernels.page_stacks.MOST_PITCH": ((1 << 31) - 1, (1 << 31) - 1, "the driver's bound"),
    "io.kernels.page_digests.SCRATCH": (1 << 23, 1 << 28, "bytes beside the pool; fewer are not worth a launch"),
    "io.kernels.pool.ORIGIN": (4096, 4096, "both sides count the rows of a window from its multiples: digests compare"),
    "io.kernels.tile.MAX_PARTS": (8, 8, "parts of a tile; the kernel has arguments for each"),
    "io.kernels.triton.WHOLE": (100, 100, "per cent"),
    "io.transports.device_maps.HANDLE": (64, 64, "bytes of CUDA's own"),
    "io.transports.device_maps.HOST": (36, 36, "characters of a machine's number, as Linux writes it"),
    "io.transports.device_maps.OFFSET": (8, 8, "bytes on the wire"),
    "io.transports.device_maps.UUID": (16, 16, "bytes of CUDA's own"),
    "io.transports.memory.MAX_TAG": (8192, 8192, "what NIXL takes, so that a tag of tests is one"),
    "io.transports.mooncake.MAX_DESCS": (1 << 15, 1 << 20, "descriptors of one write: tens of megabytes"),
    "io.transports.mooncake.MAX_INFLIGHT_DESCS": (1 << 17, 1 << 20, "descriptors that a peer's writes hold"),
    "io.transports.mooncake.MAX_TAG": (8192, 8192, "what NIXL takes"),
    "io.transports.mooncake.SUBMITS_A_POLL": (8, 128, "each takes some 10 us of a pass"),
    "io.transports.mooncake.WINDOW": (128, 2048, "requests that the engine has at a time"),
    "io.transports.nixl.MAX_DESCS": (1 << 17, 1 << 21, "descriptors of one write: tens of megabytes"),
    "io.transports.nixl.MAX_INDEX": ((1 << 31) - 1, (1 << 31) - 1, "NIXL counts with 32 bits"),
    "io.transports.nixl.MAX_INFLIGHT_DESCS": (1 << 16, 1 << 19, "descriptors: posting one takes 3 us of the loop"),
    "io.transports.nixl.MAX_TAG": (8192, 8192, "bytes of one eager fragment"),
    "io.transports.nixl_metadata.KIND_BYTES": (4, 4, "bytes of a memory's kind, as NIXL writes it"),
    "io.transports.nixl_metadata.MAX_ADDRESS": (1 << 12, 1 << 17, "bytes of a worker's address with tens of devices"),
    "io.transports.nixl_metadata.MAX_SECTIONS": (4, 64, "one for each backend and memory; a peer has them read"),
    "io.transports.twin_writes.PAGE": (4096, 4096, "bytes that the agent copies beside the copy engine"),
    "layout.agreement.MAX_CHUNK_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "no room has more"),
    "layout.byte_runs_numpy.BATCH": (512, 1 << 16, "runs at a time, in arrays that fit a cache"),
    "layout.caches.MAX_CACHES": (4, 64, "a model's caches in one page table"),
    "layout.caches.MAX_CACHE_PARTS": (4, 64, "tensors of one cache"),
    "layout.caches.MAX_NAME": (16, 256, "a name in a handshake"),
    "layout.caches.MAX_STATE_GROUPS": (8, 256, "chunks of a room's state, each a launch, a write and a notification"),
    "layout.caches.MOST_WINDOW": (1 << 20, 1 << 26, "tokens of the longest window"),
    "layout.caches.WIDEST": (8, 32, "bytes of the widest element"),
    "layout.placement.MAX_PLANES": (1 << 14, 1 << 20, "planes of one rank; a peer makes us compute as many"),
    "layout.plan.PARTS": (512, 1 << 16, "parts that a plan keeps"),
    "layout.sharding.PART_ALIGNMENT": (256, 256, "both sides lay regions out by it"),
    "layout.sharding.DEFAULT_CHUNK_TOKENS": (1024, 1 << 16, "tokens a cell where the prefill side is not chunked"),
    "layout.sharding.MAX_RANKS": (64, 4096, "ranks of a group; a peer makes us compute as many"),
    "loop.event_loop.DEAF": (4, 1024, "passes without descriptors, until it is said"),
    "loop.event_loop.EVERY": (2, 64, "passes between looks at what is seldom there"),
    "loop.event_loop.LIMIT": (32, 4096, "inputs of one pass: milliseconds"),
    "loop.party_loop.MAX_FRAME": (1 << 12, 1 << 20, "bytes of a message of a small protocol"),
    "loop.party_loop.REPORTS": (64, 1 << 12, "reports that nobody has read"),
    "loop.rank_loop.CALLS": (3, 64, "a rank calls twice a second"),
    "metrics.metrics.GIB": (1 << 30, 1 << 30, "what its name says"),
    "metrics.metrics.LONGEST_SILENCES": (16, 256, "links with a series each; a page of metrics is kept small"),
    "metrics.metrics.MOST_PEERS": (16, 256, "peers with five series each; a page of metrics is kept small"),
    "protocol.codec.MAX_FRAME": ((1 << 22) + (1 << 14), 1 << 23, "the largest table of pages, with what is beside it"),
    "protocol.codec.ROOM_ID": ((1 << 64) - 1, (1 << 64) - 1, "a room on the wire"),
    "protocol.events.DECODE_GROUP": (2, 2, "a code, beside the prefill group's"),
    "protocol.messages.MAX_AUX": (1 << 17, 1 << 20, "bytes of a request's last step: hidden states and samples"),
    "protocol.messages.MAX_ENDPOINT": (1 << 19, 1 << 23, "bytes of a transport's card with thousands of regions"),
    "protocol.messages.MAX_LAYER_GROUPS": (1 << 8, 1 << 12, "as many as a model has layers"),
    "protocol.messages.MAX_PAGES": (1 << 21, 1 << 24, "bytes: four a page, of a million pages of one token"),
    "protocol.messages.MAX_REASON": (100, 1000, "characters of a sentence that is still read"),
    "protocol.messages.MAX_SECRET": (32, 256, "bytes that nobody guesses; each room holds them"),
    "protocol.messages.MAX_TRACEPARENT": (55, 55, "W3C's own length"),
    "protocol.messages.OLDEST": (3, 3, "on the wire"),
    "protocol.messages.VERSION": (3, 3, "on the wire"),
    "protocol.notification.MAX_NOTES": (32, 96, "parts of one tag, of which NIXL takes 8,192 bytes"),
    "protocol.tables.links.YIELDS": (2, 2, "beats; one may be late"),
    "protocol.versions.NAMED": (2, 16, "agreements in a sentence that is still read"),
    "protocol.versions.SHOWN": (20, 128, "characters of a name that a peer has given"),
    "rank.base.BESIDE": (12, 12, "a code, compared with others"),
    "rank.base.CURRENT": (8, 8, "a code, compared with others"),
    "rank.base.CUTS": (128, 1 << 14, "terms of rooms that are live, shared by them"),
    "rank.base.OUTSIDER": (2, 2, "a code, compared with others"),
    "rank.base.STALE": (4, 4, "a code, compared with others"),
    "rank.prefill.BATCH": (16, 512, "rooms of one forward's batch; all would take a pass"),
    "rank.prefill.OLDEST": (4, 256, "rooms that are looked at for the next gathers; all would take a pass"),
    "rank.prefill_links.ESTIMATES": (64, 1 << 12, "a link's; there may be thousands of links"),
    "rank.prefill_links.KEPT": (1 << 10, 1 << 18, "lengths and claims of live rooms, shared by them"),
    "rank.room_turns.LARGER": (2, 16, "every so many turns are a larger room's: not every one, and not never"),
}  # fmt: skip


#: by setting: the least and the most that it is unless an engine says so, and why
DEFAULTS: dict[str, tuple[int, int, str]] = {
    "window": (2, 16, "one chunk is asked for while another travels; a room holds as many regions"),
    "slots": (2, 16, "one is filled while another is written; each is a chunk of the device's memory"),
    "slot_bytes": (0, 0, "as large as the largest part"),
    "max_unanswered_requests": (16, 512, "requests of a round trip; the decode rank queues as many for each link"),
    "page_writes": (2, 64, "one is posted while another is in flight; each holds its descriptors"),
    "ring_bytes": (1 << 28, 1 << 33, "a few hundred chunks; the device's memory beside the pool"),
    "ring_rounds_ahead": (2, 8, "grants are on their way before the ring is free; each is held by a send"),
    "layer_groups": (1, 1, "engines have to say which layers are produced"),
    "forward_slowdown": (2, 50, "per cent of a forward"),
    "tombstones": (1 << 10, 1 << 15, "rooms that ended within the longest retry"),
    "unclaimed_rooms": (1 << 10, 1 << 15, "rooms that the prefill engine opens later; a stranger can make as many"),
    "links": (256, 1 << 13, "ranks of all instances; each has a plan and three sockets"),
    "trace": (128, 1 << 12, "steps of the last rooms; more leave the cache"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_setting_is_of_its_order_by_default(name: str) -> None:
    least, most, why = DEFAULTS[name]
    assert least <= getattr(Settings(), name) <= most, why


def test_every_number_of_the_settings_has_bounds() -> None:
    numbers = {each.name for each in msgspec.structs.fields(Settings) if each.type is int}
    assert {*DEFAULTS} == numbers == {name for name, _, _ in SETTINGS_BOUNDS}


def constants() -> Iterator[str]:
    """Module and name of each whole number above one that is assigned at the top of a module."""
    paths = {PACKAGE / name for name in FILES}
    for path in sorted(paths.union(*((PACKAGE / folder).rglob("*.py") for folder in FOLDERS))):
        if path.relative_to(PACKAGE).as_posix() in LEFT_OUT:
            continue
        module = import_module("kvproto." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for node in ast.parse(path.read_text()).body:
            if isinstance(getattr(node, "value", None), ast.Call):
                continue  # it follows from others
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for name in (each for target in targets if target for each in ast.walk(target)):
                if isinstance(name, ast.Name) and name.id.isupper() and is_bound(vars(module)[name.id]):
                    yield f"{module.__name__.removeprefix('kvproto.')}.{name.id}"


def is_bound(value: object) -> bool:
    """Tell bounds from zero and one, which number things."""
    return type(value) is int and value > 1


def test_every_bound_has_a_row() -> None:
    assert sorted(constants()) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_lies_between_two_sizes(name: str) -> None:
    module, _, constant = name.rpartition(".")
    least, most, why = BOUNDS[name]
    assert least <= getattr(import_module(f"kvproto.{module}"), constant) <= most, why
