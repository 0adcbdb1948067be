"""Plans: what is refused, with which line; which runs come of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import PlanError
from cubecast.lab.load_plan import load_plan, load_plans
from cubecast.lab.runs import points_of, run_id, runs_of
from cubecast.lab.select import matches
from cubecast.lab.study import choose_plans, find_plans
from cubecast.lab.toml_lines import key_lines, line_of
from cubecast.protocols.stability.gossiping import TABLE_5_1

PLANS = Path(__file__).parents[2] / "plans"
CAUSAL, CUBE = "causal-fig03-growth", "cube-fig08-scaling"

GOOD = """\
id = "x"
paper = "own"
title = "a study"
protocols = ["coord", "s_coord"]

[fixed]
network = "random:degree=3"

[sweep]
members = [8, 16]

[[zip]]
loss = [0.0, 0.1]
repeat_ms = [0.0, 20.0]

[[skip]]
protocol = "s_coord"
members = ">8"

[quick]
repeats = 2

[full]
repeats = 3
sweep.members = [8, 16, 32]
[[figure]]
id = "1"
panel = "loss"
title = "RTT"
x = "members"
y = "rtt_first_ms"

[[claim]]
id = "c"
text = "coord is slower"
source = "§1"
[[claim.test]]
kind = "ratio"
metric = "rtt_first_ms"
top = { protocol = "coord" }
bottom = { protocol = "s_coord" }
above = 1.0
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "plan.toml"
        path.write_text(text)
        return path

    return write


def test_every_combination_is_run_once_a_seed_and_zipped_values_go_together(write: Write) -> None:
    runs = runs_of(load_plan(write(GOOD)), "quick")
    seen = [(run.point["protocol"], run.point["members"], run.point["loss"], run.seed) for run in runs]
    assert len(seen) == len(set(seen)) == (2 + 1) * 2 * 2
    assert {(run.settings["loss"], run.settings["repeat_ms"]) for run in runs} == {(0.0, 0.0), (0.1, 20.0)}
    assert ("s_coord", 16) not in {(protocol, members) for protocol, members, _, _ in seen}
    assert {run.seed for run in runs} == {0, 1}


