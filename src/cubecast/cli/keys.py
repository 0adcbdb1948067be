"""`cubecast keys`: create, replace and revoke the certificates of a group's members."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Create the certificates with which members authenticate each other.")

Folder = Annotated[Path, typer.Option("--folder", help="Folder of the group's keys.")]


@app.command("init")
def init_(
    folder: Folder = Path("keys"),
    name: Annotated[str, typer.Option(help="The group's name in its certificate.")] = "cubecast group",
) -> None:
    """Create the group's certificate (group.pem) and its key (group.key), which signs the members' certificates."""
    from cubecast.live.keys import KEY, init

    certificate = init(folder, name=name)
    print(f"{certificate}: copy it to every member; keep {folder / KEY} secret")


@app.command("issue")
def issue_(
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


@app.command("revoke")
def revoke_(
    member: Annotated[Path, typer.Argument(metavar="MEMBER.pem", help="The certificate to revoke.")],
    folder: Folder = Path("keys"),
) -> None:
    """Add a member's certificate to the revocation list (group.crl, which members reload when it changes)."""
    from cubecast.live.keys import revoke

    print(f"{revoke(folder, member)}: copy it to every member, next to group.pem")
