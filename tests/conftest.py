"""What every test shares: how hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadlines: how long an example takes says more about the machine than about the code. On a build machine the same
# examples each time, so that a change is judged by what it changes; elsewhere new ones, which is how they find things.
settings.register_profile("here", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
