"""What the checker of counts counts in a trace: it says so where the metrics say something else."""

from __future__ import annotations

import re

from cubecast.trace.checkers import counts
from cubecast.trace.files import Trace
from cubecast.trace.schema import Events
from tests.support.checkers import check_by


def counted(events: Events, members: int) -> dict[str, float | None]:
    wrong = dict.fromkeys(counts.COUNTED + counts.TIMED, -1)
    found = {}
    for violation in check_by(counts, Trace(events=events, scenario={"members": members}, metrics=wrong)):
        said = re.fullmatch(r"the metrics say (\w+) = -1, the trace says (.+)", violation.message)
        assert said is not None
        found[said[1]] = None if said[2] == "None" else float(said[2])
    return found
