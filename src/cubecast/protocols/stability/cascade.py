"""Cascade: stability without rounds, over a tree, the dissemination pattern or a hypercube (`overlay`).

Received-vectors only grow, so a minimum over a fixed set of members only grows, and no round is needed to take it. Each
member keeps the newest minimum heard from each of its inputs and sends on the minimum of its part of the overlay; what
is at the top is S. Late, lost, doubled and reordered messages are harmless: see *Soundness* in `aggregation`, which
uses no round, start or acknowledgement. What remains to be decided is *when* to send.

**Pacing.** Sent whenever something has grown, minima that are not of one moment meet: the oldest of n vectors with
random phases is almost one interval old, and it alone counts. So minima go in *waves*. A wave has a number, which says
only that its sender has heard all its inputs since the wave began.

- A member sends to an output once all inputs below have come for the wave (the last child decides), and reads its own R
  as late as that.
- A wave that has reached the top is over at this member. Over the tree it is the frontier that comes down, and it is
  the signal for the next climb at the same time: a wave costs 2·(n−1) messages, where a round costs 3·(n−1), and
  4·(n−1) with the acknowledgements of the lossy form. The next wave begins Δ later, and only if something is unstable
  (R > S): a quiet group sends nothing, and a member that alone has nothing unstable joins when it hears of a wave.
- A member whose minimum would wait at its parent for a sibling's rather waits itself, and reads R later (`linger`). The
  parent measures how long after the beginning of a wave each child comes, without what it lingered, and sends each
  how much earlier than the latest it is; an inner member adds what its own parent sent.
- An input that does not come is asked for, after its usual time and four times the usual deviation (as TCP times its
  retransmissions), again after that time without an answer; until something was measured the time is `repeat_ns`. An
  ASK carries the minimum that goes the same way, in case that was lost, and takes the other member into the wave.

| field       | shape    | meaning                                                                               |
|-------------|----------|---------------------------------------------------------------------------------------|
| links       |          | places, inputs, outputs and minima (`aggregation`)                                    |
| round       | rows     | the newest wave this member has begun or joined                                       |
| ended       | rows     | the newest wave that reached its top with the present membership                      |
| done        | rows     | the newest wave that ever did                                                         |
| skipped     | rows     | rounds that the driver asked for while nothing was unstable: ended without a message  |
| began_ns    | rows     | when its newest wave began …                                                          |
| done_ns     | rows     | … and when its last one was over                                                      |
| lap_ns      | rows     | how long a wave takes, smoothed                                                       |
| linger_ns   | rows     | how long to linger before a wave, as the parent said                                  |
| lingered_ns | rows     | how long it did before its newest wave                                                |
| lag_ns      | rows × W | how long after a wave began each input comes, smoothed, without lingering; 0: unknown |
| spread_ns   | rows × W | the mean deviation from that                                                          |
| early_ns    | rows × W | how long each child is to linger beyond this member                                   |
| backoff_ns  | rows × W | added to the patience with an input that had to be asked, until it comes by itself    |
| due_ns      | rows × W | when each input is overdue                                                            |
| asked       | rows × W | the newest wave for which each was asked                                              |

Invariants: `done ≤ round`, `ended ≤ round`. To the driver wave w is round w + `skipped`.

*Liveness.* A member that has begun a wave asks the inputs that have not come, until they do; a member that is asked
joins the wave, and so does the same. By induction over the levels every minimum of the wave arrives, if messages that
are repeated arrive at last. When the membership changes, places are re-indexed, what was heard is forgotten, minima
start again from R, the wave is run again and all inputs are asked for it; S stays.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, learn_stable
from cubecast.protocol.mail import begin_round, end_round, rest, set_timer
from cubecast.protocol.messages import message, message_sizes, per_sender
from cubecast.protocol.parameters import parameter
from cubecast.protocols.stability.aggregation import (
    ASK,
    DISSEMINATION,
    HYPERCUBE,
    IDLE_NS,
    RADIX_MAX,
    TREE,
    Aggregation,
    answer,
    ask,
    ask_missing,
    compute_minima,
    is_unstable,
    linger_of,
    link,
    new_aggregation,
    send_ready,
    take,
    view_of,
)

MESSAGES = (
    message("MINIMUM", round=4, view=4, linger=4, minimum=per_sender(4)),
    message("ASK", round=4, view=4, heard=4, minimum=per_sender(4)),
)
NEXT_WAVE, OVERDUE = range(2)
OVERLAYS = {"tree": TREE, "dissemination": DISSEMINATION, "hypercube": HYPERCUBE}
PATIENCE_NS = 20_000_000  # with inputs that have never come, in the reliable form
LINGER_NS_MAX = (1 << 31) - 1  # what a live message carries
DEGREE_MAX = 256  # by default: the state of every member has room for so many children
_NEVER = np.int64(1) << 62


@dataclass(frozen=True, kw_only=True)
class CascadeParameters:
    """What Cascade leaves open."""

    overlay: Literal["tree", "dissemination", "hypercube"] = parameter("tree", "Along which edges minima go.")
    tree_degree: int | None = parameter(
        None, "Children of an inner member of the tree.", at_least=1, otherwise=f"n − 1, at most {DEGREE_MAX}"
    )
    radix: int = parameter(
        2, "What a member covers grows by this factor in a step of dissemination.", at_least=2, at_most=RADIX_MAX
    )
    linger: bool = parameter(
        True, "Members whose minima would wait in the tree for later ones wait before they read R."
    )


def resolve(parameters: CascadeParameters, context: Context) -> CascadeParameters:
    """A tree of one level, as long as its root can hold the vectors of all."""
    degree = parameters.tree_degree or max(1, min(context.members - 1, DEGREE_MAX))
    return replace(parameters, tree_degree=min(degree, max(1, context.members - 1)))


class CascadeState(NamedTuple):
    """Cascade, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    lingers: int
    links: Aggregation
    round: np.ndarray
    ended: np.ndarray
    done: np.ndarray
    skipped: np.ndarray
    began_ns: np.ndarray
    done_ns: np.ndarray
    lap_ns: np.ndarray
    linger_ns: np.ndarray
    lingered_ns: np.ndarray
    lag_ns: np.ndarray
    spread_ns: np.ndarray
    early_ns: np.ndarray
    backoff_ns: np.ndarray
    due_ns: np.ndarray
    asked: np.ndarray


