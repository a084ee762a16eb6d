"""A hybrid model's request over NIXL between groups of other sizes: the tokens are the model's own."""

from __future__ import annotations

import pytest

pytest.importorskip("nixl._api")

from examples.hybrid_model.__main__ import main, moved, resumed
from examples.hybrid_model.job import Job, build, continued, forward, prompt


@pytest.mark.parametrize("options", [
    "--prefill 4 --decode 2 --prefix 16 --groups 3", "--prefill 1 --tokens 32 --prefix 32 --decode 4",
])  # fmt: skip
def test_the_tokens_are_those_of_the_model_alone(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options.split()) == 0
    assert capsys.readouterr().out.endswith("\nequal\n")


def test_two_segments_that_changed_places_are_noticed() -> None:
    job = Job()
    token, ranks = moved(job)
    model = build(job)
    alone = continued(model, *forward(model, prompt(job)), job.new)
    assert resumed(job, token, ranks, swap=False) == alone != resumed(job, token, ranks, swap=True)
