"""CommandLine: reads a command's arguments, and reports a mistake in one line."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import NoReturn


class CommandLine(ArgumentParser):
    """Reads the arguments of a command, and reports a mistake without printing the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with exit code 2; one line names the mistake and where to read more."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())} ({self.prog} --help tells what it takes)\n")
