"""`cubecast protocols` and `cubecast networks`: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table

if TYPE_CHECKING:
    from cubecast.protocols.catalogue import Protocol
    from cubecast.protocols.layers import Layer


def protocols(
    family: Annotated[str | None, typer.Option(help="Only this family, for example stability.")] = None,
    json: JsonOption = False,
) -> None:
    """List the protocols: name, family, the paper they come from, and one line each.

    The families reliable and failure are layers under a stability protocol: choose
    one with --transport and --detector.

    Examples:

      cubecast protocols
      cubecast protocols --family stability --json
    """
    found = _known(family)
    if json:
        keys = ("name", "title", "family", "paper", "summary")
        print_json([{key: getattr(protocol, key) for key in keys} for protocol in found])
        return
    table = new_table("name", "family", "paper", "in one line", left=4)
    for protocol in found:
        table.add_row(protocol.name, protocol.family, protocol.paper, protocol.summary)
    print_table(table)


def _known(family: str | None) -> list[Protocol | Layer]:
    from cubecast.protocols.catalogue import protocols as registered
    from cubecast.protocols.layers import DETECTOR, TRANSPORT, layers

    beside: list[Protocol | Layer] = [*layers(TRANSPORT), *layers(DETECTOR)]
    if family in (TRANSPORT, DETECTOR):
        return [layer for layer in beside if layer.family == family]
    return [*registered(family), *(beside if family is None else [])]


def networks(json: JsonOption = False) -> None:
    """List the kinds of networks and how to spell them after --network.

    Examples:

      cubecast networks
      cubecast simulate coord --members 50 --network random:degree=5,delay=0-2ms
    """
    from cubecast.networks.spec import network_kinds

    kinds = network_kinds()
    if json:
        print_json([{"spelling": spelling, "description": description} for spelling, description in kinds])
        return
    table = new_table("spelling", "what it is", left=2)
    for spelling, description in kinds:
        table.add_row(spelling, description)
    print_table(table)
