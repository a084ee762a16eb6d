"""Fixtures of all tests: profiles of hypothesis, and control planes that are closed at the end."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from support.night import DAY, left_out, name_of

from kvproto.lab.process_group import WARM

if TYPE_CHECKING:
    from kvproto.io.control.control import Control
    from kvproto.verify.testing.pair import Pair

# No deadlines: how long an example takes says more about the machine than about the code. On a build machine the same
# examples each time, so that a change is judged by what it changes; elsewhere new ones, which is how they find things.
# Nobody wants to see the smallest example of what a mutant does (`kvproto mutate`).
settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("trial", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile("trial" if os.environ.get("KVPROTO_TRIAL") else "ci" if os.environ.get("CI") else "here")


#: the files that take longest, the longest first: dealt out last, one would keep a process busy alone
LONGEST = (
    "check_configs", "handler_worlds", "prove", "table_mutants", "misbehaving_prefill", "demo_matrix", "witness_chunk",
    "misbehaving_decode", "transport_nixl", "kernels_triton", "digest", "torture", "doctored_files", "check_mutants",
    "check_haste", "control", "core_scenarios", "bench_command", "second_protocol", "faults_processes", "docs_change",
    "check_command",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the night; where tests are dealt out, order long files first."""
    if DAY:
        out = left_out([name_of(item) for item in items])
        config.hook.pytest_deselected(items=[item for item in items if name_of(item) in out])
        items[:] = [item for item in items if name_of(item) not in out]
    if not hasattr(config, "workerinput"):
        return
    place = {f"test_{name}": at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(autouse=True, scope="session")
def _one_fork_server_for_all() -> None:
    """Have the process's fork server load the model, whoever starts it: else each later rank would."""
    WARM.insert(0, "kvproto.lab.demo.rank_program")


@pytest.fixture(autouse=True, scope="module")
def _collect_new_objects_only() -> None:
    """Freeze what earlier files have left alive: a collection then costs what its own file makes."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["first GPU", "another GPU"])
def gpu(request: pytest.FixtureRequest) -> str:
    """The name of a GPU: of the thread's current one, and of one that is not."""
    import torch  # most tests need none

    at = torch.cuda.device_count() - 1 if request.param == "another GPU" else 0
    if request.param == "another GPU" and at < 1:
        pytest.skip(f"this needs two GPUs, torch sees {at + 1}")
    return f"cuda:{at}"


@pytest.fixture
def opened() -> Iterator[Callable[..., Control]]:
    """Make Controls that are closed at the end."""
    from kvproto.io.control.control import Control  # machines for the kernels' tests have no ZeroMQ

    controls: list[Control] = []

    def make(*args: Any, **options: Any) -> Control:
        controls.append(Control(*args, **options))
        return controls[-1]

    yield make
    for control in controls:
        control.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two prefill ranks and one decode rank whose links are up; a file that wants others has its own."""
    from support.stories import layout  # they need what endpoints need

    from kvproto.verify.testing.pair import Pair

    with Pair(layout(2), layout(1), chunk_tokens=8) as made:
        yield made
