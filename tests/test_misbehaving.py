"""Peers, libraries and engines that break the contract: nothing that they say, answer or call stops a rank.

Each world is one rank, its states from the checker's or from simulated worlds, and everything that may come to it there
(see `support.hostile`).  Between them they fire every row of every table and take every route, without one event that
only the rank's own machines raise: a row that nothing here fires, nothing can.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest
from support.hostile import PARTY, WITHIN, Suspect, SuspectDecode, SuspectPrefill
from support.hostile_menus import menu, well_formed
from support.hostile_search import Found, HostileSearch, honest_values, simulated_values, used_again

from kvproto.check.config import Config
from kvproto.check.configs import AT_ONCE
from kvproto.check.snapshot import Frozen
from kvproto.check.table_patching import Bench
from kvproto.fsm.table import Table
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.routes import SenderIs, prefill_routes
from kvproto.protocol.sources import SOURCES
from kvproto.protocol.states import DRoom, PSend
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.trace.coverage import ROUTES, Collector

pytestmark = [pytest.mark.misbehaving, pytest.mark.timeout(600)]
