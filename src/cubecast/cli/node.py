"""`cubecast node`: one member of a group in a terminal."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import RATE_MAX, require_between
from cubecast.cli.protocol_files import with_protocol_files
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.live.credentials import Credentials

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]
ListenOption = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address on which this member accepts connections.")
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address that others dial; the name of this member.", show_default="--listen"
    ),
]
PeerOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Found the group together with this member. Repeatable."),
]
ContactOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Join a running group through this member. Repeatable."),
]
FoundOption = Annotated[bool, typer.Option("--found", help="Found a group of one, which others join.")]
JournalOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Continue from this file after a stop or a crash.")
]
CredentialsOption = Annotated[Path | None, typer.Option(metavar="FILE", help="This member's certificate and key.")]
CaOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The group's certificate.")]
PlaintextOption = Annotated[bool, typer.Option("--plaintext", help="Do not use TLS.")]
DataOption = Annotated[str | None, typer.Option(metavar="NAME", help="The data protocol.", show_default="auto")]
DataParameterOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the data protocol. Repeatable.")
]
StabilityOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The stability protocol.", show_default="auto")
]
StabilityParameterOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the stability protocol. Repeatable.")
]
QuorumOption = Annotated[
    str | None,
    typer.Option(metavar="majority|any", help="Which members may decide on the next view.", show_default="majority"),
]
HeartbeatOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Heartbeat interval of the failure detector.", show_default="0.2"),
]
SuspectAfterOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Silence after which a member is suspected.", show_default="3"),
]
KeepOption = Annotated[
    str | None,
    typer.Option(metavar="none|all|N", help="Earlier messages that a newcomer receives.", show_default="none"),
]
SyncOption = Annotated[
    str | None,
    typer.Option(metavar="always|interval|never", help="When the journal is forced to disk.", show_default="always"),
]
JoinTimeoutOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Time limit for founding or joining.", show_default="30")
]
TraceOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write events for `cubecast check`.")]
StatusAtOption = Annotated[
    str | None, typer.Option("--status", metavar="HOST:PORT", help="Serve the status page at this address.")
]
RateOption = Annotated[
    float, typer.Option(metavar="PER_SECOND", help="Send generated messages at this rate instead of lines.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print no deliveries.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log every link.")]


@with_protocol_files
def node(
    group: GroupArgument,
    listen: ListenOption,
    advertise: AdvertiseOption = None,
    peer: PeerOption = None,
    contact: ContactOption = None,
    found: FoundOption = False,
    journal: JournalOption = None,
    credentials: CredentialsOption = None,
    ca: CaOption = None,
    plaintext: PlaintextOption = False,
    data: DataOption = None,
    data_parameter: DataParameterOption = None,
    stability: StabilityOption = None,
    stability_parameter: StabilityParameterOption = None,
    quorum: QuorumOption = None,
    heartbeat: HeartbeatOption = None,
    suspect_after: SuspectAfterOption = None,
    keep: KeepOption = None,
    sync: SyncOption = None,
    join_timeout: JoinTimeoutOption = None,
    trace: TraceOption = None,
    status_at: StatusAtOption = None,
    rate: RateOption = 0.0,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
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
    require_between("--rate", rate, 0, RATE_MAX)
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
