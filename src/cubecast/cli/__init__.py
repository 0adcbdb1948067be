"""The command line: `cubecast simulate`, `compare`, `check` and the rest.

One file per group of commands. A command imports what it needs when it runs, so that `--help` is fast; it
contains only options, tables and exit codes.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a run that cannot end, or a promise that a trace breaks |
| 2 | bad input: an option, a name, a file |
| 130 | stopped by Ctrl-C |
"""

from cubecast.cli.app import app, main

__all__ = ["app", "main"]
