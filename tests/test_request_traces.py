"""Files of request traces: both formats, what a wrong line says, and which requests are replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproto.fsm.bounded_files import FileError
from kvproto.lab.bench.request_traces import TracedRequest, chosen, read_trace

EXCERPTS = Path(__file__).parents[1] / "examples" / "traces"
MOONCAKE = (
    '{"timestamp": 2500, "input_length": 700, "output_length": 7, "hash_ids": [4, 5]}\n'
    '\n'
    '{"timestamp": 500, "input_length": 512, "output_length": 0, "hash_ids": [4]}\n'
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:48.1805900,0,9\n"


def written(tmp_path: Path, text: str, name: str = "t") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_mooncakes_lines_are_read_in_order_of_arrival_with_their_blocks(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, MOONCAKE)) == [
        TracedRequest(0.0, 512, 0, (4,)), TracedRequest(2.0, 700, 7, (4, 5))
    ]  # fmt: skip


def test_azures_lines_are_read_by_content_whatever_the_file_is_called(tmp_path: Path) -> None:
    first, second = read_trace(written(tmp_path, AZURE, "trace.jsonl"))
    assert first == TracedRequest(0.0, 374, 44)
    assert (second.tokens, second.output, second.blocks) == (1, 9, ()), "a prompt of no tokens has one"
    assert second.arrival == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1 is neither a JSON object"),
        ("a,b,c\n1,2,3\n", "name a trace in Mooncake's or Azure's format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "there is no request in it: name a file that has"),
        (MOONCAKE + '{"timestamp": 1}\n', "line 4: Object missing required field `input_length`: mend or remove"),
        (MOONCAKE + '{"timestamp": 1\n', "line 4: Input data was truncated: mend or remove"),
        (MOONCAKE + '{"timestamp": 1, "input_length": -1}\n', "line 4: Expected `int` >= 1"),
        (MOONCAKE + '{"timestamp": 1, "input_length": 3, "hash_ids": [1, 2]}\n', "line 4: 2 hash_ids for 3 tokens"),
        (AZURE + "2023-11-16 18:15:46,x,1\n", "line 4: b'2023-11-16 18:15:46,x,1\\n' is not a date and time"),
        (AZURE + "yesterday,1,1\n", "line 4: b'yesterday,1,1\\n' is not a date"),
        (AZURE + "2023-11-16 18:15:46,7\n", "line 4: b'2023-11-16 18:15:46,7\\n' is not a date"),
        (AZURE + "2023-11-16 18:15:46,-7,1\n", "line 4: a request of -7 and 1 tokens: they are from 0"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(text: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(FileError) as error:
        read_trace(path)
    assert says in str(error.value)
    assert str(error.value).startswith(f"{path}: ")


def test_each_nth_request_is_chosen_and_comes_faster(tmp_path: Path) -> None:
    trace = [TracedRequest(float(at), 10 + at, 1) for at in range(10)]
    found = chosen(trace, thin=3, requests=3, pace=2.0)
    assert [(request.arrival, request.tokens) for request in found] == [(0.0, 10), (1.5, 13), (3.0, 16)]


def test_a_trace_that_is_too_short_is_repeated_later_with_blocks_of_its_own() -> None:
    trace = [TracedRequest(0.0, 600, 1, (0, 7)), TracedRequest(4.0, 600, 1, (0, 8))]
    found = chosen(trace, thin=1, requests=5, pace=1.0)
    assert [request.arrival for request in found] == [0.0, 4.0, 5.0, 9.0, 10.0]
    shared = [{block for request in turn for block in request.blocks} for turn in (found[:2], found[2:4], found[4:])]
    assert not shared[0] & shared[1] and not shared[1] & shared[2]
    assert found[2].blocks[0] == found[3].blocks[0], "within a turn prefixes are shared as before"


@pytest.mark.parametrize(
    ("name", "requests"),
    [("mooncake_conversation.jsonl", 100), ("mooncake_synthetic.jsonl", 100), ("azure_conversation.csv", 200)],
)
def test_the_excerpts_that_come_along_are_read(name: str, requests: int) -> None:
    assert len(read_trace(EXCERPTS / name)) == requests
