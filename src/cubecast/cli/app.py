"""The application: its commands, and how every error becomes one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from cubecast import __version__
from cubecast.cli import (
    advise,
    bench,
    check,
    compare,
    fuzz,
    keys,
    listing,
    live,
    model,
    node,
    simulate,
    study,
    tune,
    warm,
)
from cubecast.cli.options import TAKES_PARAMETERS
from cubecast.errors import CubecastError, SimulationError
from cubecast.extras import explain

app = typer.Typer(
    name="cubecast",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("protocols")(listing.protocols)
app.command("networks")(listing.networks)
app.command("simulate", context_settings=TAKES_PARAMETERS)(simulate.simulate)
app.command("compare", context_settings=TAKES_PARAMETERS)(compare.compare)
app.command("advise")(advise.advise)
app.command("check")(check.check)
app.command("fuzz")(fuzz.fuzz)
app.command("warm")(warm.warm)
app.command("bench")(bench.bench)
app.add_typer(study.app, name="study")
app.command("tune", context_settings=TAKES_PARAMETERS)(tune.tune)
app.add_typer(model.app, name="model")
app.add_typer(keys.app, name="keys")
app.command("node")(node.node)
app.command("status")(live.status)
app.command("demo")(live.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cubecast {__version__}")
        raise typer.Exit


@app.callback()
def cubecast(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reliable, causally ordered multicast with stability detection: know when every member has a message.

    [bold]Live groups of processes[/bold]

      cubecast demo
      cubecast node chat --listen 127.0.0.1:7001 --found --plaintext
      cubecast node chat --listen 127.0.0.1:7002 --contact 127.0.0.1:7001 --plaintext

    [bold]The laboratory[/bold]: compare the protocols in a packet-level simulator before you deploy one

      cubecast protocols
      cubecast compare --members 100 --network random:degree=5 --plot compare.html
      cubecast simulate cube_full_dist --members 200 --seed 1 --rounds 3
      cubecast advise --members 100 --loss 0.02 --rate 50/s --budget 30kb/s

    Most commands accept --json. One seed gives one result, bit for bit.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["protocols"]:
        # Listing compiles nothing, so the compiler need not be loaded for it.
        os.environ.setdefault("CUBECAST_JIT", "off")
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(run(words))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; every user error is one line on stderr."""
    try:
        code = app(args=list(arguments), prog_name="cubecast", standalone_mode=False)
        sys.stdout.flush()
    except SimulationError as error:
        return _say(error, 1)
    except CubecastError as error:
        return _say(error, 2)
    except typer.TyperException as error:
        return _say(f"{error.format_message()} (see {_command_of(error)} --help)", error.exit_code)
    except BrokenPipeError:
        _discard_output()
        return 1
    except MemoryError:
        return _say("not enough memory: use fewer members, messages or packets (--packets-max)", 2)
    except ModuleNotFoundError as error:
        missing = explain(error, "this command")
        if missing is None:
            raise
        return _say(missing, 2)
    except OSError as error:
        return _say(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    if code == 130:
        return _say("stopped; no partially written file remains", code)
    return code if isinstance(code, int) else 0


def _say(what: object, code: int) -> int:
    """Print one line on stderr, and return the exit code."""
    print("cubecast:", " ".join(str(what).split()), file=sys.stderr)
    return code


def _command_of(error: typer.TyperException) -> str:
    """The command whose words are wrong: `cubecast node`."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "cubecast"


def _discard_output() -> None:
    """The reader of the output has closed it: let Python write the rest to nowhere when it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(number: int, _: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that no partially written file remains."""
    raise SystemExit(128 + number)
