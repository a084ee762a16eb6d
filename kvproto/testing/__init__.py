"""Testing: what a test of the protocol, or of an engine that embeds it, can be built from.

Three sizes, each the real thing but for one part, which says so:

* `kvproto.sim.world`: real ranks; what they say to each other and to their kernels and transports lies in lists, and
  a seeded schedule chooses what happens next, what is lost, repeated or late, who crashes, and what time it is.  No
  sockets, no threads, no bytes: thousands of whole transfers a minute.
* `pair` (with `pools`): real ranks, real loops, real control sockets and real bytes between pools of torch tensors;
  only the transport is the in-memory fabric, whose every move can be scheduled or made to fail.
* `strategies`: hypothesis strategies for layouts, messages and frames (this module alone needs hypothesis).

Time is an argument everywhere: `kvproto.io.clock.ManualClock` stands until it is moved.
`inside(endpoint)` shows the parts of an endpoint that an engine does not see.
"""

from kvproto.testing.access import Inside, inside

__all__ = ["Inside", "inside"]
