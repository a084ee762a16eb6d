"""Kinds of the protocol's numbers and masks, as values, events and effects name them."""

from __future__ import annotations

from typing import Annotated

from kvproto.fsm.kinds import I64, Mask, Number
from kvproto.layout.sharding import MAX_RANKS

#: a room's key: 32 bits of gen above the 64 of the room id
RoomKey = Annotated[int, Number(bits=96)]
#: a rank's index in the other side's group
Rank = Annotated[int, Number(bits=(MAX_RANKS - 1).bit_length())]
#: a rank's index, or -1: it is about none
RankOrNone = Annotated[int, Number(bits=16, signed=True)]
#: ranks of the other side's group
RankMask = Annotated[int, Mask(MAX_RANKS)]
#: a chunk of a room
ChunkNumber = Annotated[int, Number(bits=24)]
#: a chunk of a room, or below 0: its aux row, or the room itself
ChunkOrAux = Annotated[int, Number(bits=25, signed=True)]
#: chunks of a room, which may have any number
ChunkSet = Annotated[int, Mask()]
#: tokens of a prompt, and runs of its pages
Tokens = Annotated[int, Number(bits=32)]
#: groups of layers that a cell is cut into
LayerGroups = Annotated[int, Number(bits=16)]
#: a staging slot, or -1: none
SlotOrNone = I64
#: a watermark as one number: 64 bits of round above 48 of bytes
Mark = Annotated[int, Number(bits=112)]
