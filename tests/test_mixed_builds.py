"""Two builds in one process: ranks of another build, beside this one's, move real bytes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builds import changed_beside
from support.stories import layout
from test_versions_meet import NEWER

from kvproto.protocol.messages import VERSION
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

OTHER = "kvproto_of_another_build"


class MixedPair(Pair):
    """A pair whose ranks of one side are of the other build."""

    def __init__(self, side: str) -> None:
        self.side = side
        super().__init__(layout(2), layout(1), chunk_tokens=8)

    def _made(self, side: str, index: int, **more: Any) -> Any:
        made = getattr(import_module(f"{OTHER}.endpoint.{side}_endpoint"), f"{side.title()}Endpoint")
        plain = msgspec.to_builtins(self.settings)
        settings = msgspec.convert(plain, import_module(f"{OTHER}.settings").Settings)
        cut = getattr(self.plan, side)
        return made(
            cut, index, self.pool(cut, index, 1 if side == "prefill" else 2), self.transport(),
            chunk_tokens=self.plan.chunk_tokens, settings=settings, **more,
        )  # fmt: skip

    def make_prefill(self, index: int) -> Any:
        if self.side == "prefill":
            return self._made("prefill", index, group=PREFILL_GROUP)
        return super().make_prefill(index)

    def make_decode(self, index: int) -> Any:
        if self.side == "decode":
            return self._made("decode", index, group=DECODE_GROUP)
        return super().make_decode(index)


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[None]:
    """A build with a wire version more, and a field more in STAGING_REQ."""
    with changed_beside(tmp_path, OTHER, *NEWER):
        yield


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_rooms_go_between_two_builds_of_which_one_has_a_field_more(side: str) -> None:
    with MixedPair(side) as pair:
        others = pair.prefills if side == "prefill" else pair.decodes
        assert {type(inside(each).rank).__module__.partition(".")[0] for each in others} == {OTHER}
        messages = import_module(f"{OTHER}.protocol.messages")
        assert messages.VERSION == VERSION + 1 and messages.StagingReq(3).soon is False
        rooms = [pair.open(30), pair.open(20, prefix=8), pair.open(9)]
        for room in rooms:
            pair.finish(room)
            assert {cause.name for cause in pair.causes(room)} == {"NONE"}
        pair.check(*rooms)
        for each in pair.endpoints:
            assert {value.build.version for value in inside(each).rank.links.values()} == {VERSION}
            assert not inside(each).loop.counts["malformed frames"]
        assert "StagingReq" in {kind.__name__ for kind in inside(pair.decodes[0]).loop.heard}, (
            "with and without the field"
        )
