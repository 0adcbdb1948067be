"""`cubecast protocols` and `cubecast networks`: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table


def protocols(
    family: Annotated[str | None, typer.Option(help="Only this family, for example stability.")] = None,
    json: JsonOption = False,
) -> None:
    """List the protocols: name, family, the paper they come from, and one line each.

    Examples:

      cubecast protocols
      cubecast protocols --family stability --json
    """
    from cubecast.core.registry import protocols as registered

    found = registered(family)
    if json:
        keys = ("name", "title", "family", "paper", "summary")
        print_json([{key: getattr(protocol, key) for key in keys} for protocol in found])
        return
    table = new_table("name", "family", "paper", "in one line", left=4)
    for protocol in found:
        table.add_row(protocol.name, protocol.family, protocol.paper, protocol.summary)
    print_table(table)


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
