"""Studies: from a plan to runs, tables, figures and a report (docs/plans.md); and the advisor (docs/advise.md).

from cubecast.lab import advise

advice = advise(members=100, network="random:degree=5", loss=0.02, rate="50/s", budget="30kb/s")
print(advice.best.candidate.label, advice.selection.best)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubecast.extras import named

if TYPE_CHECKING:
    from cubecast.lab.advisor.advice import Advice, advise

__all__ = ["Advice", "advise"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use: most modules of this package need far less."""
    if name not in __all__:
        raise AttributeError(f"module 'cubecast.lab' has no attribute {name!r}")
    with named(f"cubecast.lab.{name}"):
        from cubecast.lab.advisor import advice
    return getattr(advice, name)
