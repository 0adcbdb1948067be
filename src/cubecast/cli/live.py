"""`cubecast keys`, `node`, `status` and `demo`: groups of real processes."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table
from cubecast.live.settings import CAUSAL

if TYPE_CHECKING:
    from rich.table import Table

    from cubecast.live.credentials import Credentials
    from cubecast.live.demo import Demo

keys = typer.Typer(no_args_is_help=True, help="Make the certificates by which members know each other.")

Folder = Annotated[Path, typer.Option("--folder", help="Where the group's keys are.")]


def add_to(app: typer.Typer) -> None:
    """Put these commands into the command line."""
    app.add_typer(keys, name="keys")
    app.command("node")(node)
    app.command("status")(status)
    app.command("demo")(demo)


@keys.command("init")
def keys_init(
    folder: Folder = Path("keys"),
    name: Annotated[str, typer.Option(help="The group's name in its certificate.")] = "cubecast group",
) -> None:
    """Make the group's certificate (group.pem) and its key (group.key), which signs all members'."""
    from cubecast.live.keys import KEY, init

    certificate = init(folder, name=name)
    print(f"{certificate} goes to every member; keep {folder / KEY} to yourself")


@keys.command("issue")
def keys_issue(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The member's address, as all others name it.")],
    folder: Folder = Path("keys"),
    name: Annotated[str | None, typer.Option(help="Name of the file; the address if not given.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long it counts.")] = 365,
) -> None:
    """Make the certificate and key of one member, in one file."""
    from cubecast.live.keys import issue

    print(issue(folder, address, name=name, days=days))


@keys.command("revoke")
def keys_revoke(
    member: Annotated[Path, typer.Argument(metavar="MEMBER.pem", help="The certificate that shall count no more.")],
    folder: Folder = Path("keys"),
) -> None:
    """Put a member's certificate on the list of those revoked (group.crl, read when a member starts)."""
    from cubecast.live.keys import revoke

    print(f"{revoke(folder, member)} goes to every member, beside group.pem")


def node(
    group: Annotated[str, typer.Argument(help="The group's name.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="This member's address, as all others name it.")],
    peer: Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="Another member; once for each.")] = None,
    found: Annotated[bool, typer.Option("--found", help="Found a group that others join later.")] = False,
    contact: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Join a founded group by this member of it.")
    ] = None,
    credentials: Annotated[Path | None, typer.Option(metavar="FILE", help="This member's certificate and key.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="The group's certificate.")] = None,
    plaintext: Annotated[bool, typer.Option("--plaintext", help="Go without TLS.")] = False,
    causal: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"With --peer: how messages travel: {', '.join(CAUSAL)}.", show_default="auto"
        ),
    ] = None,
    stability: Annotated[
        str | None, typer.Option(help="With --peer: the stability protocol.", show_default="cube_full_dist")
    ] = None,
    suspect_after: Annotated[float, typer.Option(metavar="SECONDS", help="Silence that excludes a member.")] = 5.0,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="none|all|N", help="Founded: messages of the past that a newcomer gets.", show_default="none"
        ),
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Founded: go on from this log after a stop.")] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Founded: write what this member did, for the checkers.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="With --peer: write its events here.")] = None,
    status_at: Annotated[str | None, typer.Option("--status", metavar="HOST:PORT", help="Serve status here.")] = None,
    rate: Annotated[float, typer.Option(metavar="PER_SECOND", help="Send made-up messages, not lines.")] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no deliveries.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every link.")] = False,
) -> None:
    """Be a member of a group: lines in are multicast, deliveries come out as "sender:sequence text".

    Example, two terminals:

      cubecast node chat --listen 127.0.0.1:7001 --peer 127.0.0.1:7002 --plaintext

      cubecast node chat --listen 127.0.0.1:7002 --peer 127.0.0.1:7001 --plaintext

    A group that changes: one member founds it, others come and go.

      cubecast node chat --listen 127.0.0.1:7001 --found --plaintext

      cubecast node chat --listen 127.0.0.1:7002 --contact 127.0.0.1:7001 --plaintext
    """
    _require_one_kind(peer=bool(peer), found=found, contact=bool(contact))
    _refuse_options_of_the_other_kind(
        fixed=bool(peer),
        only_fixed={"--causal": causal, "--stability": stability, "--trace": trace},
        only_founded={"--keep": keep, "--log": log, "--history": history},
    )
    certificate = _credentials(credentials, ca, plaintext=plaintext)
    _log_to_stderr(verbose=verbose)
    terminal = {"status": status_at, "rate_per_s": rate, "quiet": quiet}
    common: dict[str, Any] = {"group": group, "listen": listen, "credentials": certificate, **terminal}
    if peer:
        _run_fixed(common, peer, trace, causal=causal, stability=stability, suspect_after_s=suspect_after)
    else:
        _run_changing(common, contact or [], log, history, keep=keep, suspect_after_s=suspect_after)


def _require_one_kind(*, peer: bool, found: bool, contact: bool) -> None:
    from cubecast.errors import LocalProtocolError

    if peer + found + contact != 1:
        raise LocalProtocolError("give --peer for every other member, or --found, or --contact of a founded group")


def _credentials(credentials: Path | None, ca: Path | None, *, plaintext: bool) -> Credentials | None:
    from cubecast.errors import LocalProtocolError
    from cubecast.live.credentials import Credentials

    if (credentials is None or ca is None) != plaintext:
        raise LocalProtocolError("give --credentials MEMBER.pem and --ca group.pem, or --plaintext to go without TLS")
    return Credentials.load(credentials, ca=ca) if credentials and ca else None


