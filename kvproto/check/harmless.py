"""Survivors of the gate that are harmless, and why: the part of the name that tells them, and the reason."""

from __future__ import annotations

HARMLESS: dict[str, str] = {}