def test_a_size_replaces_what_it_names(write: Write) -> None:
    plan = load_plan(write(GOOD))
    assert {run.point["members"] for run in runs_of(plan, "full")} == {8, 16, 32}
    assert {run.seed for run in runs_of(plan, "full")} == {0, 1, 2}


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('title = "a study"', 'titel = "a study"', 3, "unknown key 'titel'"),
        ('paper = "own"', 'paper = "lamport"', 2, "paper = 'lamport'"),
        ("members = [8, 16]\n\n", "members = [1, 16]\n\n", 10, "members = 1"),
        ("members = [8, 16]\n\n", "members = 8\n\n", 10, "a list of at least one value"),
        ("members = [8, 16]\n\n", "members = [8, 8]\n\n", 10, "twice"),
        (
            "members = [8, 16]\n\n",
            "membres = [8, 16]\n\n",
            10,
            "unknown setting 'membres' of coord: did you mean members",
        ),
        ('network = "random:degree=3"', 'network = "randon"', 7, "unknown network 'randon'"),
        (
            'network = "random:degree=3"',
            'network = "random:degree=3"\ntee_degree = 3',
            8,
            "unknown setting 'tee_degree' of coord: did you mean tree_degree",
        ),
        ('network = "random:degree=3"', 'network = "random:degree=3"\nrounds = 1.5', 8, "rounds = 1.5"),
        ("loss = [0.0, 0.1]", "loss = [0.0, 1.5]", 13, "loss = 1.5"),
        ("loss = [0.0, 0.1]", "loss = [0.0]", 12, "same length"),
        ("above = 1.0", f"above = {10**40}", 42, "a whole number of more than 64 bits"),
        ("loss = [0.0, 0.1]", f"loss = [0.0, {-(10**40)}]", 13, "a whole number of more than 64 bits"),
        ('network = "random:degree=3"', 'network = "file:/none.edges"', 7, "/none.edges"),
        ("[sweep]", "transport = 3\n[sweep]", 9, "transport = 3: write text in quotes"),
        ("[sweep]", 'detector = ["x"]\n[sweep]', 9, "detector = ['x']: write text in quotes"),
        ("repeats = 3\n", "repeats = 3\nzip = [1]\n", 25, "zip = 1: write a table of keys"),
        ('members = ">8"', 'members = ">=1e"', 16, "members = '>=1e', which no run has"),
        ('members = ">8"', 'members = ">8_"', 16, "members = '>8_', which no run has"),
        ("repeats = 2", "repeats = 0", 21, "repeats = 0"),
        ("repeats = 2", 'repeats = "2"', 21, "a whole number"),
        ('x = "members"', 'x = "sequence"', 30, "x = 'sequence'"),
        ('y = "rtt_first_ms"', 'y = "rtt"', 31, "unknown metric 'rtt'"),
        ('kind = "ratio"', 'kind = "feeling"', 38, "kind = 'feeling'"),
        ("above = 1.0", "", 37, "needs a bound"),
        ('top = { protocol = "coord" }', 'top = { colour = "red" }', 40, "selects by 'colour'"),
        ("above = 1.0", 'between = ["a", "b"]', 37, "bound 'a': write a number"),
        ("above = 1.0", "above = nan", 37, "bound nan: write a number"),
        ('bottom = { protocol = "s_coord" }', 'bottom = { protocol = "coord" }', 37, "compares a quantity with itself"),
        ("above = 1.0", "between = [2, 1]", 42, "the smaller bound first"),
        ("above = 1.0", "above = 1.0\nat = { members = 8 }", 37, "at and versus go together"),
        ("above = 1.0", "above = 1.0\nversus = { members = 8 }", 37, "at and versus go together"),
        ("above = 1.0", "above = 1.0\nwhere = { members = 9 }", 43, "members = 9, which no run has: choose from 8, 16"),
        ("above = 1.0", 'above = 1.0\nwhere = { members = "=>9" }', 43, "members = '=>9', which no run has"),
        ("above = 1.0", 'above = 1.0\nwhere = { members = ">99" }', 43, "members = '>99', which no run has"),
        ("above = 1.0", "above = 1.0\nwhere = { members = [8, 9] }", 43, "members = 9, which no run has"),
        (
            'bottom = { protocol = "s_coord" }',
            'bottom = { protocol = "scoord" }',
            41,
            "protocol = 'scoord', which no run",
        ),
        ('members = ">8"', 'members = "> 8 "', 16, "skip selects members = '> 8 ', which no run has"),
        ('source = "§1"', 'source = "§1"\nreadings = ["protocol"]', 37, "whose values a test compares with each other"),
        ('source = "§1"', 'source = "§1"\nreadings = ["colour"]', 37, "readings names 'colour': choose from"),
        ('source = "§1"', 'source = "§1"\nreadings = ["loss", "loss"]', 37, "twice: keep one"),
        ("above = 1.0", "within = 0.1", 42, "add paper"),
        ("above = 1.0", "within = -0.1\npaper = 3.0", 42, "a share of the value that the paper gives"),
        ("above = 1.0", "above = 1.0\nbelow = 2.0", 37, "needs a bound"),
        ("above = 1.0", "above = 1.0\nmargin = -0.1", 43, "margin = -0.1: write a number from 0"),
        ("above = 1.0", "above = 1.0\npaper = inf", 43, "the number that the paper gives"),
        ('kind = "ratio"', 'kind = "proportion"', 39, "a proportion is of ended or attached"),
        ("repeats = 2", "repeats = 2\nprecision = 0.1", 20, "precision and repeats_max go together"),
        ("repeats = 2", "repeats = 2\nprecision = 1.5\nrepeats_max = 9", 22, "a share of the mean"),
        ("repeats = 2", "repeats = 2\nprecision = 0.1\nrepeats_max = 4", 23, "repeats_max = 4: choose from 5"),
        ("loss = [0.0, 0.1]", "loss = [0.0, inf]", 13, "numbers that are finite"),
        ('id = "c"', 'id = "c/d"', 34, "it names files"),
        ('x = "members"', 'x = "protocol"', 30, "lines are drawn over numbers"),
        ('y = "rtt_first_ms"', 'y = "rtt_first_ms"\nonly = { loss = 0.3 }', 32, "loss = 0.3, which no run has"),
        ("members = [8, 16]\n\n", "members = [8, 16]\nseed = [1, 2]\n\n", 11, "a run's seed is its repeat"),
        ('network = "random:degree=3"', 'network = "random:degree=3"\nseed = 3', 8, "a run's seed is its repeat"),
        ('id = "x"', 'id = "../../evil"', 1, "it names files"),
        ('id = "x"', 'id = "a/b"', 1, "it names files"),
        ('kind = "ratio"', 'kind = "growth"\nx = "protocol"', 39, "growth over n needs numbers above 0"),
        ('kind = "ratio"', 'kind = "growth"\nx = "loss"', 39, "has the value 0.0: growth over n needs numbers above 0"),
        ("members = [8, 16]\n\n", "members = [8, 8.0]\n\n", 10, "twice"),
        (
            "members = [8, 16]\n\n",
            "members = [[8], 16]\n\n",
            10,
            "members holds [8]: write text, numbers, true or false",
        ),
        ("members = [8, 16]\n\n", "members = [1979-05-27]\n\n", 10, "write text, numbers, true or false"),
        ("members = [8, 16]\n\n", 'members = [8, 16]\nprotocol = ["coord"]\n\n', 11, "give it by protocols or variant"),
        ('network = "random:degree=3"', 'network = "random:degree=3"\nmembers = 4', 11, "twice, in fixed and sweep"),
        ('network = "random:degree=3"', 'network = "random:degree=3"\nprotocol = "train"', 8, "give it by protocols"),
        (
            'network = "random:degree=3"',
            'network = "random:degree=3"\ncrashes = [3]',
            8,
            "crash 3: write text in quotes",
        ),
        ("repeat_ms = [0.0, 20.0]", "repeat_ms = [0.0, 20.0]\n\n[[zip]]\nloss = [0.2]", 13, "in two zips: keep one"),
        ("loss = [0.0, 0.1]\nrepeat_ms = [0.0, 20.0]", "loss = [0.1, 0.1]\nrepeat_ms = [20, 20.0]", 12, "occurs twice"),
        ('protocols = ["coord", "s_coord"]', 'protocols = ["coord", "s_coord", "coord"]', 4, "'coord' twice"),
        ('protocols = ["coord", "s_coord"]', "[[variant]]\nlabel = 3", 5, "label = 3: write text in quotes"),
        (
            'protocols = ["coord", "s_coord"]',
            '[[variant]]\nlabel = "a"\nprotocol = ["coord"]',
            6,
            "write text in quotes",
        ),
        ('id = "x"', f'id = "{"x" * 101}"', 1, "at most 100 letters"),
        ('id = "1"', 'id = ""', 27, "a number or a short name"),
        ('id = "1"', 'id = "a\\nb"', 27, "a number or a short name"),
        ('y = "rtt_first_ms"', "y = []", 31, "name at least one metric"),
        ('y = "rtt_first_ms"', 'y = "rtt_first_ms"\nfirst = "coord"', 32, "first has no effect with kind = 'lines'"),
        ('panel = "loss"', 'panel = "members"', 28, "panel = 'members' is also x"),
        ('panel = "loss"\n', "", 26, "figure '1' has several values of loss at one place"),
        (
            'panel = "loss"\ntitle = "RTT"\nx = "members"',
            'panel = "members"\ntitle = "RTT"\nx = "loss"\nx_scale = "log"',
            31,
            "loss has values that are not above 0",
        ),
        (
            'y = "rtt_first_ms"',
            'y = "rtt_first_ms"\nonly = { loss = [] }',
            32,
            "only selects loss = [], no value at all",
        ),
        (
            'y = "rtt_first_ms"',
            'y = "rtt_first_ms"\nonly = { members = ">8", protocol = "s_coord" }',
            32,
            "no run matches all of only",
        ),
        (
            'bottom = { protocol = "s_coord" }',
            'bottom = { protocol = ["coord", "s_coord"] }',
            37,
            "both sides of this test select protocol = 'coord', members = 8",
        ),
        (
            "above = 1.0",
            'above = 1.0\nat = { members = 8 }\nversus = { members = "<=8" }',
            37,
            "both sides of this test",
        ),
        (
            "sweep.members = [8, 16, 32]",
            'sweep.members = [8, 16]\n[[claim]]\nid = "g"\ntext = "t"\nsource = "s"\n'
            '[[claim.test]]\nkind = "growth"\nmetric = "hops"\nabove = 1',
            30,
            "growth needs 3 values of members",
        ),
        ("above = 1.0", "above = inf", 37, "bound inf: write a number"),
        ("above = 1.0", "above = -1.0", 37, "a ratio is above 0, so is its bound"),
        ('kind = "ratio"', 'kind = "value"', 40, "top has no effect with kind = 'value'"),
        ("above = 1.0", 'above = 1.0\nx = "loss"', 43, "x has no effect with kind = 'ratio'"),
        (
            "above = 1.0",
            'above = 1.0\n[[claim.test]]\nkind = "value"\nmetric = "hops"\nabove = 3\n'
            '[[claim.test]]\nkind = "value"\nmetric = "hops"\nbelow = 2',
            47,
            "another test of this claim measures the same",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_line(write: Write, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    path = write(GOOD.replace(old, new, 1))
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reading_needs_more_than_one_value(write: Write) -> None:
    text = GOOD.replace("loss = [0.0, 0.1]\nrepeat_ms = [0.0, 20.0]", "loss = [0.1]\nrepeat_ms = [20.0]")
    with pytest.raises(PlanError, match=r":37: readings names 'loss', which has one value only: sweep several"):
        load_plan(write(text.replace('source = "§1"', 'source = "§1"\nreadings = ["loss"]')))


def test_a_reading_that_every_test_selects_one_value_of_is_refused(write: Write) -> None:
    text = GOOD.replace('source = "§1"', 'source = "§1"\nreadings = ["loss"]') + "where = { loss = 0.1 }\n"
    with pytest.raises(PlanError, match=r":37: readings names 'loss', of which the tests select one value only"):
        load_plan(write(text))


def test_a_claim_without_data_is_refused(write: Write) -> None:
    with pytest.raises(PlanError, match=r":37: no run has what this test selects"):
        load_plan(write(GOOD.replace('members = ">8"', 'members = ">=8"')))


def test_a_skip_is_a_table(write: Write) -> None:
    skip = '[[skip]]\nprotocol = "s_coord"\nmembers = ">8"\n'
    with pytest.raises(PlanError, match=r":1: skip = 'coord': write a table of keys"):
        load_plan(write('skip = ["coord"]\n' + GOOD.replace(skip, "")))


def test_a_variant_sets_only_what_its_protocol_has(write: Write) -> None:
    text = """id = "v"
paper = "own"
title = "variants"
[[variant]]
label = "wide"
protocol = "s_coord"
tree_degree = 5
[[variant]]
label = "flat"
protocol = "coord"
tree_degree = 5
[sweep]
members = [8]
[quick]
repeats = 1
[full]
repeats = 1
"""
    with pytest.raises(PlanError, match=r":11: tree_degree has no effect in this variant: leave it out"):
        load_plan(write(text))
    load_plan(write(text.replace('"coord"\ntree_degree = 5\n', '"coord"\n')))


def test_values_of_a_wrong_type_are_refused_with_their_line(write: Write) -> None:
    other_x = GOOD.replace('x = "members"', 'x = "loss"').replace('panel = "loss"', 'panel = "members"')
    with pytest.raises(PlanError, match=r":10: members = 'a': write a whole number"):
        load_plan(write(other_x.replace("members = [8, 16]\n\n", 'members = ["a", 16]\n\n')))


def test_two_claims_of_one_name_are_refused(write: Write) -> None:
    claim = GOOD[GOOD.index("[[claim]]") :]
    with pytest.raises(PlanError, match="is that of another claim: rename one"):
        load_plan(write(GOOD + claim))


def test_the_value_of_the_paper_gives_the_bounds(write: Write) -> None:
    plan = load_plan(write(GOOD.replace("above = 1.0", "paper = 50.0\nwithin = 0.2")))
    [test] = plan.claims[0].tests
    assert (test.low, test.high, test.paper) == (40.0, 60.0, 50.0)


def test_one_figure_alone_runs_what_it_draws(write: Write) -> None:
    plan = load_plan(write(GOOD.replace('y = "rtt_first_ms"', 'y = "rtt_first_ms"\nonly = { loss = 0.1 }')))
    assert {point["loss"] for point in points_of(plan.for_figure("1"), "quick")} == {0.1}
    assert {point["loss"] for point in points_of(plan, "quick")} == {0.0, 0.1}
    with pytest.raises(PlanError, match="study x has no figure '2': choose one of 1"):
        plan.for_figure("2")


def test_a_parameter_of_one_protocol_is_no_setting_of_another(write: Write) -> None:
    text = GOOD.replace('protocols = ["coord", "s_coord"]', 'protocols = ["coord", "cube_full_dist"]')
    text = text.replace("s_coord", "cube_full_dist").replace(
        "[sweep]\nmembers = [8, 16]", '[sweep]\nformat = ["stated", "bitmap"]\nmembers = [8, 16]'
    )
    text = text.replace('panel = "loss"', 'panel = "loss"\nonly = { format = "stated" }')
    runs = runs_of(load_plan(write(text)), "quick")
    ids: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        ids.setdefault(run.point["protocol"], {}).setdefault(run.point["format"], set()).add(run.id)
    assert ids["coord"]["stated"] == ids["coord"]["bitmap"], "one run, two points"
    assert not ids["cube_full_dist"]["stated"] & ids["cube_full_dist"]["bitmap"]


def test_two_figures_with_one_file_are_refused(write: Write) -> None:
    second = GOOD[GOOD.index("[[figure]]") : GOOD.index("[[claim]]")].replace('id = "1"', 'id = "1-"')
    with pytest.raises(PlanError, match="has files of that name"):
        load_plan(write(GOOD.replace("[[claim]]", second + "[[claim]]", 1)))


def test_a_claim_needs_two_seeds(write: Write) -> None:
    with pytest.raises(PlanError, match=r":24: repeats = 1 in every size: a claim needs at least 2 seeds"):
        load_plan(write(GOOD.replace("repeats = 2", "repeats = 1").replace("repeats = 3", "repeats = 1")))


def test_a_claim_without_a_test_is_refused(write: Write) -> None:
    text = GOOD[: GOOD.index("[[claim.test]]")] + "test = []\n"
    with pytest.raises(PlanError, match=r"plan\.toml:37: test = \[\]: a claim needs a test"):
        load_plan(write(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "plan.toml:1: the plan lacks 'id'"),
        (b'id = "x"\ntitle = "\xff"\n', "plan.toml:2: cannot be read, it is not UTF-8"),
        (b'id = "x', "plan.toml:1: "),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "plan.toml: cannot be read: "),
        (b"a = " + b"1" * 5000, "plan.toml: cannot be read: "),
    ],
)
def test_a_file_that_is_no_plan_is_one_line(write: Write, content: bytes, message: str) -> None:
    path = write("")
    path.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plan_of_another_editor_is_a_plan(write: Write) -> None:
    path = write("")
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_plan(path).id == "x"