def _log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )


def _refuse_options_of_the_other_kind(
    *, fixed: bool, only_fixed: dict[str, object], only_founded: dict[str, object]
) -> None:
    from cubecast.errors import LocalProtocolError

    for option, value in (only_founded if fixed else only_fixed).items():
        if value is not None:
            needs = "--found or --contact" if fixed else "--peer"
            raise LocalProtocolError(f"{option} {value}: it goes with {needs} only")


def _run_fixed(common: dict[str, Any], peers: list[str], trace: Path | None, **settings: Any) -> None:
    from cubecast.live.node import Node, run_node
    from cubecast.live.settings import Settings

    run_node(Node(**common, peers=peers, trace=trace, settings=Settings(**_given(settings))))


def _run_changing(
    common: dict[str, Any], contacts: list[str], log: Path | None, history: Path | None, **settings: Any
) -> None:
    from cubecast.live.changing.node import ChangingNode, run_changing_node
    from cubecast.live.changing.settings import ChangingSettings

    keep = settings["keep"]
    if keep is not None and keep.isdecimal():
        settings["keep"] = int(keep)
    chosen = ChangingSettings(**_given(settings))
    run_changing_node(ChangingNode(**common, contacts=contacts, log=log, history=history, settings=chosen))


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what was not given: the settings have their own defaults."""
    return {name: value for name, value in settings.items() if value is not None}


def status(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the member serves its status.")],
    json: JsonOption = False,
) -> None:
    """Ask a member how its group is: members, links, frontier, and who holds stability back."""
    from cubecast.live.demo import fetch_status

    found = fetch_status(address)
    if json:
        print_json(found)
    else:
        print_table(_status_table(found))


def _status_table(found: dict[str, Any]) -> Table:
    title = f"{found['group']}: rank {found['rank']} at {found['address']}, view {found['view']}"
    title += ", BLOCKED: too few members within reach" if found.get("blocked") else ""
    table = new_table("address", "link", "rank", "received", "stable", "lag", "behind", left=2, title=title)
    behind = {one["rank"]: one["behind"] for one in found["laggards"]}
    for one in found["members"]:
        link = "this member" if one["rank"] == found["rank"] else _link_word(one)
        numbers = (one["rank"], one["received"], one["stable"], one["received"] - one["stable"])
        table.add_row(one["address"], link, *map(str, numbers), str(behind.get(one["rank"], "")))
    return table


def _link_word(one: dict[str, Any]) -> str:
    if not one["member"]:
        return "excluded"
    return "-" if one["link"] is None else "up" if one["link"]["up"] else "down"


def demo(
    members: Annotated[int, typer.Option(help="Processes to start.")] = 16,
    kills: Annotated[int, typer.Option(help="Members to kill -9 after a third of the time.")] = 2,
    seconds: Annotated[float, typer.Option(help="How long it runs.")] = 15.0,
    rate: Annotated[float, typer.Option(help="Messages a second, each member.")] = 50.0,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep one trace of all, for `cubecast check`.")
    ] = None,
) -> None:
    """Show a live group on this machine: processes that multicast, some killed, and what the others make of it."""
    from cubecast.errors import LocalProtocolError
    from cubecast.live.demo import Demo, run_demo
    from cubecast.live.settings import Settings
    from cubecast.live.warm import warm

    if not 0 <= kills < members - 1:
        raise LocalProtocolError(f"--kills {kills}: leave at least 2 of the {members} members alive")
    warm()
    with tempfile.TemporaryDirectory() as folder:
        shown = Demo(members=members, rate_per_s=rate, folder=Path(folder))
        screen = _Screen()
        with screen:
            run_demo(shown, Settings(suspect_after_s=3.0), seconds=seconds, kills=kills, show=screen.show)
        if trace is not None:
            print(f"{shown.write_trace(trace)} events in {trace}; judge them with: cubecast check {trace}")


class _Screen:
    """A table that updates itself in a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._said = ""

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, demo: Demo, states: dict[int, Any], said: str) -> None:
        """What every member says now."""
        if self._live is not None:
            self._live.update(_demo_table(demo, states, said), refresh=True)
        elif states:
            views = sorted({(one["view"], one["stats"]["members"]) for one in states.values()})
            lags = [one["stats"]["unstable_messages"] for one in states.values()]
            stable = min(sum(m["stable"] for m in one["members"]) for one in states.values())
            told = ", ".join(f"view {view}: {count} members" for view, count in views)
            print(f"{said}; {told}; {stable} messages stable everywhere, at most {max(lags)} not yet", flush=True)


def _demo_table(demo: Demo, states: dict[int, Any], said: str) -> Table:
    table = new_table(
        "member", "state", "view", "delivered", "stable", "lag", "round ms", "excluded", left=2, title=said
    )
    for rank in range(demo.members):
        state = states.get(rank)
        if state is None:
            table.add_row(str(rank), "killed" if rank in demo.killed else "no answer", *[""] * 6)
            continue
        out = ",".join(str(m["rank"]) for m in state["members"] if not m["member"])
        stable = sum(m["stable"] for m in state["members"])
        stats = state["stats"]
        numbers = (state["view"], stats["delivered"], stable, stats["unstable_messages"], f"{stats['round_ms']:.1f}")
        table.add_row(str(rank), "up", *map(str, numbers), out)
    return table