_BY_ROW = ("round", "ended", "done", "skipped", "began_ns", "done_ns", "lap_ns", "linger_ns", "lingered_ns")
_BY_INPUT = ("lag_ns", "spread_ns", "early_ns", "backoff_ns", "due_ns", "asked")


def build(group: GroupState, context: Context, parameters: CascadeParameters) -> CascadeState:
    """Cascade before its first wave."""
    overlay = OVERLAYS[parameters.overlay]
    fanout = (parameters.tree_degree or 1) if overlay == TREE else parameters.radix
    links = new_aggregation(group, context, overlay=overlay, fanout=fanout, sizes=message_sizes(MESSAGES, context))
    return CascadeState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns or PATIENCE_NS,
        lingers=int(parameters.linger and overlay == TREE),
        links=links,
        **{name: np.zeros(len(group.rank), np.int64) for name in _BY_ROW},
        **{name: np.zeros(links.inputs.shape, np.int64) for name in _BY_INPUT},
    )


@linked
def start(state, row, now_ns, mail):
    """Every member begins the first wave by itself; a newcomer asks for the one under way."""
    link(state.links, state.group, row)
    if now_ns > 0:
        ask_missing(state.links, state.group, row, mail, 1)
    if state.round[row] == 0:
        _begin_wave(state, row, now_ns, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """The minimum of an input, or a question for ours."""
    if view_of(mail, slot) != state.links.view_seen[row]:
        return
    k = take(state.links, row, mail, slot)
    is_question = mail.heads[slot].kind == ASK
    if k >= 0 and not is_question:
        _note_arrival(state, row, now_ns, mail, slot, k)
    number = mail.heads[slot].round_number
    if number > state.round[row]:
        _begin_wave(state, row, now_ns, mail, number)
        return
    if is_question:
        answer(state.links, state.group, row, mail, mail.heads[slot].source, number, state.round[row])
    _go_on(state, row, now_ns, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Δ is over, or inputs of this wave are overdue."""
    if timer == NEXT_WAVE:
        if tag == state.done[row] + state.skipped[row] and state.round[row] == state.done[row]:
            _begin_or_skip(state, row, now_ns, mail)
    elif tag == state.round[row] and state.ended[row] < tag:
        _ask_overdue(state, row, now_ns, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """The places change."""
    _restart(state, row, now_ns, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """The places change."""
    _restart(state, row, now_ns, mail)


@linked
def _restart(state, row, now_ns, mail):
    """In a new view: what was heard or measured no longer says anything of the present inputs."""
    link(state.links, state.group, row)
    for k in range(state.lag_ns.shape[1]):
        state.lag_ns[row, k] = 0
        state.spread_ns[row, k] = 0
        state.early_ns[row, k] = 0
        state.backoff_ns[row, k] = 0
    state.linger_ns[row] = 0
    if state.round[row] > 0:
        state.ended[row] = 0
        ask_missing(state.links, state.group, row, mail, state.round[row])
        _watch_inputs(state, row, now_ns, mail)
        _go_on(state, row, now_ns, mail)


@linked
def _begin_or_skip(state, row, now_ns, mail):
    """Begin the next wave; while nothing is unstable, end the round that the driver asks for without one."""
    if is_unstable(state.group, row):
        _begin_wave(state, row, now_ns, mail, state.round[row] + 1)
        return
    state.skipped[row] += 1
    number = state.round[row] + state.skipped[row]
    begin_round(mail, number)
    end_round(mail, number)
    rest(mail, NEXT_WAVE, number, max(state.delta_ns, IDLE_NS))


@linked
def _begin_wave(state, row, now_ns, mail, number):
    state.round[row] = number
    state.began_ns[row] = now_ns
    waited_ns = now_ns - state.done_ns[row] - state.delta_ns
    state.lingered_ns[row] = min(max(waited_ns, 0), state.linger_ns[row])
    begin_round(mail, number + state.skipped[row])
    _watch_inputs(state, row, now_ns, mail)
    _go_on(state, row, now_ns, mail)


@linked
def _go_on(state, row, now_ns, mail):
    """Send what is ready; a wave that has reached the top is over, and its minimum is S."""
    if state.lingers != 0:
        _share_linger(state, row)
    ready = send_ready(state.links, state.group, row, mail, state.round[row])
    if ready <= state.ended[row]:
        return
    state.ended[row] = ready
    compute_minima(state.links, state.group, row)
    learn_stable(state.group, row, state.links.minimum[row, state.links.top[row]])
    if ready <= state.done[row]:
        return
    state.done[row] = ready
    state.done_ns[row] = now_ns
    lap_ns = now_ns - state.began_ns[row]
    state.lap_ns[row] += (lap_ns - state.lap_ns[row]) // (4 if state.lap_ns[row] > 0 else 1)
    number = ready + state.skipped[row]
    end_round(mail, number)
    rest(mail, NEXT_WAVE, number, state.delta_ns + state.linger_ns[row])


@linked
def _note_arrival(state, row, now_ns, mail, slot, k):
    """Measure how long after the beginning of its wave an input comes; hear from the parent how long to linger."""
    is_child = state.links.input_levels[row, k] == 1
    number = mail.heads[slot].round_number
    if number == state.round[row] and state.asked[row, k] < number:
        lag_ns = now_ns - state.began_ns[row]
        if state.lingers != 0 and is_child:
            lag_ns -= linger_of(mail, slot) - state.lingered_ns[row]
        _smooth(state, row, k, max(lag_ns, 1))
    if state.lingers != 0 and not is_child:
        state.linger_ns[row] = min(linger_of(mail, slot), state.lap_ns[row])


@linked
def _smooth(state, row, k, lag_ns):
    """Mean and mean deviation, with TCP's weights (Jacobson 1988)."""
    state.backoff_ns[row, k] = 0
    if state.lag_ns[row, k] == 0:
        state.lag_ns[row, k] = lag_ns
        state.spread_ns[row, k] = lag_ns // 2
        return
    off_ns = lag_ns - state.lag_ns[row, k]
    state.lag_ns[row, k] = max(state.lag_ns[row, k] + off_ns // 8, 1)
    state.spread_ns[row, k] += (abs(off_ns) - state.spread_ns[row, k]) // 4


@linked
def _share_linger(state, row):
    """Tell the children how long to linger, so that their minima come together, and the parent how long it was here."""
    links = state.links
    latest_ns = np.int64(0)
    children = 0
    while children < links.input_count[row] and links.input_levels[row, children] == 1:
        latest_ns = max(latest_ns, state.lag_ns[row, children] + state.spread_ns[row, children])
        children += 1
    first = 0
    if links.output_count[row] > children:  # all but the root send to their parent first
        links.linger_ns[row, 0] = state.lingered_ns[row]
        first = 1
    for k in range(children):
        state.early_ns[row, k] = 0
        if state.lag_ns[row, k] > 0:
            state.early_ns[row, k] = latest_ns - state.lag_ns[row, k] - state.spread_ns[row, k]
        links.linger_ns[row, first + k] = min(state.early_ns[row, k] + state.linger_ns[row], LINGER_NS_MAX)


@linked
def _watch_inputs(state, row, now_ns, mail):
    """Note when each input is overdue, and wake up for the first."""
    first_ns = _NEVER
    for k in range(state.links.input_count[row]):
        usual_ns = state.early_ns[row, k] + _patience_ns(state, row, k)
        state.due_ns[row, k] = now_ns + usual_ns + state.backoff_ns[row, k]
        first_ns = min(first_ns, state.due_ns[row, k])
    if first_ns < _NEVER:
        set_timer(mail, OVERDUE, state.round[row], first_ns - now_ns)


@linked
def _patience_ns(state, row, k):
    """How long to wait for an input that does not linger.

    Those above wait for others' losses: their times vary. An input that takes this member into its waves seems to take
    no time at all: there is a least time, so that nobody asks faster than an answer comes.
    """
    if state.lag_ns[row, k] == 0:
        return np.int64(state.repeat_ns)
    spreads = 4 if state.links.input_levels[row, k] == 1 else 2
    usual_ns = state.lag_ns[row, k] + spreads * state.spread_ns[row, k] + state.lag_ns[row, k] // 8
    return max(usual_ns, state.lap_ns[row] // 4, np.int64(state.repeat_ns // 16))


@linked
def _ask_overdue(state, row, now_ns, mail):
    """Ask for what should have come by now."""
    number = state.round[row]
    first_ns = _NEVER
    for k in range(state.links.input_count[row]):
        if state.links.heard_round[row, k] >= number:
            continue
        if state.due_ns[row, k] <= now_ns:
            ask(state.links, state.group, row, mail, k, number, number)
            state.asked[row, k] = number
            again_ns = _patience_ns(state, row, k)
            if state.links.input_levels[row, k] > 1:  # an answer comes sooner than a wave
                again_ns = min(again_ns, state.repeat_ns)
            state.due_ns[row, k] = now_ns + again_ns
            state.backoff_ns[row, k] = min(state.backoff_ns[row, k] + again_ns // 4, state.repeat_ns)
        first_ns = min(first_ns, state.due_ns[row, k])
    if first_ns < _NEVER:
        set_timer(mail, OVERDUE, number, first_ns - now_ns)


def _sends(members: int, parameters: CascadeParameters) -> float:
    """Messages of a member per wave."""
    if parameters.overlay == "tree":
        return 2.0
    factor = parameters.radix if parameters.overlay == "dissemination" else 2
    steps, covered = 0, 1
    while covered < members:
        steps, covered = steps + 1, covered * factor
    return float((factor - 1) * steps)


PROTOCOL = Protocol(
    name="cascade",
    title="Cascade",
    family="stability",
    paper="own",
    summary="minima that only grow climb an overlay in waves, without rounds",
    state=CascadeState,
    messages=MESSAGES,
    parameters=CascadeParameters,
    build=build,
    resolve=resolve,
    state_per_member="quadratic",
    sends_per_member=_sends,
    colour="#000000",
)
