"""Reliable, causally ordered multicast that knows when a message is everywhere, and the laboratory to choose it in."""

from __future__ import annotations

__version__ = "0.1.0"