def test_a_plan_is_found_by_its_name_or_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(GOOD)
    found = find_plans(tmp_path, ["x", str(path)])
    assert [plan.id for plan in found.values()] == ["x", "x"]
    with pytest.raises(PlanError, match="unknown study 'y': choose one of x"):
        find_plans(tmp_path, ["y"])


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.toml", "b.toml")]
    for path in paths:
        path.write_text(GOOD)
    with pytest.raises(PlanError, match=r"b\.toml: id = 'x' is also that of .*a\.toml: rename one"):
        choose_plans(tmp_path, [str(path) for path in paths])


def test_an_order_of_unknown_series_is_refused(write: Write) -> None:
    text = GOOD.replace(
        'x = "members"', 'x = "members"\nkind = "order"\nrows = "loss"\nfirst = "coord"\nsecond = "scoord"'
    ).replace('panel = "loss"\n', "")
    with pytest.raises(PlanError, match="second = 'scoord': choose from 'coord', 's_coord'"):
        load_plan(write(text))


def test_broken_toml_is_refused_with_its_line(write: Write) -> None:
    with pytest.raises(PlanError, match=r"plan\.toml:2: Invalid"):
        load_plan(write('id = "x"\npaper = = "own"\n'))


def test_a_protocol_that_is_not_there_yet_makes_the_plan_unavailable_not_wrong(write: Write) -> None:
    text = GOOD.replace("s_coord", "carrier_pigeon")
    assert load_plan(write(text)).missing == ("carrier_pigeon",)


