"""Whether functions are compiled, and how: the self-test, its verdict, and where that is cached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.jit import backend, self_test
from cubecast.jit.backend import COMPILED, LINKED, OFF, PLAIN

# Compiling takes a minute on an idle core; a busy machine may take many times as long. Only a hang should end a test.
COMPILE_SECONDS_MAX = 900

ROOT = Path(__file__).parents[2]

needs_compiler = pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of its own, no environment setting, and a list of the modes the self-test was run with."""
    monkeypatch.setenv("CUBECAST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUBECAST_JIT", raising=False)
    return []


@pytest.fixture
def passing(tried: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the self-test pass in these modes only."""

    def let_pass(*wishes: str) -> None:
        def passes(wish: str) -> bool:
            tried.append(wish)
            return wish in wishes

        monkeypatch.setattr(backend, "_passes", passes)

    return let_pass


def test_the_verdict_is_kept_and_the_test_is_not_run_again(tried: list[str], passing: Callable[..., None]) -> None:
    passing(LINKED, PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [backend._choose() for _ in range(3)] == [LINKED] * 3
    assert tried == [LINKED]


@pytest.mark.parametrize(
    ("passes", "verdict", "said"),
    [((PLAIN,), PLAIN, "functions are compiled by Numba's own pipeline"), ((), OFF, "functions are not compiled")],
)
def test_a_failing_self_test_falls_back_with_one_warning(
    tried: list[str], passing: Callable[..., None], passes: tuple[str, ...], verdict: str, said: str
) -> None:
    passing(*passes)
    with pytest.warns(RuntimeWarning, match=said) as warned:
        assert backend._choose() == verdict
    assert "install a tested version of Numba" in str(warned[0].message)
    assert tried == [LINKED, PLAIN]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backend._choose() == verdict, "the verdict was kept"
    assert tried == [LINKED, PLAIN]


def test_a_verdict_that_cannot_be_read_is_found_again(
    tried: list[str], passing: Callable[..., None], tmp_path: Path
) -> None:
    passing(LINKED)
    assert backend._choose() == LINKED
    (kept,) = (tmp_path / "cache").rglob("self-test-*")
    kept.write_text("perhaps")
    assert backend._choose() == LINKED
    assert kept.read_text() == LINKED
    assert tried == [LINKED, LINKED]


def test_another_version_of_the_compiler_is_tested_anew(
    tried: list[str], passing: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    passing(LINKED)
    backend._choose()
    monkeypatch.setattr(backend, "_versions", lambda: "cpython-numba-99")
    assert backend._choose() == LINKED
    assert tried == [LINKED, LINKED]


def test_a_cache_that_cannot_be_written_costs_only_time(
    tried: list[str], passing: Callable[..., None], tmp_path: Path
) -> None:
    passing(LINKED)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert [backend._choose(), backend._choose()] == [LINKED, LINKED]
    assert tried == [LINKED, LINKED]


@pytest.mark.parametrize(
    ("wish", "chosen"), [("off", OFF), ("0", OFF), ("NO", OFF), ("plain", PLAIN), ("Linked", LINKED)]
)
def test_a_wish_of_the_user_needs_no_test(
    tried: list[str],
    passing: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    wish: str,
    chosen: str,
) -> None:
    passing()
    monkeypatch.setenv("CUBECAST_JIT", wish)
    assert backend._choose() == chosen
    assert tried == []


def test_without_numba_nothing_is_compiled(
    tried: list[str], passing: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    passing()
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    assert backend._choose() == OFF
    assert tried == []


def test_the_page_states_the_tested_range_of_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (tested,) = [one for one in project["optional-dependencies"]["fast"] if one.startswith("numba")]
    assert f"`{tested}`" in (ROOT / "docs" / "jit.md").read_text("utf-8")


# The self-test itself.


@needs_compiler
@pytest.mark.timeout(COMPILE_SECONDS_MAX)
@pytest.mark.parametrize("wish", [LINKED, PLAIN])
def test_the_self_test_passes_with_the_tested_versions(wish: str) -> None:
    assert backend._passes(wish)


def test_a_process_that_ends_in_an_error_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert not backend._passes(LINKED)


def test_a_process_that_never_ends_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_in_vain(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", wait_in_vain)
    assert not backend._passes(LINKED)


def test_the_self_test_notices_a_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    self_test.main()
    monkeypatch.setattr(self_test, "expected", lambda row: -1)
    with pytest.raises(AssertionError):
        self_test.main()


SIMULATE = """
import json, cubecast
from cubecast.jit.backend import BACKEND
from cubecast.jit.decorators import watch_compiler
with watch_compiler() as names:
    result = cubecast.simulate("coord", members=6, network="chain", seed=1, loss=0.1, messages=3, rounds=2)
values = result.to_dict()
for clock in ("wall_seconds", "packet_hops_per_second"):
    del values[clock]
print(json.dumps([BACKEND, len(names), values]))
"""


def simulated(**environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", SIMULATE],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(3 * COMPILE_SECONDS_MAX)
def test_the_plain_pipeline_compiles_and_gives_the_same_results(tmp_path: Path) -> None:
    plain, compiled, values = simulated(CUBECAST_JIT=PLAIN, CUBECAST_CACHE_DIR=str(tmp_path))
    assert plain == PLAIN
    assert compiled > 0, "the plain pipeline compiled nothing"
    linked, _, expected = simulated(CUBECAST_JIT=LINKED)
    assert linked == LINKED
    assert values == expected
    assert simulated(CUBECAST_JIT=OFF)[2] == expected
