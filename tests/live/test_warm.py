"""What a member loads before it joins."""

from __future__ import annotations

import gc

from cubecast.live.warm import load


def test_loaded_protocols_are_exempt_from_garbage_collection() -> None:
    """A full collection would otherwise visit the compiler's objects every few seconds of full load."""
    gc.unfreeze()
    try:
        load.__wrapped__("timestamp", "s_coord")
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < gc.get_freeze_count()
    finally:
        gc.unfreeze()
