"""Memory: SGLang's own memory as tensors, by address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch


def view(address: int, shape: Sequence[int], device: str) -> torch.Tensor:
    """Bytes that are there already, as a tensor; whoever owns them must keep them."""
    if device.startswith("cuda"):
        return torch.as_tensor(_Foreign(address, tuple(shape)), device=device)
    size = torch.Size(shape).numel()
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8).view(*shape)


class _Foreign:
    """Memory of a GPU, for torch to make a tensor of."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip
