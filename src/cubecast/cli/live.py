"""`cubecast keys`, `node`, `status` and `demo`: groups of real processes."""

from __future__ import annotations

import logging
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table
from cubecast.cli.protocol_files import with_protocol_files
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from rich.table import Table

    from cubecast.live.credentials import Credentials
    from cubecast.live.demo import Demo, DemoVerdict

keys = typer.Typer(no_args_is_help=True, help="Create the certificates with which members authenticate each other.")

RATE_MAX, SECONDS_MAX = 1e6, 1e6
Folder = Annotated[Path, typer.Option("--folder", help="Folder of the group's keys.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.add_typer(keys, name="keys")
    app.command("node")(node)
    app.command("status")(status)
    app.command("demo")(demo)


@keys.command("init")
def keys_init(
    folder: Folder = Path("keys"),
    name: Annotated[str, typer.Option(help="The group's name in its certificate.")] = "cubecast group",
) -> None:
    """Create the group's certificate (group.pem) and its key (group.key), which signs the members' certificates."""
    from cubecast.live.keys import KEY, init

    certificate = init(folder, name=name)
    print(f"{certificate}: copy it to every member; keep {folder / KEY} secret")


@keys.command("issue")
def keys_issue(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The member's address, as the other members dial it.")
    ],
    folder: Folder = Path("keys"),
    name: Annotated[str | None, typer.Option(help="Name of the file.", show_default="the address")] = None,
    days: Annotated[int, typer.Option(min=1, metavar="INTEGER", help="Validity in days.")] = 365,
    replace: Annotated[
        bool, typer.Option("--replace", help="Revoke the existing certificate of the file, and issue a new one.")
    ] = False,
) -> None:
    """Create the certificate and key of one member, in one file.

    Example:

      cubecast keys issue 10.0.0.1:7001
    """
    from cubecast.live.keys import REVOKED, issue, member_file

    is_replaced = member_file(folder, address, name=name).exists()
    print(issue(folder, address, name=name, days=days, replace=replace))
    if is_replaced:
        print(f"the old certificate is revoked; copy {folder / REVOKED} to every member, next to group.pem")


@keys.command("revoke")
def keys_revoke(
    member: Annotated[Path, typer.Argument(metavar="MEMBER.pem", help="The certificate to revoke.")],
    folder: Folder = Path("keys"),
) -> None:
    """Add a member's certificate to the revocation list (group.crl, which members reload when it changes)."""
    from cubecast.live.keys import revoke

    print(f"{revoke(folder, member)}: copy it to every member, next to group.pem")


@with_protocol_files
def node(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address on which this member accepts connections.")],
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address that others dial; the name of this member.", show_default="--listen"
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Found the group together with this member. Repeatable."),
    ] = None,
    contact: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Join a running group through this member. Repeatable."),
    ] = None,
    found: Annotated[bool, typer.Option("--found", help="Found a group of one, which others join.")] = False,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Continue from this file after a stop or a crash.")
    ] = None,
    credentials: Annotated[Path | None, typer.Option(metavar="FILE", help="This member's certificate and key.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="The group's certificate.")] = None,
    plaintext: Annotated[bool, typer.Option("--plaintext", help="Do not use TLS.")] = False,
    data: Annotated[str | None, typer.Option(metavar="NAME", help="The data protocol.", show_default="auto")] = None,
    data_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the data protocol. Repeatable.")
    ] = None,
    stability: Annotated[
        str | None, typer.Option(metavar="NAME", help="The stability protocol.", show_default="auto")
    ] = None,
    stability_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the stability protocol. Repeatable.")
    ] = None,
    quorum: Annotated[
        str | None,
        typer.Option(
            metavar="majority|any", help="Which members may decide on the next view.", show_default="majority"
        ),
    ] = None,
    heartbeat: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Heartbeat interval of the failure detector.", show_default="0.2"),
    ] = None,
    suspect_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Silence after which a member is suspected.", show_default="3"),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="none|all|N", help="Earlier messages that a newcomer receives.", show_default="none"),
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            metavar="always|interval|never", help="When the journal is forced to disk.", show_default="always"
        ),
    ] = None,
    join_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time limit for founding or joining.", show_default="30")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write events for `cubecast check`.")] = None,
    status_at: Annotated[
        str | None, typer.Option("--status", metavar="HOST:PORT", help="Serve the status page at this address.")
    ] = None,
    rate: Annotated[
        float, typer.Option(metavar="PER_SECOND", help="Send generated messages at this rate instead of lines.")
    ] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no deliveries.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every link.")] = False,
) -> None:
    """Run a member of a group: multicast every input line, print deliveries as "sender sequence text".

    Example, two terminals:

      cubecast node chat --listen 127.0.0.1:7001 --peer 127.0.0.1:7002 --plaintext

      cubecast node chat --listen 127.0.0.1:7002 --peer 127.0.0.1:7001 --plaintext

    A third member joins later:

      cubecast node chat --listen 127.0.0.1:7003 --contact 127.0.0.1:7001 --plaintext

    All members of a group must run the same protocols with the same parameters, including custom protocols:

      cubecast node chat --listen 127.0.0.1:7001 --found --plaintext --protocol-file mine.py --stability mine

    With --journal a member that was killed continues where it stopped, and needs no --peer or --contact.
    """
    from cubecast.live.node import Node, run_node
    from cubecast.member.settings import Settings

    settings = {
        "data": data,
        "stability": stability,
        "data_parameters": _parameters("data", data, data_parameter),
        "stability_parameters": _parameters("stability", stability, stability_parameter),
        "quorum": quorum,
        "heartbeat_s": heartbeat,
        "suspect_after_s": suspect_after,
        "keep": int(keep) if keep is not None and keep.isdecimal() else keep,
        "sync": sync,
        "join_timeout_s": join_timeout,
    }
    _require_between("--rate", rate, 0, RATE_MAX)
    _log_to_stderr(verbose=verbose)
    run_node(
        Node(
            group=group,
            listen=listen,
            advertise=advertise,
            peers=peer,
            contacts=contact,
            found=found,
            journal=journal,
            credentials=_credentials(credentials, ca, plaintext=plaintext),
            settings=Settings(**{name: value for name, value in settings.items() if value is not None}),  # type: ignore[arg-type]
            trace=trace,
            status=status_at,
            rate_per_s=rate,
            quiet=quiet,
        )
    )


