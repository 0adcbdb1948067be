"""How Hypothesis searches in this project.

`HYPOTHESIS_PROFILE=explore` looks for new failures with fresh randomness and more examples. The default draws the same
examples every time, so that a change is judged by itself and not by its luck.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: the first example of a test may wait for the compiler.
settings.register_profile("steady", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