def test_two_plans_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.toml").write_text(GOOD)
    with pytest.raises(PlanError, match="rename one"):
        load_plans(tmp_path)


def test_a_run_is_named_by_its_content_alone() -> None:
    assert run_id("simulate", {"members": 8, "seed": 0}) == run_id("simulate", {"seed": 0, "members": 8})
    names = {
        run_id("simulate", {"members": 8, "seed": 0}),
        run_id("simulate", {"members": 8, "seed": 1}),
        run_id("simulate", {"members": 8.0, "seed": 0}),
        run_id("trigger", {"members": 8, "seed": 0}),
    }
    assert len(names) == 4


def test_all_plans_of_the_project_can_be_run() -> None:
    plans = load_plans(PLANS)
    assert {"cube-scaling", "cube-faults"} <= {plan.id for plan in plans}
    for plan in plans:
        if not plan.missing:
            assert len(runs_of(plan, "quick")) < len(runs_of(plan, "full"))


@pytest.mark.parametrize("name", ["guo-fig5-12-dense", "guo-fig5-22-sparse"])
def test_the_plans_of_guo_s_figures_step_as_its_table_says(name: str) -> None:
    """guo Table 5.1 for Gossip, and its row for the local groups; automatic steps are variants of their own."""
    plan = load_plan(PLANS / f"{name}.toml")
    rules = {
        run.point["variant"]: run.settings.get("step_rule", "automatic")
        for run in runs_of(plan, "full")
        if "gossip" in run.settings["protocol"]
    }
    by_table = {variant for variant, rule in rules.items() if rule.endswith("table")}
    assert {variant.split()[0].rstrip(",") for variant in by_table} == {"Gossip", "S_Gossip"}
    assert {variant for variant in rules if "automatic" in variant or "random" in variant} == set(rules) - by_table
    sizes = {run.point["members"] for run in runs_of(plan, "full") if run.point["variant"] == "Gossip"}
    assert sizes == set(TABLE_5_1[50])


