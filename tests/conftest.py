"""What tests share: how hypothesis searches, and control planes that are closed at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from kvproto.io.control.control import Control

# No deadlines: how long an example takes says more about the machine than about the code. On a build machine the same
# examples each time, so that a change is judged by what it changes; elsewhere new ones, which is how they find things.
settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take long come first: dealt out last, one would keep a process busy alone."""
    longest = Counter[Path]()
    for item in items:
        mark = item.get_closest_marker("timeout")
        longest[item.path] = max(longest[item.path], mark.args[0] if mark else 0)
    items.sort(key=lambda item: -longest[item.path])


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
