"""Every setting is validated: an impossible value is one clear error."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.member.settings import Settings

WRONG: dict[str, list[Any]] = {
    "float": [math.nan, math.inf, -1.0, 0, "1", True, None, b"1", [1.0], 1e12],
    "int": [0, -1, 1.5, math.nan, "8", True, None, [1], 1 << 50],
    "bool": [0, 1, "yes", None],
    "str": [0, None, b"x", "magic", ["timestamp"]],
}
MAY_BE_ZERO = ("batch_s", "rerank_gain")


def cases() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for one in fields(Settings):
        for value in WRONG.get(str(one.type), []):
            if not (one.name in MAY_BE_ZERO and value == 0 and value is not False):
                found.append((one.name, value))
    for name in ("quorum", "slow", "resend", "sync"):
        found += [(name, value) for value in ("maybe", 1, None, True)]
    unkept: tuple[Any, ...] = ("some", -1, 1.5, True, None, [])
    found += [("keep", value) for value in unkept]
    wrong: tuple[Any, ...] = (5, "ab", {"x": 1})
    found += [(name, value) for name in ("data_parameters", "stability_parameters") for value in wrong]
    return found


@pytest.mark.parametrize(("name", "value"), cases(), ids=lambda one: repr(one)[:30])
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(LocalProtocolError) as refused:
        Settings(**{name: value})
    message = str(refused.value)
    assert name in message or "parameter" in message
    assert "\n" not in message


def test_the_defaults_pass() -> None:
    assert Settings() == Settings(data="auto", stability="auto")


def test_equal_parameters_make_equal_settings() -> None:
    one = Settings(stability="gossip", stability_parameters={"subset": 2, "step_s": 0.1})
    other = Settings(stability="gossip", stability_parameters={"step_s": 0.1, "subset": 2})
    assert one == other
    assert hash(one) == hash(other)
