"""Create the archive of Spark's classes: a small study in a separate process, whose Java writes the loaded classes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from cubecast.errors import LocalProtocolError
from cubecast.lab.plan import SIZES, Claim, Plan, PlanSize, Test
from cubecast.lab.runs import runs_of
from cubecast.lab.spark.analysis import analyse
from cubecast.lab.spark.archive import archive_path, older_archives, write_archive
from cubecast.lab.spark.session import session
from cubecast.lab.spark.studies import execute
from cubecast.lab.store import Store


def make_archive() -> Path | None:
    """Make the archive if there is none; return its path if it was made."""
    path = archive_path()
    if path is None or path.is_file():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        program = f"from {__name__} import load_classes; load_classes({folder!r})"
        # Java holds the other end of the pipes, so this waits for it too.
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        made = _archive_in(folder)
        if not made.is_file():
            said = (ended.stderr.strip() or "Java wrote none").splitlines()[-1]
            raise LocalProtocolError(f"cannot create an archive of Spark's classes in {path.parent}: {said}")
        made.replace(path)
    for outdated in older_archives(path):
        outdated.unlink(missing_ok=True)
    return path


def _archive_in(folder: str) -> Path:
    return Path(folder) / "classes.jsa"


def load_classes(folder: str) -> None:
    """Run a small study on Spark; Java writes the archive into the folder when this process ends."""
    # A formula: nothing is compiled, so this may run beside the compiler.
    size = PlanSize(repeats=2, fixed={"payload_bytes": 0}, sweep={"members": [16]}, zips=())
    plan = Plan(
        id="warm",
        paper="own",
        title="",
        about="",
        experiment="causal_cost",
        protocols=("overlay",),
        skip=(),
        sizes=dict.fromkeys(SIZES, size),
        figures=(),
        claims=(Claim(id="c", text="", source="", figures=(), tests=(Test(kind="value", metric="copies", low=0.0),)),),
        path=Path("warm.toml"),
    )
    runs = runs_of(plan, SIZES[0])
    store = Store(Path(folder))
    store.make()
    with session("local[2]", archive=write_archive(_archive_in(folder))) as spark:
        execute(spark, store, runs, lambda _done, _total: None)
        analyse(spark, store, [plan], SIZES[0], runs)
