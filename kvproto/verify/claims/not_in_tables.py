"""Not in tables: every condition in ranks and engine that asks about the protocol, each with its
reason.

A test measures the code against this list: a condition on a state, a kind of message, an epoch, a lease or the like
that stands in no entry is an error, and so is an entry that nothing answers to.  PROTOCOL.md shows it.
"""

from __future__ import annotations

import msgspec


class Exemption(msgspec.Struct, frozen=True):
    """A kind of decision beside the tables: its places (`file:function`), its reason, and its test."""

    name: str
    why: str
    places: tuple[str, ...]
    test: str


NOT_IN_TABLES = (
    Exemption(
        "how a step is carried out",
        "A value that is final is put away, a timer that ends earlier gets a key in the wheel, one that is not yet due"
        " is put back: what is kept follows from the value that the row made, whatever the row.",
        ("fsm/machine_store.py:wake", "fsm/machine_store.py:_wake_parts", "fsm/machine_store.py:rearm",
         "fsm/machine_store.py:timer_event"),
        "tests/test_core_step.py",
    ),
    Exemption(
        "what is made ready beforehand",
        "Which gathers will be launched, and which pages stored, is guessed from the sends that wait for their KV, and"
        " decides nothing: a guess that fails is dropped, and the launch is made when it is due.",
        ("rank/prefill.py:expected_gathers", "rank/prefill.py:expected_stores", "data/prefill_data.py:busy",
         "data/prefill_data.py:_prepare_next", "data/prepared_launches.py:ready"),
        "tests/test_prefill_handlers.py",
    ),
    Exemption(
        "by what a note travels",
        "The first notification of a part that a kernel has stored goes by a local socket of the decode rank, where"
        " it has one on this host, or by the transport, where that can, and any other by the control plane: it is the"
        " same message, and one that comes twice counts once. It leaves as the kernel is seen to have ended, before the"
        " rows that say so: of a write that was not stopped they say just that.",
        ("data/prefill_data.py:transmit", "data/writes.py:hear"),
        "tests/test_mapped_pages.py",
    ),
    Exemption(
        "with what an aux row travels",
        "The first time with the note of the room's last part, while that is being written into pages, if the decode"
        " rank reads rows there, half a tag holds it and the transport takes the note; else by itself. It is the same"
        " message, and what is not confirmed is sent again by itself: nothing rests on the note.",
        ("data/prefill_data.py:send_aux",),
        "tests/test_notification.py",
    ),
    Exemption(
        "what a peer's build can do",
        "A call of the engine that needs a capability is refused by its name where a link that is up lacks it; metrics"
        " count links by the build at their other end. Both read what the rows of the handshake have kept.",
        ("rank/decode.py:lacking", "metrics/metrics.py:_by_build"),
        "tests/test_versions.py",
    ),
    Exemption(
        "whether a message can leave",
        "A message leaves on a link that is up, under its epoch, and is not kept otherwise: whoever needs an answer"
        " asks again, and a link that comes up tells its rooms.",
        ("rank/base.py:_link_up", "rank/base.py:_send"),
        "tests/test_core_scenarios.py",
    ),
    Exemption(
        "facts",
        "What a route or a guard asks is found out here and decided there: whose link it is, of which group, whether"
        " two ranks fit, whose incarnation is the later one, which rooms a link concerns, which sends a chunk's KV,"
        " which chunk of its room a request is about.",
        ("rank/base.py:facts", "rank/base.py:_sender_fact", "rank/base.py:_rooms_of",
         "rank/prefill_links.py:_shown_fact",
         "rank/base.py:misfit", "rank/decode.py:misfit_of", "rank/decode.py:is_later", "rank/decode.py:cut_of",
         "rank/decode.py:awaits_return", "rank/decode.py:to_call_anew",
         "rank/decode.py:call", "rank/decode.py:_needed", "rank/prefill.py:_offer_kv", "rank/prefill.py:_withdraw_kv",
         "rank/prefill.py:unsent"),
        "tests/test_core_scenarios.py",
    ),
    Exemption(
        "of what a chunk is",
        "A chunk is of tokens or of state by its number. Pool, slot, plan, kernels, costs and pages follow from that, and"
        " what may be told of it: state is there when all tokens are, and needs a slot that holds it or a way into the"
        " peer's.",
        ("rank/prefill.py:_open_window", "rank/prefill.py:_computed", "rank/prefill.py:send_timer",
         "rank/prefill_links.py:_no_way_of_state", "rank/prefill_links.py:end_estimate",
         "rank/prefill_links.py:estimate",
         "data/chunk_launch.py:bind_chunk", "data/gathers.py:_bind", "data/prefill_data.py:prepare_pages",
         "data/end_pages.py:far_pages", "data/prefill_wires.py:_stores",
         "data/decode_data.py:_bind", "data/decode_data.py:arrived", "data/decode_data.py:send_pages", "endpoint/prefill_endpoint.py:_prepare_kernels",
         "endpoint/prefill_groups.py:_make_kernels"),
        "tests/test_state_rooms.py",
    ),
    Exemption(
        "bounds",
        "Rooms that only the other side has opened, links, groups without links, queues, the trace and a room's layer"
        " groups are bounded; what is one too many is counted and dropped, and its sender repeats it.",
        ("rank/prefill_links.py:full",
         "rank/prefill_links.py:_make_room", "rank/prefill_links.py:_peer_opened",
         "rank/base.py:noted", "endpoint/prefill_groups.py:_keep"),
        "tests/test_core_scenarios.py",
    ),
    Exemption(
        "one object for what is equal",
        "Terms that are equal are one object for all rooms of two groups: memory, nothing else.",
        ("rank/base.py:same_terms",),
        "tests/test_endpoint_calls.py",
    ),
    Exemption(
        "resources and pacing",
        "Credits, slots, permits and regions are given first come, first served, a region only to a room that does not"
        " hold its share of the ring, slots to decode ranks and their rooms in turn, and the last slot not to one that"
        " holds all others; gathers and scatters are launched after the frames of"
        " their pass, small rooms first; of four regions or launches one is a larger room's; batches wait"
        " while the transport has no room, and a pass posts a bounded number of pieces; a poll is short while"
        " something is expected; a connection that leads to the address already is used again; of one connection's"
        " calls a few are heard a second. When, never whether.",
        ("rank/decode.py:held",
         "endpoint/link_calls.py:dial", "endpoint/link_calls.py:say_hello", "endpoint/link_calls.py:_call_left",
         "endpoint/link_calls.py:try_address", "loop/rank_loop.py:hear"),
        "tests/test_writes.py",
    ),
    Exemption(
        "faults of libraries and handlers",
        "What a library says of a write becomes an event; a handler that fails ends its room, and never the loop.",
        ("data/writes.py:hear", "data/writes.py:_settled"),
        "tests/test_loop_engine.py",
    ),
    Exemption(
        "a call of another build",
        "A HELLO that cannot be read to its end is no message, so no row can take it: it is refused by what its"
        " beginning says, and bound to nothing.",
        (),
        "tests/test_versions_meet.py",
    ),
    Exemption(
        "what the engine is told",
        "Status, outcome, times, counts and explanation are read from the values and change none.",
        ("endpoint/endpoint.py:status", "endpoint/prefill_endpoint.py:caller", "endpoint/endpoint.py:_outcome",
         "endpoint/prefill_endpoint.py:_knows_room", "loop/blames.py:take",
         "endpoint/decode_endpoint.py:_stage", "endpoint/takers.py:give_up", "endpoint/takers.py:_tell",
         "endpoint/prefill_groups.py:_wanted", "endpoint/prefill_groups.py:leads_to",
         "data/room_entry.py:transfer", "endpoint/resume_point.py:point_of",
         "room.py:ok", "metrics/metrics.py:_decode", "endpoint/spans.py:ended",
         "endpoint/explain.py:_prefill", "endpoint/explain.py:_decode", "endpoint/explain.py:_over", "endpoint/explain.py:_last",
         "endpoint/explain.py:_grants",
         "endpoint/explain.py:unlinked", "endpoint/explain.py:explain_link",
         "endpoint/explain.py:_leaving", "endpoint/explain.py:_down", "endpoint/explain.py:_plain"),
        "tests/test_endpoint_calls.py",
    ),
)  # fmt: skip
