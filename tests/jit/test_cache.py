"""Compiled code is cached between processes, and never outlives the source it was compiled from."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cubecast.jit.backend import COMPILED
from cubecast.jit.sources import sources_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cubecast"
DECORATORS = {"entry_point", "linked", "inlined", "allocating", "chosen_by_state"}

# Compiling takes a minute on an idle core; a busy machine may take many times as long. Only a hang should end a test.
COMPILE_SECONDS_MAX = 900

SIMULATE_EVERYTHING = """
    import json, sys, tempfile, time
    began = time.perf_counter()
    import cubecast
    from cubecast.jit.decorators import watch_compiler
    first = None
    with watch_compiler() as names:
        for protocol in cubecast.list_protocols():
            if protocol.family in ("transport", "failure"):
                role = {"transport": "transport", "failure": "detector"}[protocol.family]
                cubecast.simulate("coord", members=9, messages=2, loss=0.05, **{role: protocol.name})
                continue
            cases = (
                {},
                {"multicast": "tree", "network": "wan-tree"},
                {"messages": 2, "loss": 0.05, "crashes": (cubecast.parse_fault("3@2ms", what="crash"),)},
                {"network": "flat:delay=exp:1ms", "duplicate": 0.1},
                {"partitions": (cubecast.parse_fault("0-3@1ms-40ms", what="partition", needs_end=True),)},
            )
            for settings in ({"messages": 2}, {"messages": 1, "network": "chain"}) if protocol.carries_data else cases:
                cubecast.simulate(protocol.name, members=9, seed=1, **settings)
                first = first or time.perf_counter() - began
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            cubecast.simulate("coord", members=9, trace=file.name)
            assert cubecast.check_all(cubecast.read_trace(file.name)).ok
    json.dump({"compiled": names, "first_run_after_seconds": first}, sys.stdout)
"""

CHECK_A_LIVE_TRACE = """
    import tempfile
    import cubecast
    from cubecast.jit.decorators import watch_compiler
    from cubecast.live.trace_writer import MemberTraceWriter, merged_trace
    from cubecast.trace.schema import Event
    with tempfile.NamedTemporaryFile(suffix=".trace") as file, watch_compiler() as names:
        writer = MemberTraceWriter(file.name)
        a, b, c = (writer.member_id(name, 0) for name in "abc")
        for me in (a, b):
            writer.install(1, me, 1, 7, [a, b])
        writer.row(2, Event.SENT, a, sender=a, sequence=1, round=1, message=0)
        for me in (a, b):
            writer.deliveries(3, me, [a], [1])
        writer.row(4, Event.RESTART, b)
        writer.deliveries(4, b, [a], [1])
        writer.row(4, Event.RESTARTED, b)
        writer.stable(5, a, [a], [1])
        writer.row(6, Event.RETURNED, a, sender=a, sequence=2)
        writer.row(6, Event.EXCLUDED, a)
        writer.restore(7, c, 2, 8, [a], [1])
        for me in (b, c):
            writer.install(7, me, 2, 8, [b, c])
        writer.close()
        report = cubecast.check_all(merged_trace([file.name]))
    assert report.ok, report.lines()
    print(names)
"""


def run_python(source: str, **environment: str) -> str:
    """Run a program in a new process and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_a_second_process_compiles_nothing() -> None:
    run_python("from cubecast.sim.warm import warm; warm()")
    result = json.loads(run_python(SIMULATE_EVERYTHING))
    print(f"first simulation ended {result['first_run_after_seconds']:.2f} s after the import began")
    assert result["compiled"] == []
    assert run_python(CHECK_A_LIVE_TRACE).strip() == "[]"