def _varied(name: str, *parameters: str) -> set[tuple[Any, ...]]:
    """The combinations of these parameters in the full size of a plan."""
    points = points_of(load_plan(PLANS / f"{name}.toml"), "full")
    return {tuple(point[parameter] for parameter in parameters) for point in points}


def test_the_causal_study_varies_what_its_paper_leaves_open() -> None:
    """causal §5.1: p, routing and the kind of multicast are open, and the stated rate is more than the links carry."""
    for p in (0.01, 0.02, 0.03, 0.04):
        open_at_p = {("hops", "tree"), ("hops", "copies"), ("delay", "tree"), ("delay", "copies")}
        assert open_at_p <= {
            found[1:] for found in _varied(CAUSAL, "graph", "routing", "multicast") if f"p={p}" in found
        }
    assert {(10.0,), (100.0,), (1000.0,), (10000.0,)} <= _varied(CAUSAL, "rate"), "10 messages per ms are stated"
    assert {figure.only["multicast"] for figure in load_plan(PLANS / f"{CAUSAL}.toml").figures} == {"tree"}


def test_the_cube_study_varies_what_its_paper_leaves_open() -> None:
    """cube §4.1: edge probabilities, GT-ITM's graphs and sizes of messages are named, routing and degree are not."""
    graphs = {f"random:degree={degree}" for degree in (2.5, 3, 5, 10)}
    graphs |= {f"random:p={p}" for p in (0.01, 0.02, 0.03, 0.04)}
    graphs |= {"waxman:degree=5", "locality:degree=5", "transit-stub"}
    wanted = {(graph, routing) for graph in graphs for routing in ("hops", "delay")}
    assert wanted <= _varied(CUBE, "network", "routing")
    assert {("stated", True), ("bitmap", True), ("stated", False)} <= _varied(CUBE, "format", "relayed")


