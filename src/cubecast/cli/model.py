"""`cubecast model`: evaluate the formulas of the papers, without a simulation."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

from cubecast.cli.options import number, whole_number
from cubecast.cli.output import JsonOption, new_table, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Evaluate the formulas of the papers, without a simulation.")

Members = Annotated[int, typer.Option("--members", "-n", parser=whole_number, metavar="INTEGER", help="Group size n.")]
Subset = Annotated[
    int, typer.Option(parser=whole_number, metavar="INTEGER", help="Members that receive gossip per step, p.")
]
Arrival = Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Probability that a message arrives.")]


@app.command("gossip")
def gossip(
    members: Members,
    subset: Subset = 1,
    arrival: Arrival = 1.0,
    p_incomplete: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Accepted probability of an incomplete round.")
    ] = 1e-3,
    json: JsonOption = False,
) -> None:
    """Compute the number of steps of a Gossip round (guo §4.2.5).

    Example:

      cubecast model gossip --members 500 --subset 3 --p-incomplete 1e-6
    """
    from cubecast.models.gossip_chain import GossipChain

    chain = GossipChain(members=members, subset=subset, arrival=arrival)
    steps = chain.steps_for(p_incomplete)
    by_step = [chain.incomplete(step * members) for step in range(math.ceil(steps) + 1)]
    result = {
        "members": members,
        "subset": subset,
        "arrival": arrival,
        "p_incomplete": p_incomplete,
        "steps": steps,
        "expected_steps_of_one": chain.expected_steps(),
        "p_incomplete_by_step": by_step,
    }
    if json:
        print_json(result)
        return
    print(f"information from one member reaches all {members} after {chain.expected_steps():.2f} steps on average")
    print(f"P(round incomplete) ≤ {p_incomplete:g} after {steps:.2f} steps")
    table = new_table("step", "P(incomplete) at most", left=0)
    for step, probability in enumerate(by_step):
        table.add_row(f"{step}", f"{probability:.3e}")
    print_table(table)


@app.command("trigger")
def trigger(
    buffer_messages: Annotated[
        int, typer.Option("--buffer", parser=whole_number, metavar="INTEGER", help="Buffer capacity in messages, g.")
    ],
    rate: Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Messages per second, r.")],
    round_s: Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Time per round (TPR), f.")],
    stable_fraction: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Share of the buffer that a round frees, α.")
    ] = 1.0,
    json: JsonOption = False,
) -> None:
    """Compute when to start a round so that the buffer does not overflow (guo ch. 6). Exit code 1 if impossible.

    Example:

      cubecast model trigger --buffer 640 --rate 50 --round-s 2 --stable-fraction 0.2
    """
    from cubecast.models.trigger import Feasibility, TriggerCase
    from cubecast.models.trigger import trigger as answer

    case = TriggerCase(
        buffer_messages=buffer_messages, rate_per_s=rate, round_s=round_s, stable_fraction=stable_fraction
    )
    found = answer(case)
    if json:
        result = asdict(case) | {"verdict": found.verdict.value, "level": found.level, "sentence": found.sentence}
        print_json(result)
    else:
        print(f"{found.verdict.value}: {found.sentence}")
    if found.verdict is Feasibility.INFEASIBLE:
        raise typer.Exit(1)


@app.command("kfail")
def kfail(
    members: Members,
    step_s: Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Step interval in seconds.")],
    p_mistake: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Accepted probability of a false suspicion.")
    ] = 1e-6,
    subset: Subset = 1,
    arrival: Arrival = 1.0,
    crashed: Annotated[
        int, typer.Option(parser=whole_number, metavar="INTEGER", help="Number of members that are already down.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Compute K_fail of gossip-style failure detection (guo §3.1.2).

    Example:

      cubecast model kfail --members 200 --step-s 1 --p-mistake 1e-6
    """
    from cubecast.models.failure import k_fail

    found = k_fail(members=members, p_mistake=p_mistake, step_s=step_s, subset=subset, arrival=arrival, crashed=crashed)
    if json:
        print_json(asdict(found))
        return
    print(f"K_fail = {found.k_fail}: suspect a member after {found.detection_s_max:g} s without a heartbeat")
    print(f"P(any false suspicion) ≤ {found.p_mistake_bound:.2e}; {found.message_bytes} bytes per message, ", end="")
    print(f"{found.bytes_per_s:,.0f} bytes per second from each member")
