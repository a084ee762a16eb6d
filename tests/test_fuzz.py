"""Damaged input: every decoder is listed, and an undocumented error is found again."""

from __future__ import annotations

import json
import random
from typing import get_args

import pytest

from kvproto.cli import main
from kvproto.fsm.codec import WireError
from kvproto.lab.torture.fuzz import Decoder, bodies, damaged, decoders, fuzz
from kvproto.protocol.messages import Message

ALL = {decoder.name: decoder for decoder in decoders()}


@pytest.mark.parametrize("name", ALL)
def test_a_decoder_takes_its_samples_and_refuses_the_rest_by_name(name: str) -> None:
    decoder = ALL[name]
    for sample in decoder.samples:
        decoder.read(decoder.mend(sample))
    result = fuzz(decoder, 1, 600)
    assert result.found == [] and result.undocumented == 0
    assert result.inputs == result.taken + result.documented == 600
    assert result.taken and result.documented, "all alike: the damage is too much, or too little"


def test_a_message_of_every_kind_is_damaged() -> None:
    assert {type(body) for body in bodies()} == set(get_args(Message))


def test_what_nobody_documents_is_found_and_found_again() -> None:
    def read(data: bytes) -> None:
        if data[:1] == b"\xff":
            raise ZeroDivisionError("by a byte")
        if data[:1] == b"\x00":
            raise WireError("documented")

    decoder = Decoder("planted", read, (WireError,), (b"\x00abc", b"\x01abc"))
    first, again, other = fuzz(decoder, 3, 3000), fuzz(decoder, 3, 3000), fuzz(decoder, 4, 3000)
    assert first.undocumented and first.documented and first.taken
    assert first.found == again.found != other.found and "ZeroDivisionError: by a byte; ff" in first.found[0]
    number = int(first.found[0].split()[1].rstrip(":"))
    data = damaged(decoder.samples, random.Random(f"planted 3 {number}"))
    with pytest.raises(ZeroDivisionError):
        read(data)


def test_the_command_counts_inputs_and_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "control", "address of", "--inputs", "50", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["decoder"] for each in told] == ["control frame", "address of a rank"]
    assert all(each["inputs"] == 50 == each["taken"] + each["documented"] for each in told)
    assert main(["fuzz", "endpoint", "--inputs", "20"]) == 0
    assert "40 inputs: no undocumented errors" in capsys.readouterr().out
    assert main(["fuzz", "nothing"]) == 2
    assert "there are control frame, " in capsys.readouterr().err
