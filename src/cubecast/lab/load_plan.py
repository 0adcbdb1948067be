"""Read a plan from TOML and validate it; an error names the line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from cubecast.errors import CubecastError, LocalProtocolError, PlanError
from cubecast.lab.experiments import check_run, experiment_named
from cubecast.lab.own_code import copy_of, load_code_file
from cubecast.lab.own_metrics import own_metrics
from cubecast.lab.plan import (
    EXPERIMENTS,
    PAPERS,
    SIZES,
    SIZES_MIN,
    Calibration,
    Claim,
    Figure,
    Plan,
    PlanSize,
    Test,
    is_power_of_two,
)
from cubecast.lab.plan_mistakes import mistakes
from cubecast.lab.precision import SEEDS_MIN
from cubecast.lab.remote import AnyPath
from cubecast.lab.runs import RUNS_MAX, Run, points_of, run_count, runs_of
from cubecast.lab.space_mistakes import data_mistakes, given_twice, point_text, repeated_point
from cubecast.lab.toml_lines import key_lines, line_of
from cubecast.protocols.catalogue import list_protocols as registered

_TOP: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "paper", "title", "about", "experiment"), str),
    **dict.fromkeys(("fixed", "sweep", "quick", "full", "calibrate", "code"), dict),
    **dict.fromkeys(("protocols", "variant", "zip", "skip", "figure", "claim", "metrics"), list),
}
_SIZE: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("repeats", "repeats_max"), int),
    **dict.fromkeys(("fixed", "sweep"), dict),
    "precision": float,
    "zip": list,
}
_CALIBRATE: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("start", "rounds", "width", "repeats"), int),
    **dict.fromkeys(("sweep", "fixed", "between", "among"), dict),
}
_FIGURE: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "title", "x", "series", "panel", "kind", "rows", "statistic"), str),
    **dict.fromkeys(("first", "second"), str),
    **dict.fromkeys(("x_scale", "y_scale"), str),
    "y": (str, list),
    "only": dict,
}
_CLAIM: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "text", "source", "reading"), str),
    **dict.fromkeys(("figures", "readings", "test"), list),
}
_TEST: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("kind", "metric", "metric_bottom", "x", "shape"), str),
    **dict.fromkeys(("top", "bottom", "where", "at", "versus"), dict),
    "along": list,
    "between": list,
    **dict.fromkeys(("above", "below", "margin", "paper", "within"), (int, float)),
}
_CHOICES = {
    "paper": PAPERS,
    "experiment": EXPERIMENTS,
    "figure.kind": ("lines", "winner", "order"),
    "figure.statistic": ("mean", "spread", "variation"),
    "figure.x_scale": ("linear", "log"),
    "figure.y_scale": ("linear", "log"),
    "test.kind": ("value", "ratio", "difference", "growth", "spread", "variation", "proportion"),
    "test.shape": ("n", "n^2", "n log n", "n log^2 n", "log n"),
}
REPEATS_MAX = 10_000
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1


def load_plan(path: AnyPath) -> Plan:
    """Read and validate one plan; a `PlanError` names the file, the line, the value and the fix."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        data = tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PlanError(f"{path}:{line}: cannot be read, it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise PlanError(_with_place(path, text, str(error))) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of nested lists
        raise PlanError(f"{path}: cannot be read: {error}") from error
    return _plan(_Reader(path, key_lines(text)), data)


