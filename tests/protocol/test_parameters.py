"""The parameters of a protocol: one dataclass gives validation, command line and documentation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocol.parameters import NoParameters, describe, make_parameters, parameter, read_text


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One parameter of each kind."""

    subset: int = parameter(1, "Members that hear of it.", at_least=1)
    step_s: float | None = parameter(None, "The step.", at_least=0.001, otherwise="what the network needs")
    share: float = parameter(0.5, "A share.", at_least=0, at_most=1)
    least: int = parameter(0, "Anything small.", at_most=10)
    eager: bool = parameter(False, "Send at once.")
    shuffled: bool | None = parameter(None, "Ignore places.", otherwise="by the network")
    ending: Literal["early", "late"] = parameter("late", "When it ends.")
    plain: int = 3


def test_what_is_not_given_has_its_default() -> None:
    assert make_parameters(Sample, {}, "sample") == Sample()
    assert make_parameters(Sample, {"subset": 4, "ending": "early"}, "sample") == Sample(subset=4, ending="early")


@pytest.mark.parametrize(
    "given",
    [
        {"subset": 1},
        {"step_s": None},
        {"step_s": 1},
        {"step_s": 0.001},
        {"share": 0},
        {"share": 1.0},
        {"least": -(10**9)},
        {"eager": True},
        {"shuffled": None},
        {"shuffled": False},
        {"ending": "early"},
        {"plain": -7},
    ],
    ids=str,
)
def test_a_value_that_fits_is_taken_as_it_is(given: dict[str, Any]) -> None:
    made = make_parameters(Sample, given, "sample")
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subset": 0}, "subset = 0 of sample: choose 1 or more"),
        ({"subset": 1.0}, "subset = 1.0 of sample: give int"),
        ({"subset": True}, "subset = True of sample: give int"),
        ({"subset": None}, "subset = None of sample: give int"),
        ({"subset": "2"}, "subset = '2' of sample: give int"),
        ({"step_s": 0.0}, "step_s = 0.0 of sample: choose 0.001 or more"),
        ({"step_s": math.nan}, "step_s = nan of sample: give a finite number"),
        ({"step_s": math.inf}, "step_s = inf of sample: give a finite number"),
        ({"step_s": "soon"}, "step_s = 'soon' of sample: give float or int"),
        ({"share": 1.5}, "share = 1.5 of sample: choose from 0 to 1"),
        ({"least": 11}, "least = 11 of sample: choose 10 or less"),
        ({"eager": 1}, "eager = 1 of sample: give bool"),
        ({"eager": None}, "eager = None of sample: give bool"),
        ({"ending": "never"}, "ending = 'never' of sample: choose early or late"),
        ({"ending": 3}, "ending = 3 of sample: give str"),
        (
            {"subsets": 2},
            "sample has no parameter 'subsets': "
            "choose from subset, step_s, share, least, eager, shuffled, ending, plain",
        ),
    ],
    ids=lambda one: str(one) if isinstance(one, dict) else "",
)
def test_a_value_that_does_not_fit_is_one_clear_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        make_parameters(Sample, given, "sample")
    assert str(raised.value) == said


def test_a_protocol_without_parameters_says_so() -> None:
    with pytest.raises(LocalProtocolError, match=r"^coord has no parameter 'subset': it has none$"):
        make_parameters(NoParameters, {"subset": 1}, "coord")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subset", "7", 7),
        ("step_s", "2", 2),
        ("step_s", "1e-3", 0.001),
        ("share", "0.25", 0.25),
        ("eager", "true", True),
        ("eager", "False", False),
        ("ending", "early", "early"),
    ],
)
def test_a_text_of_the_command_line_becomes_the_value(name: str, text: str, value: Any) -> None:
    found = read_text(describe(Sample)[name], text, "sample")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("subset", "2.5", "subset = '2.5' of sample: give a whole number"),
        ("subset", "many", "subset = 'many' of sample: give a whole number"),
        ("step_s", "fast", "step_s = 'fast' of sample: give a number"),
        ("eager", "maybe", "eager = 'maybe' of sample: give true or false"),
    ],
)
def test_a_text_that_is_no_value_is_one_clear_line(name: str, text: str, said: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        read_text(describe(Sample)[name], text, "sample")
    assert str(raised.value) == said


def test_a_text_that_is_no_choice_is_refused_with_the_value() -> None:
    assert read_text(describe(Sample)["ending"], "never", "sample") == "never"
    with pytest.raises(LocalProtocolError, match="choose early or late"):
        make_parameters(Sample, {"ending": "never"}, "sample")


def test_a_parameter_tells_all_that_its_documentation_needs() -> None:
    known = describe(Sample)
    assert list(known) == ["subset", "step_s", "share", "least", "eager", "shuffled", "ending", "plain"]
    step = known["step_s"]
    assert (step.types, step.is_optional, step.default) == (frozenset({float, int}), True, None)
    assert (step.help, step.at_least, step.at_most) == ("The step.", 0.001, math.inf)
    assert step.otherwise == "what the network needs"
    assert (known["ending"].types, known["ending"].choices) == (frozenset({str}), ("early", "late"))
    assert (known["plain"].default, known["plain"].help) == (3, "")
    assert describe(NoParameters) == {}


@pytest.mark.parametrize("hint", [list[int], dict[str, int], bytes, int | bytes, None, Literal[1, 2]])
def test_a_field_of_another_type_is_refused(hint: Any) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Odd:
        odd: Any = field(default=None)

    Odd.__annotations__["odd"] = hint
    with pytest.raises(LocalProtocolError, match=r"^parameter odd is of type .*: use int, float, bool, "):
        describe(Odd)


def test_a_field_without_a_default_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Open:
        subset: int

    with pytest.raises(LocalProtocolError, match=r"^parameter subset has no default: give one"):
        describe(Open)


def test_what_is_declared_for_the_search_must_be_possible() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong:
        radix: int = parameter(2, "A radix.", at_least=2, search=(1,))

    @dataclass(frozen=True, kw_only=True)
    class Unknown:
        radix: int = parameter(2, "A radix.", matters_with=("overlay", "tree"))

    @dataclass(frozen=True, kw_only=True)
    class Chosen:
        radix: int = parameter(2, "A radix.", search_factors=(2.0,))

    @dataclass(frozen=True, kw_only=True)
    class Single:
        radix: int = parameter(2, "A radix.", search=4)  # type: ignore[arg-type]

    @dataclass(frozen=True, kw_only=True)
    class Alone:
        radix: int = parameter(2, "A radix.", matters_with="overlay")  # type: ignore[arg-type]

    wrong = {
        Wrong: "2 or more",
        Unknown: "no such parameter",
        Chosen: "that resolve chooses",
        Single: "^parameter radix has search = 4: give a tuple of values$",
        Alone: "^parameter radix has matters_with = 'overlay': give a parameter and its value$",
    }
    for kind, said in wrong.items():
        with pytest.raises(LocalProtocolError, match=said):
            describe(kind)
