"""`cubecast protocols` and `cubecast networks`: list the available choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table
from cubecast.cli.protocol_files import with_protocol_files
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.protocol.definition import Protocol
    from cubecast.protocol.messages import MessageType
    from cubecast.protocol.parameters import ParameterInfo


@with_protocol_files
def protocols(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this protocol with its parameters and messages.", show_default=False),
    ] = None,
    family: Annotated[str | None, typer.Option(help="Only this family, for example stability.")] = None,
    json: JsonOption = False,
) -> None:
    """List the protocols, or describe one with its parameters and message fields.

    A parameter is an option of `simulate`, `compare` and `tune` and a setting of plans.
    The families transport and failure are layers under a stability protocol: select
    them with --transport and --detector; their parameters are --transport-… and
    --detector-….

    Examples:

      cubecast protocols
      cubecast protocols gossip
      cubecast protocols --family stability --json
      cubecast protocols doubling --protocol-file examples/doubling.py
    """
    from cubecast.protocols.catalogue import list_protocols, plain_name

    if name is not None:
        _show([one for one in list_protocols(family) if one.name == plain_name(name)], name, json)
        return
    found = list_protocols(family)
    if json:
        print_json([_plain(protocol) for protocol in found])
        return
    table = new_table("name", "family", "paper", "summary", left=4)
    for protocol in found:
        table.add_row(protocol.name, protocol.family, protocol.paper, protocol.summary)
    print_table(table)


def _plain(protocol: Protocol) -> dict[str, str]:
    return {key: getattr(protocol, key) for key in ("name", "title", "family", "paper", "summary")}


def _show(found: list[Protocol], name: str, json: bool) -> None:
    from cubecast.protocol.parameters import describe

    if not found:
        raise LocalProtocolError(f"unknown protocol {name!r}: `cubecast protocols` lists them")
    if json:
        details = [
            _plain(one)
            | {"parameters": [_about(info) for info in describe(one.parameters).values()]}
            | {"messages": [_fields(message) for message in one.messages]}
            for one in found
        ]
        print_json(details)
        return
    for protocol in found:
        print(f"{protocol.title} ({protocol.family}; {protocol.paper}): {protocol.summary}.")
        _print_parameters(list(describe(protocol.parameters).values()))
        _print_messages(protocol)


def _print_parameters(known: list[ParameterInfo]) -> None:
    if not known:
        print("It has no parameters.")
        return
    table = new_table("parameter", "value", "default", "meaning", left=4)
    for info in known:
        about = _about(info)
        table.add_row(info.name, about["value"], about["default"], info.help)
    print_table(table)


def _print_messages(protocol: Protocol) -> None:
    if not protocol.messages:
        return
    table = new_table("message", "fields, with their bytes; n members, m senders", left=2)
    for message in protocol.messages:
        fields = [f"{name}: {size.text}" for name, size in message.fields.items()]
        table.add_row(message.name, ", ".join(fields) or "none")
    print_table(table)


def _fields(message: MessageType) -> dict[str, Any]:
    return {"name": message.name, "fields": {name: size.text for name, size in message.fields.items()}}


def _about(info: ParameterInfo) -> dict[str, str]:
    kinds = {bool: "true or false", float: "number", int: "whole number", str: "text"}
    value = " | ".join(info.choices) or next(word for kind, word in kinds.items() if kind in info.types)
    default = info.otherwise if info.default is None else str(info.default)
    return {"name": info.name, "value": value, "default": default, "meaning": info.help}


def networks(json: JsonOption = False) -> None:
    """List the kinds of networks and their syntax for --network.

    Examples:

      cubecast networks
      cubecast simulate coord --members 50 --network random:degree=5,delay=0-2ms
    """
    from cubecast.networks.spec import network_kinds

    kinds = network_kinds()
    if json:
        print_json([{"spelling": spelling, "description": description} for spelling, description in kinds])
        return
    table = new_table("spelling", "description", left=2)
    for spelling, description in kinds:
        table.add_row(spelling, description)
    print_table(table)