def _with_place(path: AnyPath, text: str, message: str) -> str:
    """An error of `tomllib`, with its line in front like all others."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    if found is None:
        return f"{path}: {message}"
    return f"{path}:{found[2] or len(text.splitlines()) or 1}: {found[1]}"


def plan_of_table(table: dict[str, Any]) -> Plan:
    """Validate a plan given as a table of keys instead of a file; paths of code files are relative to this folder."""
    return _plan(_Reader(Path("plan"), None), table)


def _plan(reader: _Reader, data: dict[str, Any]) -> Plan:
    reader.check_numbers(data)
    plan = reader.plan(data)
    if not plan.missing:
        reader.check_runs(plan)
    return plan


def load_plans(folder: AnyPath) -> list[Plan]:
    """All plans of a folder, in the order of their file names."""
    paths: list[AnyPath] = sorted(folder.glob("*.toml"), key=str)
    if not paths:
        raise PlanError(f"{folder}: no plans in this folder; give a folder with .toml files (--plans)")
    return require_own_names([load_plan(path) for path in paths])


def require_own_names(plans: list[Plan]) -> list[Plan]:
    """Require plans with different ids, which name their results."""
    for place, plan in enumerate(plans):
        for other in plans[:place]:
            if other.id == plan.id:
                raise PlanError(f"{plan.path}: id = {plan.id!r} is also that of {other.path}: rename one")
    return plans


class _Reader:
    """Turns validated data into a plan; knows the line of each key."""

    def __init__(self, path: AnyPath, lines: dict[tuple[str | int, ...], int] | None) -> None:
        """Read a file whose keys have these lines, or a table without a file."""
        self.path = path
        self.is_file = lines is not None
        self.lines = lines or {}
        self.series = "protocol"

    def fail(self, message: str, *path: str | int) -> PlanError:
        if not self.is_file:
            return PlanError(
                f"{self.path}: {'.'.join(map(str, path))}: {message}" if path else f"{self.path}: {message}"
            )
        return PlanError(f"{self.path}:{line_of(self.lines, *path)}: {message}")

    def check_numbers(self, value: Any, *path: str | int) -> None:
        """Require whole numbers of 64 bits, as TOML does: each can be a number of any other kind too."""
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                self.check_numbers(inner, *path, key)
        elif isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise self.fail("a whole number of more than 64 bits: write a smaller one", *path)

    def check_table(self, table: Any, *path: str | int) -> None:
        if not isinstance(table, dict):
            name = next(part for part in reversed(path) if isinstance(part, str))
            raise self.fail(f"{name} = {table!r}: write a table of keys", *path)

    def check_keys(self, table: Any, allowed: dict[str, Any], *path: str | int) -> None:
        self.check_table(table, *path)
        for key, value in table.items():
            if key not in allowed:
                raise self.fail(f"unknown key {key!r}: choose from {', '.join(allowed)}", *path, key)
            wanted = allowed[key]
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
                names = wanted if isinstance(wanted, tuple) else (wanted,)
                raise self.fail(f"{key} = {value!r}: write {' or '.join(_SPOKEN[one] for one in names)}", *path, key)
            where = f"{path[0]}.{key}" if len(path) == 2 else f"test.{key}" if len(path) == 4 else key
            choices = _CHOICES.get(where)
            if choices and value not in choices:
                raise self.fail(f"{key} = {value!r}: choose one of {', '.join(choices)}", *path, key)

    def need(self, table: dict[str, Any], names: tuple[str, ...], *path: str | int) -> None:
        for name in names:
            if name not in table:
                raise self.fail(f"{'.'.join(map(str, path)) or 'the plan'} lacks {name!r}: add it", *path)

    def plan(self, data: dict[str, Any]) -> Plan:
        self.check_keys(data, _TOP)
        self.series = "variant" if "variant" in data else "protocol"
        self.need(data, ("id", "paper", "title", *SIZES))
        code = self.code(data.get("code", {}))
        names = tuple(self.strings(data.get("protocols", []), "protocols"))
        for name in names:
            if names.count(name) > 1:
                raise self.fail(f"protocols lists {name!r} twice: keep one", "protocols")
        variants = self.variants(data)
        used = [*names, *(one["protocol"] for one in variants if "protocol" in one)]
        known = {protocol.name for protocol in registered()}
        for place, table in enumerate(data.get("skip", [])):
            self.check_table(table, "skip", place)
        plan = Plan(
            id=data["id"],
            paper=data["paper"],
            title=data["title"],
            about=data.get("about", "").strip(),
            experiment=data.get("experiment", "simulate"),
            protocols=names,
            variants=variants,
            skip=tuple(data.get("skip", ())),
            sizes={name: self.size(data, name) for name in SIZES},
            figures=tuple(self.figure(table, place) for place, table in enumerate(data.get("figure", []))),
            claims=tuple(self.claim(table, place) for place, table in enumerate(data.get("claim", []))),
            calibration=self.calibration(data["calibrate"]) if "calibrate" in data else None,
            path=self.path,
            code=code,
            extra_metrics=tuple(self.strings(data.get("metrics", []), "metrics")),
            missing=tuple(dict.fromkeys(name for name in used if name not in known)),
        )
        self.check_meaning(plan)
        return plan

    def code(self, table: dict[str, Any]) -> tuple[Path, ...]:
        """Load the user's code files, whose paths are relative to the folder of the plan."""
        self.check_keys(table, {"files": list}, "code")
        paths = []
        for name in self.strings(table.get("files", []), "code", "files"):
            try:
                paths.append(copy_of(self.path.parent / name))
                load_code_file(paths[-1])
            except LocalProtocolError as error:
                raise self.fail(str(error), "code", "files") from error
        return tuple(paths)

    def variants(self, data: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        tables = data.get("variant", [])
        if tables and data.get("protocols"):
            raise self.fail("protocols and variants: give only one of them", "variant", 0)
        labels = []
        for place, table in enumerate(tables):
            self.check_table(table, "variant", place)
            self.need(table, ("label",), "variant", place)
            for key in ("label", "protocol"):
                if not isinstance(table.get(key, ""), str) or table.get(key) == "":
                    raise self.fail(f"{key} = {table[key]!r}: write text in quotes", "variant", place, key)
            if table["label"] in labels:
                raise self.fail(f"label = {table['label']!r} is given twice: rename one", "variant", place, "label")
            labels.append(table["label"])
        return tuple(tables)

    def calibration(self, table: dict[str, Any]) -> Calibration:
        self.check_keys(table, _CALIBRATE, "calibrate")
        self.need(table, ("start", "repeats", "sweep"), "calibrate")
        for name, least in SIZES_MIN.items():
            if table.get(name, least) < least:
                raise self.fail(f"{name} = {table[name]}: choose at least {least}", "calibrate", name)
        if not is_power_of_two(table["start"]):
            raise self.fail(f"start = {table['start']}: choose a power of two", "calibrate", "start")
        between, among = table.get("between", {}), table.get("among", {})
        for name, ends in between.items():
            if not _is_range(ends):
                raise self.fail(
                    f"{name} = {ends!r}: write [low, high], two finite numbers, 0 < low < high",
                    "calibrate",
                    "between",
                    name,
                )
        for name, values in (among | table["sweep"]).items():
            self.check_values(name, values, "calibrate", "among" if name in among else "sweep", name)
        for name in (*between, *among):
            if name in table["sweep"] or name in table.get("fixed", {}) or (name in between and name in among):
                raise self.fail(f"{name} is given twice: keep one", "calibrate")
        if not between and not among:
            raise self.fail("calibrate has no open parameters: add between or among", "calibrate")
        return Calibration(
            start=table["start"],
            rounds=table.get("rounds", 2),
            width=table.get("width", 8),
            repeats=table["repeats"],
            sweep=table["sweep"],
            fixed=table.get("fixed", {}),
            between={name: (float(low), float(high)) for name, (low, high) in between.items()},
            among=among,
        )

    def strings(self, values: list[Any], *path: str | int) -> list[str]:
        for value in values:
            if not isinstance(value, str):
                raise self.fail(f"{path[-1]} holds {value!r}: write text in quotes", *path)
        return values

    def size(self, data: dict[str, Any], name: str) -> PlanSize:
        own = data[name]
        self.check_keys(own, _SIZE, name)
        self.need(own, ("repeats",), name)
        if not 1 <= own["repeats"] <= REPEATS_MAX:
            raise self.fail(f"repeats = {own['repeats']}: choose from 1 to {REPEATS_MAX}", name, "repeats")
        self.check_precision(own, name)
        sweep = data.get("sweep", {}) | own.get("sweep", {})
        zips = tuple(own.get("zip", data.get("zip", [])))
        owner: tuple[str, ...] = (name, "zip") if "zip" in own else ("zip",)
        for key, values in sweep.items():
            self.check_values(key, values, *((name,) if key in own.get("sweep", {}) else ()), "sweep", key)
        for place, table in enumerate(zips):
            self.check_table(table, *owner, place)
            for key, values in table.items():
                self.check_values(key, values, *owner, place, key)
            if len({len(values) for values in table.values()}) > 1:
                sizes = ", ".join(f"{key} has {len(values)}" for key, values in table.items())
                raise self.fail(f"zipped lists must have the same length: {sizes}", *owner, place)
        return PlanSize(
            repeats=own["repeats"],
            fixed=data.get("fixed", {}) | own.get("fixed", {}),
            sweep=sweep,
            zips=zips,
            precision=own.get("precision"),
            repeats_max=own.get("repeats_max", own["repeats"]),
        )

    def check_precision(self, own: dict[str, Any], name: str) -> None:
        """Validate the precision and the number of seeds after which replication stops."""
        precision, cap = own.get("precision"), own.get("repeats_max")
        if (precision is None) != (cap is None):
            raise self.fail("precision and repeats_max go together: add the other", name)
        if precision is None or cap is None:
            return
        if not 0 < precision < 1:
            raise self.fail(f"precision = {precision!r}: a share of the mean, 0.02 for 2 %", name, "precision")
        if not max(own["repeats"], SEEDS_MIN) <= cap <= REPEATS_MAX:
            least = max(own["repeats"], SEEDS_MIN)
            raise self.fail(f"repeats_max = {cap}: choose from {least} to {REPEATS_MAX}", name, "repeats_max")

    def check_values(self, key: str, values: Any, *path: str | int) -> None:
        if not isinstance(values, list) or not values:
            raise self.fail(f"{key} = {values!r}: write a list of at least one value", *path)
        for value in values:
            if not isinstance(value, str | int | float):
                raise self.fail(f"{key} holds {value!r}: write text, numbers, true or false", *path)
            if isinstance(value, float) and not math.isfinite(value):
                raise self.fail(f"{key} holds {value!r}: write numbers that are finite", *path)
        known = {(type(value) in (int, float), value) for value in values}  # true is no number, and 8 is 8.0
        if len(known) < len(values) and "sweep" in path:
            raise self.fail(f"{key} lists a value twice: keep one", *path)

    def figure(self, table: Any, place: int) -> Figure:
        self.check_keys(table, _FIGURE, "figure", place)
        self.need(table, ("id", "title", "x", "y"), "figure", place)
        metrics = [table["y"]] if isinstance(table["y"], str) else self.strings(table["y"], "figure", place, "y")
        kind = table.get("kind", "lines")
        if kind != "lines" and "rows" not in table:
            raise self.fail(
                f"figure of kind {kind!r} needs 'rows': give the parameter of the other axis", "figure", place
            )
        if kind == "order":
            self.need(table, ("first", "second"), "figure", place)
        series = {} if "series" in table else {"series": self.series}
        return Figure(**(table | series | {"y": tuple(metrics)}))

    def claim(self, table: Any, place: int) -> Claim:
        self.check_keys(table, _CLAIM, "claim", place)
        self.need(table, ("id", "text", "source", "test"), "claim", place)
        return Claim(
            id=table["id"],
            text=table["text"],
            source=table["source"],
            readings=tuple(self.strings(table.get("readings", []), "claim", place, "readings")),
            reading=table.get("reading", ""),
            figures=tuple(self.strings(table.get("figures", []), "claim", place, "figures")),
            tests=tuple(self.test(test, "claim", place, "test", at) for at, test in enumerate(table["test"])),
        )

    def test(self, table: Any, *path: str | int) -> Test:
        self.check_keys(table, _TEST, *path)
        self.need(table, ("kind", "metric"), *path)
        low, high = self.bounds(table, *path)
        along = tuple(self.strings(table.get("along", []), *path, "along"))
        known = {one.name for one in fields(Test)} - {"along"}
        values = {key: value for key, value in table.items() if key in known}
        return Test(**values, along=along, low=low, high=high)

    def bounds(self, table: dict[str, Any], *path: str | int) -> tuple[Any, Any]:
        """The bounds of a test, written as one of: above and below, between, or a share of the paper's value."""
        ways = [("above" in table or "below" in table), "between" in table, "within" in table]
        if sum(ways) != 1 or ("above" in table and "below" in table):
            raise self.fail("a test needs a bound: add above, below, between = [low, high], or within", *path)
        if "between" in table:
            if len(table["between"]) != 2:
                raise self.fail("write between = [low, high]", *path, "between")
            return table["between"][0], table["between"][1]
        if "within" in table:
            paper, share = table.get("paper"), table["within"]
            if paper is None or not 0 < share < math.inf:
                raise self.fail(
                    f"within = {share!r}: a share of the value that the paper gives, 0.1 for 10 %; add paper = …",
                    *path,
                    "within",
                )
            return min(ends := (paper * (1 - share), paper * (1 + share))), max(ends)
        return table.get("above"), table.get("below")

    def check_meaning(self, plan: Plan) -> None:
        """Validate that names, values and bounds match the runs of the plan."""
        for message, path in mistakes(plan):
            raise self.fail(message, *path)

    def check_runs(self, plan: Plan) -> None:
        """Construct every run of both sizes, so that invalid runs are found before anything runs."""
        own = own_metrics() if plan.experiment == "simulate" else ()
        metrics = (*experiment_named(plan.experiment).metrics, *own)
        for name, path in self.metrics(plan):
            if name not in metrics:
                raise self.fail(f"unknown metric {name!r}: choose from {', '.join(metrics)}", *path)
        for size in SIZES:
            self.check_size(plan, size)
        for message, path in data_mistakes(plan):
            raise self.fail(message, *path)

    def metrics(self, plan: Plan) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        yield from ((name, ("metrics",)) for name in plan.extra_metrics)
        for place, figure in enumerate(plan.figures):
            yield from ((name, ("figure", place, "y")) for name in figure.y)
        for place, claim in enumerate(plan.claims):
            for at, test in enumerate(claim.tests):
                yield test.metric, ("claim", place, "test", at, "metric")
                if test.metric_bottom is not None:
                    yield test.metric_bottom, ("claim", place, "test", at, "metric_bottom")

    def check_size(self, plan: Plan, size: str) -> None:
        count = run_count(plan, size)
        if count > RUNS_MAX:
            raise self.fail(f"{count} runs: a study has at most {RUNS_MAX}; sweep fewer values", size)
        for twice, message in given_twice(plan, size):
            raise self.fail(message, *self.home(size, twice))
        if (point := repeated_point(points_of(plan, size))) is not None:
            raise self.fail(f"the point {point_text(point)} occurs twice: drop one", *self.home_of_points(size))
        one_seed = replace(plan, sizes={size: replace(plan.sizes[size], repeats=1)})
        runs = runs_of(one_seed, size)
        if not runs:
            raise self.fail("no runs: the skips omit every combination", size)
        self.check_variants(plan, runs)
        seen: set[str] = set()
        for run in runs:
            try:
                check_run(plan.experiment, run.settings, seen)
            except CubecastError as error:
                name = error.setting if isinstance(error, LocalProtocolError) else None
                raise self.fail(str(error), *self.home(size, name)) from None

    def check_variants(self, plan: Plan, runs: list[Run]) -> None:
        """Reject what a variant sets for protocols that it does not run: a reader would believe that it counts."""
        for place, variant in enumerate(plan.variants):
            own = [run for run in runs if run.point.get("variant") == variant["label"]]
            for name in variant:
                if name != "label" and own and all(name not in run.common for run in own):
                    raise self.fail(f"{name} has no effect in this variant: leave it out", "variant", place, name)

    def home_of_points(self, size: str) -> tuple[str | int, ...]:
        """The place of the zipped values, which alone can repeat a point."""
        places: list[tuple[str | int, ...]] = [(size, "zip"), ("zip",)]
        return next((path for path in places if path in self.lines), (size,))

    def home(self, size: str, name: str | None) -> tuple[str | int, ...]:
        """The place in the plan where a parameter gets its value."""
        if name is None:
            return (size,)
        places: list[tuple[str | int, ...]] = [(size, "sweep", name), (size, "fixed", name)]
        places += [("sweep", name), ("fixed", name)]
        places += [path for path in self.lines if path[-1] == name and path[0] in ("zip", "variant", size)]
        places += [("protocols",)] if name == "protocol" else []
        return next((path for path in places if path in self.lines), (size,))


def _is_range(ends: Any) -> bool:
    """Two finite numbers above zero, the smaller first."""
    numbers = isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
    return numbers and 0 < ends[0] < ends[1] < math.inf


_SPOKEN = {str: "text in quotes", int: "a whole number", float: "a number", dict: "a table", list: "a list"}