def test_a_phase_diagram_of_a_claim_draws_what_the_claim_tests() -> None:
    for plan in load_plans(PLANS):
        diagrams = {figure.id: figure for figure in plan.figures if figure.kind != "lines"}
        for claim in plan.claims:
            for name in diagrams.keys() & set(claim.figures):
                assert {test.metric for test in claim.tests} <= set(diagrams[name].y), (plan.id, claim.id, name)


@pytest.mark.parametrize(
    ("selection", "point", "expected"),
    [
        ({"n": ">=100"}, {"n": 100}, True),
        ({"n": ">100"}, {"n": 100}, False),
        ({"n": [1, 2]}, {"n": 2}, True),
        ({"n": "!=3"}, {"n": 3}, False),
        ({"protocol": "coord"}, {"protocol": "coord", "n": 1}, True),
        ({"protocol": ">5"}, {"protocol": "coord"}, False),
        ({"other": 1}, {"n": 1}, False),
        ({"n": ">1_000"}, {"n": 1001}, True),
        ({"n": ">1.5e1"}, {"n": 16}, True),
        ({"n": ">-1"}, {"n": 0}, True),
        ({"n": ">1_"}, {"n": 2}, False),
        ({"n": ">=1e"}, {"n": 2}, False),
        ({"n": "<1.2.3"}, {"n": 0}, False),
    ],
)
def test_selections(selection: dict[str, object], point: dict[str, object], expected: bool) -> None:
    assert matches(selection, point) is expected


def test_lines_are_found_past_strings_lists_and_nested_tables() -> None:
    text = '''a = """
b = 1
"""
c = [
  "x", # ] not the end
  "]",
]
[d]
e.f = 1
[[g]]
h = 1
[[g.i]]
j = 1
[[g]]
[[g.i]]
j = 2
'''
    lines = key_lines(text)
    assert ("b",) not in lines
    assert line_of(lines, "c") == 4
    assert line_of(lines, "d", "e", "f") == 9
    assert line_of(lines, "g", 0, "i", 0, "j") == 13
    assert line_of(lines, "g", 1, "i", 0, "j") == 16
    assert line_of(lines, "g", 1, "nothing") == 14
