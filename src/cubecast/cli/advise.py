"""`cubecast advise`: recommend a protocol and its parameters for a group."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import DATA, FAULTS, GROUP, NETWORK, number, whole_number
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.cli.protocol_files import with_protocol_files
from cubecast.cli.study_traces import ConfOption, MasterOption
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.lab.advisor.advice import Advice, Row
    from cubecast.lab.remote import AnyPath

ANSWER, SPARK = "Answer", "Spark"


class Optimise(StrEnum):
    """What to minimise."""

    time_to_stable = "time-to-stable"
    bytes = "bytes"
    buffer = "buffer"


MembersOption = Annotated[
    int | None,
    typer.Option(
        "--members",
        "-n",
        parser=whole_number,
        metavar="INTEGER",
        rich_help_panel=GROUP,
        help="Number of members of the group.",
    ),
]
SendersOption = Annotated[
    int | None,
    typer.Option(
        "--senders",
        "-m",
        parser=whole_number,
        metavar="INTEGER",
        rich_help_panel=GROUP,
        help="Number of members that multicast.",
        show_default="all, at most 50",
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HOST:PORT",
        rich_help_panel=GROUP,
        help="Read members, round-trip times, loss, rate and payload from the status page of a running member.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="A network (`cubecast networks`), or a file with an edge list or GraphML.",
        show_default="random:p=0.02",
    ),
]
PlacementOption = Annotated[
    bool | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="Also try placement of ranks by distance.",
        show_default="yes, except for live groups",
    ),
]
LossOption = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="NUMBER",
        rich_help_panel=FAULTS,
        help="Probability that a link loses a message.",
        show_default="0",
    ),
]
RateOption = Annotated[
    str | None,
    typer.Option(rich_help_panel=DATA, help="Messages per second of each sender, as in 50/s.", show_default="100/s"),
]
PayloadOption = Annotated[
    int | None,
    typer.Option(
        parser=whole_number, metavar="INTEGER", rich_help_panel=DATA, help="Bytes of a message.", show_default="100"
    ),
]
TransportOption = Annotated[
    str | None,
    typer.Option(rich_help_panel=DATA, help="Reliable transport of all candidates.", show_default="auto"),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ANSWER,
        help="Limit for the stability protocol per member: 30kb/s (bits) or 4kB/s (bytes).",
        show_default="none",
    ),
]
WithinOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ANSWER,
        help="Limit of the time to stable: 200ms, 1.5s.",
        show_default="none; 1s with --optimise bytes",
    ),
]
OptimiseOption = Annotated[Optimise, typer.Option(rich_help_panel=ANSWER, help="What to minimise.")]
ProtocolsOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ANSWER, help="Candidates, separated by commas.", show_default="all stability protocols"
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed", "-s", parser=whole_number, metavar="INTEGER", rich_help_panel=ANSWER, help="The first seed."
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        rich_help_panel=ANSWER,
        help="Folder for results, plan and report, or an object-store address. The same command continues an "
        "interrupted race.",
    ),
]
SparkOption = Annotated[
    bool | None,
    typer.Option(rich_help_panel=SPARK, help="Simulate on Spark.", show_default="for more than 200 members"),
]


@with_protocol_files
def advise(
    members: MembersOption = None,
    senders: SendersOption = None,
    source: SourceOption = None,
    network: NetworkOption = None,
    placement: PlacementOption = None,
    loss: LossOption = None,
    rate: RateOption = None,
    payload: PayloadOption = None,
    transport: TransportOption = None,
    budget: BudgetOption = None,
    within: WithinOption = None,
    optimise: OptimiseOption = (Optimise.time_to_stable),
    protocols: ProtocolsOption = None,
    seed: SeedOption = 0,
    out: OutOption = Path("advice"),
    spark: SparkOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    json: JsonOption = False,
) -> None:
    """Recommend a stability protocol and its parameters for a group, with the confidence of the answer.

    Candidates race: short simulations of all candidates, then more simulations of the best, on the same networks.
    The answer is a ranking with a Pareto front and the probability that the first is the best.

    Examples:

      cubecast advise --members 100 --network random:degree=5 --loss 0.02 --rate 50/s --budget 30kb/s
      cubecast advise --members 600 --network wan.graphml --optimise bytes --within 500ms
      cubecast advise --from 127.0.0.1:9001 --budget 30kb/s
    """
    from cubecast.lab.advisor.advice import advise as ask
    from cubecast.lab.remote import path_of
    from cubecast.lab.spark.settings import parse_conf
    from cubecast.lab.whole_file import check_folder

    place = path_of(out)
    if isinstance(place, Path):
        check_folder(place)
    given: dict[str, Any] = {
        "members": members,
        "senders": senders,
        "network": network,
        "placement": placement,
        "loss": loss,
        "rate": rate,
        "payload_bytes": payload,
        "transport": transport,
    }
    given = _asked({name: value for name, value in given.items() if value is not None}, source, place)
    with waiting("preparing (compiling, the first time)") as step:
        advice = ask(
            **given,
            budget=budget,
            within=within,
            optimise=optimise.value,
            protocols=[] if protocols is None else [name.strip() for name in protocols.split(",")],
            seed=seed,
            out=place,
            spark=spark,
            master=master,
            conf=parse_conf(conf or ()),
            progress=lambda done, what: step(done, 0, f"{done} simulations, next {what}"),
        )
    if json:
        print_json(advice.to_dict() | {"asked": given})
    else:
        _print(advice, place)


def _asked(given: dict[str, Any], source: str | None, out: AnyPath) -> dict[str, Any]:
    """The question to the advisor; options override the status of a running member."""
    if source is not None:
        from cubecast.lab.advisor.live_status import read_status, settings_of_status
        from cubecast.lab.remote import RemotePath

        if isinstance(out, RemotePath):
            raise LocalProtocolError(f"--out {out} with --from: give a folder of this machine")
        return settings_of_status(read_status(source), out) | given
    if "members" not in given:
        raise LocalProtocolError(
            "--members is missing: give the number of members, or the status address of a member (--from)"
        )
    return given


def _print(advice: Advice, out: AnyPath) -> None:
    from cubecast.lab.advisor.evidence import PAGE, PLAN, answer_text, cost_text

    print(answer_text(advice))
    live, cost = advice.live_settings(), advice.live_cost()
    if live and cost:
        print(f"live: {live}")
        print(f"costs: {cost_text(cost)}")
    _print_rows("ranking", advice.ranking)
    _print_rows("Pareto front: no candidate is both faster and cheaper", advice.front)
    for reason in advice.impossible.values():
        print(f"not possible: {reason}")
    print(
        f"{advice.simulations} simulations of {advice.candidates} configurations, {advice.cpu_s:.1f} s of CPU time; "
        f"report {out / PAGE}, plan {out / PLAN}"
    )


def _print_rows(title: str, rows: list[Row]) -> None:
    from cubecast.lab.advisor.evidence import probability_text
    from cubecast.protocols.catalogue import protocol_named

    heads = ("time to stable ms", "kb/s per member", "buffer", "seeds", "best", "fits")
    table = new_table("protocol", "parameters", *heads, title=title, left=2)
    for row in rows:
        spread = f" ± {row.time_ms.half_width:,.1f}" if row.time_ms.half_width else ""
        cells = [f"{row.time_ms.value:,.1f}{spread}", f"{8 * row.bytes_per_s.value / 1e3:,.1f}"]
        cells += [f"{row.buffer.value:,.1f}", str(row.seeds), probability_text(row), "yes" if row.fits else "no"]
        name = protocol_named(row.candidate.configuration.protocol).title
        table.add_row(name, ", ".join(row.candidate.details), *cells)
    print_table(table)