def _require_between(option: str, value: float, low: float, high: float) -> None:
    """Reject a value outside the option's range, such as nan."""
    if not low <= value <= high:
        raise LocalProtocolError(f"{option} {value:g}: give a number from {low:g} to {high:g}")


def _parameters(role: str, name: str | None, given: list[str] | None) -> dict[str, Any] | None:
    """Parse the parameters of a protocol."""
    if not given:
        return None
    from cubecast.protocol.parameters import describe, read_text
    from cubecast.protocols.catalogue import protocol_named

    if name is None:
        raise LocalProtocolError(f"--{role}-parameter {given[0]}: also give the protocol, with --{role}")
    known = describe(protocol_named(name).parameters)
    pairs = [word.partition("=") for word in given]
    for own, is_pair, _ in pairs:
        if not is_pair or own not in known:
            raise LocalProtocolError(
                f"--{role}-parameter {own}: write NAME=VALUE; {name} has {', '.join(known) or 'none'}"
            )
    return {own: read_text(known[own], text, name) for own, _, text in pairs}


def _credentials(credentials: Path | None, ca: Path | None, *, plaintext: bool) -> Credentials | None:
    from cubecast.live.credentials import Credentials

    if (credentials is None or ca is None) != plaintext:
        raise LocalProtocolError("give --credentials MEMBER.pem and --ca group.pem, or --plaintext for no TLS")
    return Credentials.load(credentials, ca=ca) if credentials and ca else None


def _log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )


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

    _require_between("--rate", rate, 0.1, RATE_MAX)
    _require_between("--seconds", seconds, 1, SECONDS_MAX)
    most = kills_max(members)
    chosen = min(2, most) if kills is None else kills
    if not 0 <= chosen <= most:
        raise LocalProtocolError(f"--kills {chosen}: at most {most} of {members} members, so that a majority remains")
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
            print(f"{headline}; {shown}; {delivered:,} messages delivered, at most {max(lags)} not stable", flush=True)


def _demo_table(demo: Demo, states: dict[int, Any], headline: str) -> Table:
    title = f"{headline}; status page of the first member: http://{demo.page}/"
    table = new_table("member", "state", "view", "members", "delivered", "unstable", "gone", left=2, title=title)
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