SIMULATE_COORD = """
    import cubecast
    from cubecast.jit.decorators import watch_compiler
    with watch_compiler() as names:
        cubecast.simulate("coord", members=9, network="chain", seed=1)
    print(cubecast.__file__, names)
"""


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_a_second_checkout_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    run_python(SIMULATE_COORD)
    copy = tmp_path / "src" / "cubecast"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.rglob("*.py"):
        os.utime(file, (1, 1))  # a checkout is written at another time
    printed = run_python(SIMULATE_COORD, PYTHONPATH=str(tmp_path / "src"))
    assert printed.strip() == f"{copy / '__init__.py'} []"


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_without_a_place_to_cache_every_process_compiles(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made below this")
    source = """
        from cubecast.protocol.overlays import tree_parent
        print(tree_parent(5, 2))
    """
    environment = {"CUBECAST_CACHE_DIR": str(tmp_path / "file"), "CUBECAST_JIT": "linked"}
    assert run_python(source, **environment).strip() == "2"


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_code_runs_when_the_disk_is_too_full_to_cache_it(tmp_path: Path) -> None:
    source = """
        import errno
        from numba.core.caching import IndexDataCacheFile
        def save(*_):
            print("full")
            raise OSError(errno.ENOSPC, "No space left on device")
        IndexDataCacheFile.save = save
        from cubecast.protocol.overlays import tree_parent
        print(tree_parent(5, 2))
    """
    environment = {"CUBECAST_CACHE_DIR": str(tmp_path), "CUBECAST_JIT": "linked"}
    assert run_python(source, **environment).split() == ["full", "2"]


BE_MEMBERS = """
    from cubecast.jit.decorators import watch_compiler
    from cubecast.live.warm import warm
    from cubecast.protocols.catalogue import list_protocols
    with watch_compiler() as names:
        warm([one.name for one in list_protocols() if one.live is not None])
    print(names)
"""


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_a_member_compiles_nothing_whatever_its_data_protocol() -> None:
    """The simulator's cores are the live ones; besides them a member needs what `cubecast.live.warm` calls."""
    run_python("from cubecast.sim.warm import warm; from cubecast.live import warm as live; warm(); live.warm()")
    assert run_python(BE_MEMBERS).strip() == "[]"


FIRST_MESSAGE = """
    import asyncio
    import cubecast
    from cubecast.member import calls
    from cubecast.live.local import free_addresses
    from cubecast.wire import data

    def loaded():
        return [len(one.overloads) for one in (data._walk, calls.receive_batch, calls.publish_batch)]

    async def main():
        addresses = free_addresses(2)
        groups = [cubecast.join("g", listen=one, peers=addresses, plaintext=True) for one in addresses]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        print(loaded())
        await groups[0].multicast(b"first")
        await groups[1].receive(10)
        print(loaded())
        await asyncio.gather(*(group.leave(drain=False) for group in groups))

    asyncio.run(main())
"""


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is loaded with CUBECAST_JIT=off")
def test_the_first_message_waits_for_no_code_to_be_loaded() -> None:
    assert run_python(FIRST_MESSAGE).splitlines() == ["[1, 1, 1]", "[1, 1, 1]"]


COMPILE_PIECES = """
    from cubecast.jit.compile_apart import compile_here
    from cubecast.sim.warm import CHECKERS, pieces
    names = [*(piece.name for piece in pieces()), CHECKERS]
    print([function for name in names for function in compile_here("cubecast.sim.warm", name)])
"""


@pytest.mark.timeout(2 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_warming_twice_compiles_nothing_the_second_time() -> None:
    run_python("from cubecast.sim.warm import warm; warm()")
    assert run_python("from cubecast.sim.warm import warm; print(warm())").strip() == "[]"
    assert run_python(COMPILE_PIECES).strip() == "[]"


PARENT_AND_CACHE = """
    from pathlib import Path
    from cubecast.jit.sources import code_directory, sources_of
    from cubecast.protocol.overlays import tree_parent
    from cubecast.protocols.stability import coord
    print(tree_parent(5, 2), code_directory(sources_of(Path(coord.__file__))).name)
"""

BYTES_OF_COORD = """
    import cubecast
    print(cubecast.simulate("coord", members=6, network="chain", seed=1).bytes)
"""


@pytest.mark.slow
@pytest.mark.timeout(3 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_an_edited_source_of_the_package_is_never_run_from_the_cache(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "src" / "cubecast", ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "src" / "cubecast"
    environment = {"PYTHONPATH": str(tmp_path / "src"), "CUBECAST_CACHE_DIR": str(tmp_path / "cache")}
    where = run_python("import cubecast; print(cubecast.__file__)", **environment)
    assert Path(where.strip()) == copy / "__init__.py", "the copy is not what runs"

    before = int(run_python(BYTES_OF_COORD, **environment))
    # A protocol: every array is counted with 3 bytes a number more. START has no array, the 5 ACK and 5 INFO have 6.
    copied = "copy_numbers(mail.numbers[slot, :width], numbers)"
    longer = f"mail.heads[slot].size_bytes += 3 * width\n    {copied}"
    edit(copy / "protocols" / "stability" / "coord.py", copied, longer)
    protocol_edited = int(run_python(BYTES_OF_COORD, **environment))
    assert protocol_edited == before + 10 * 6 * 3
    # The base: what any protocol may call. One small function of it is compiled in a moment.
    assert run_python(PARENT_AND_CACHE, **environment).split()[0] == "2"
    cache = run_python(PARENT_AND_CACHE, **environment).split()[1]
    edit(copy / "protocol" / "overlays.py", "return (rank - 1) // degree", "return (rank + 1) // degree")
    assert run_python(PARENT_AND_CACHE, **environment).split()[0] == "3"
    assert run_python(PARENT_AND_CACHE, **environment).split()[1] != cache, "Coord would still be found in the cache"


BYTES_OF_DOUBLING = """
    import cubecast, doubling
    cubecast.add_protocol(doubling.PROTOCOL)
    print(cubecast.simulate("doubling", members=8, network="chain", seed=1).bytes)
"""


@pytest.mark.slow
@pytest.mark.timeout(3 * COMPILE_SECONDS_MAX)
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_an_edited_protocol_outside_the_package_is_never_run_from_the_cache(tmp_path: Path) -> None:
    mine = tmp_path / "doubling.py"
    beside = tmp_path / "sizes.py"
    beside.write_text("EXTRA = 0\n")
    text = (ROOT / "examples" / "doubling.py").read_text("utf-8")
    text = text.replace("import cubecast\n", "import cubecast\nfrom sizes import EXTRA\n", 1)
    drafted = "state.round[row], state.sizes[kind])"
    assert text.count(drafted) == 1
    mine.write_text(text.replace(drafted, "state.round[row], state.sizes[kind] + EXTRA)"), "utf-8")
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])}

    before = int(run_python(BYTES_OF_DOUBLING, **environment))
    edit(beside, "0", "5")
    more = int(run_python(BYTES_OF_DOUBLING, **environment)) - before
    assert more >= 5 * 8 * 3
    edit(mine, "+ EXTRA)", "+ 2 * EXTRA)")
    assert int(run_python(BYTES_OF_DOUBLING, **environment)) - before == 2 * more


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a source that must be there, keeping the time stamp: only the content may count."""
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    stamp = path.stat()
    path.write_text(text.replace(old, new), "utf-8")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


@pytest.mark.parametrize(
    "line",
    [
        "import beside",
        "from beside import SIZE",
        "from beside import (\n    SIZE,\n)",
    ],
)
def test_a_file_that_a_protocol_imports_counts_as_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 1\n")
    (tmp_path / "mine.py").write_text(f"import os\nimport numpy\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    __import__("beside")
    sources = sources_of(tmp_path / "mine.py")
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    assert sources == {tmp_path / "mine.py", tmp_path / "beside.py"}


def test_a_relative_import_counts_too(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("sub/mine.py", "sub/near.py", "far.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "sub" / "mine.py").write_text("from . import near\nfrom ..far import SIZE\n")
    sources = sources_of(tmp_path / "sub" / "mine.py")
    assert sources == {tmp_path / name for name in ("sub/mine.py", "sub/near.py", "far.py")}


def modules_imported(path: Path) -> set[Path]:
    """The files of the package that a file imports at module level (`if COMPILED:` included), by its syntax tree."""
    names: set[str] = set()
    nodes = ast.parse(path.read_bytes()).body
    compiled = (node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "COMPILED")
    for node in [*nodes, *(inner for one in compiled for inner in one.body)]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    places = [PACKAGE.parent.joinpath(*name.split(".")) for name in names]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return {file for file in files if file.is_file()}


def decorated(path: Path) -> list[str]:
    """Functions of a file that a decorator compiles."""
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef):
            called = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
            found += [node.name for one in called if isinstance(one, ast.Name) and one.id in DECORATORS]
    return found


def test_the_sources_of_every_compiled_file_are_those_of_its_syntax_tree() -> None:
    jitted = [path for path in PACKAGE.rglob("*.py") if decorated(path)]
    assert len(jitted) > 50, "the search for compiled files finds nothing"
    for path in jitted:
        expected, unread = set[Path](), {path}
        while unread:
            expected |= unread
            unread = {file for source in unread for file in modules_imported(source)} - expected
        assert sources_of(path) == expected


def test_the_kernel_is_compiled_from_what_it_calls_and_nothing_else() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in sources_of(PACKAGE / "sim" / "kernel.py")}
    assert {"sim/links.py", "sim/world.py", "protocol/mail.py", "protocol/rank_sets.py", "jit/linking.py"} <= names
    assert not [name for name in names if name.startswith(("lab/", "live/", "protocols/", "cli/"))]
