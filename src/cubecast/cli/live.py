"""`cubecast status` and `cubecast demo`: show live groups."""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import RATE_MAX, require_between
from cubecast.cli.output import JsonOption, new_table, print_json, print_table
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from rich.table import Table

    from cubecast.live.demo import Demo, DemoVerdict

SECONDS_MAX = 1e6


def status(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Status address of the member.")],
    json: JsonOption = False,
) -> None:
    """Show the status of a member and its group: members, links, frontier, and which members delay stability.

    The member was started with --status HOST:PORT, which also serves a page.

    Example:

      cubecast status 127.0.0.1:9001
    """
    from cubecast.live.demo import fetch_status

    found = fetch_status(address)
    if json:
        print_json(found)
    else:
        print_table(_status_table(found))


def _status_table(found: dict[str, Any]) -> Table:
    title = f"{found['group']}: rank {found['rank']} at {found['address']}, view {found['view']}"
    title += ", BLOCKED: too few members reachable" if found["blocked"] else ""
    table = new_table("address", "link", "rank", "received", "stable", "lag", "behind", left=2, title=title)
    for one in found["members"]:
        link = "this member" if one["rank"] == found["rank"] else _link_word(one["link"])
        numbers = (one["rank"], one["received"], one["stable"], one["received"] - one["stable"])
        table.add_row(one["address"], link, *map(str, numbers), str(one["behind"] or ""))
    for one in found["gone"]:
        table.add_row(one["address"], f"{one['how']} in view {one['view']}", *[""] * 5)
    return table


def _link_word(link: dict[str, Any] | None) -> str:
    return "-" if link is None else "up" if link["up"] else "down"


def demo(
    members: Annotated[int, typer.Option(metavar="INTEGER", help="Processes to start.")] = 8,
    kills: Annotated[
        int | None,
        typer.Option(
            metavar="INTEGER", help="Members to kill with kill -9 after a third of the time.", show_default="up to 2"
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Duration.")] = 15.0,
    rate: Annotated[float, typer.Option(metavar="PER_SECOND", help="Messages per second of each member.")] = 50.0,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one merged trace for `cubecast check`.")
    ] = None,
    stay: Annotated[
        bool | None,
        typer.Option(
            "--stay/--no-stay",
            help="Keep the survivors and their status page running after the verdict, until Ctrl-C.",
            show_default="in a terminal",
        ),
    ] = None,
) -> None:
    """Run a live group on this machine: processes multicast, some are killed, and the survivors are checked.

    Example:

      cubecast demo --members 5 --seconds 30 --trace demo.parquet
    """
    from cubecast.live.demo import Demo, kills_max, run_demo
    from cubecast.live.warm import warm

    require_between("--rate", rate, 0.1, RATE_MAX)
    require_between("--seconds", seconds, 1, SECONDS_MAX)
    most = kills_max(members)
    chosen = min(2, most) if kills is None else kills
    if not 0 <= chosen <= most:
        raise LocalProtocolError(f"--kills {chosen}: at most {most} of {members} members, so that a majority remains")
    if trace is not None and not trace.parent.is_dir():
        raise LocalProtocolError(f"--trace {trace}: there is no folder {trace.parent}")
    warm()
    with tempfile.TemporaryDirectory() as folder:
        shown = Demo(members=members, rate_per_s=rate, folder=Path(folder))
        screen = _Screen()
        with screen:
            verdict = run_demo(
                shown,
                seconds=seconds,
                kills=chosen,
                show=screen.show,
                conclude=screen.stay if (sys.stdout.isatty() if stay is None else stay) else screen.report,
            )
        if trace is not None:
            print(f"{shown.write_trace(trace):,} events in {trace}; check them with: cubecast check {trace}")
    if not verdict.is_good:
        raise typer.Exit(1)


class _Screen:
    """A table that updates itself in a terminal, a line at intervals elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def report(self, demo: Demo, verdict: DemoVerdict) -> None:
        """Print the verdict, and where the survivors show it."""
        self.__exit__()
        print(verdict.line)
        print(f"status page of the whole group: http://{demo.page}/", flush=True)

    def stay(self, demo: Demo, verdict: DemoVerdict) -> None:
        """Report, and let the survivors run until Ctrl-C or their end."""
        self.report(demo, verdict)
        with suppress(KeyboardInterrupt):
            print("the survivors keep running: open the page; Ctrl-C stops them", flush=True)
            demo.wait_ended()
            print("all survivors have ended", flush=True)

    def show(self, demo: Demo, states: dict[int, Any], headline: str) -> None:
        """Show the status of every member."""
        if self._live is not None:
            self._live.update(_demo_table(demo, states, headline), refresh=True)
        elif states:
            views = sorted({(one["view"], len(one["members"])) for one in states.values()})
            lags = [one["stats"]["unstable_messages"] for one in states.values()]
            delivered = min(one["stats"]["delivered"] for one in states.values())
            shown = ", ".join(f"view {view}: {count} members" for view, count in views)
            print(
                f"{_title(demo, headline)}; {shown}; {delivered:,} messages delivered, at most {max(lags)} not stable",
                flush=True,
            )


def _title(demo: Demo, headline: str) -> str:
    return f"{headline}; status page http://{demo.page}/"


def _demo_table(demo: Demo, states: dict[int, Any], headline: str) -> Table:
    columns = ("member", "state", "view", "members", "delivered", "unstable", "gone")
    table = new_table(*columns, left=2, title=_title(demo, headline))
    for place in range(demo.members):
        state = states.get(place)
        if state is None:
            table.add_row(str(place), "killed" if place in demo.killed else "no answer", *[""] * 5)
            continue
        gone = " ".join(f"{demo.addresses.index(one['address'])} {one['how']}" for one in state["gone"])
        stats = state["stats"]
        numbers = (state["view"], len(state["members"]), stats["delivered"], stats["unstable_messages"])
        table.add_row(str(place), "blocked" if state["blocked"] else "up", *(f"{one:,}" for one in numbers), gone)
    return table
