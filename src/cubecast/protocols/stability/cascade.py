"""Cascade: stability without rounds, over a tree, the dissemination pattern or a hypercube (`overlay`).

Received-vectors only grow, so a minimum over a fixed set of members only grows, and taking it needs no round. Each
member keeps the newest minimum heard from each of its inputs and forwards the minimum of its part of the overlay; the
minimum at the top is S. Late, lost, duplicate and reordered messages are harmless: see *Soundness* in `aggregation`,
which uses no round, start or acknowledgement. What remains to be decided is *when* to send.

**Pacing.** If members sent whenever something has grown, minima of different moments would meet: the oldest of n
vectors with random phases is almost one interval old, and it alone determines the minimum. So minima travel in *waves*.
A wave has a number, which says only that its sender has heard all its inputs since the wave began.

- A member sends to an output once all inputs below have arrived for the wave (the last child decides), and only then
  reads its own R.
- A wave that has reached the top is over at this member. In the tree it then comes down as the frontier, which is also
  the signal for the next climb: a wave costs 2·(n−1) messages, where a round costs 3·(n−1), and 4·(n−1) with the
  acknowledgements of the lossy form. The next wave begins Δ later, and only if something is unstable (R > S): a quiet
  group sends nothing, and a member that has nothing unstable joins when it hears of a wave.
- A member whose minimum would wait at its parent for a sibling's waits itself instead, and reads R later (`linger`).
  The parent measures how long after the beginning of a wave each child's minimum arrives, without the time the child
  lingered, and sends each child how much earlier than the latest it is; an inner member adds what its own parent sent.
- A member asks for an input that does not arrive within its usual time and deviation (measured as TCP does), and
  repeats this at intervals that grow by a quarter each. Until a time has been measured it is twice that of the latest
  sibling, or `repeat_ns`. An ASK carries the minimum that goes the same way, in case that was lost, and takes the other
  member into the wave.
- If messages can be lost, a wave over the tree goes on without an overdue child, unless the pause Δ is more than twice
  as long as a wave takes: then the next wave is far. Meanwhile the child's last minimum counts, which remains a lower
  bound of its R. With n−1 children and loss some child is always missing, and most waves would wait for several
  repetitions, although almost all messages wait for another member's minimum. A wave waits for a child that was never
  heard; the first wave after a rest waits for all children, so that a lone message takes one climb and one descent.
- A member that had to ask for its frontier begins its next wave late. It states the delay as if it had lingered, so
  that its parent does not mistake the loss for distance.

| field       | shape    | meaning                                                                               |
|-------------|----------|---------------------------------------------------------------------------------------|
| links       |          | places, inputs, outputs and minima (`aggregation`)                                    |
| round       | rows     | the newest wave this member has begun or joined                                       |
| ended       | rows     | the newest wave that reached its top with the present membership                      |
| done        | rows     | the newest wave that ever did                                                         |
| skipped     | rows     | rounds that the driver requested while nothing was unstable: ended without a message  |
| rested      | rows     | has it skipped any since its last wave?                                               |
| began_ns    | rows     | when its newest wave began …                                                          |
| done_ns     | rows     | … and when its last one was over                                                      |
| lap_ns      | rows     | how long a wave takes, smoothed                                                       |
| linger_ns   | rows     | how long to linger before a wave, as the parent requested                             |
| lingered_ns | rows     | how long it lingered before its newest wave, with `late_ns`                           |
| late_ns     | rows     | how much later than usual its last requested frontier arrived                         |
| lag_ns      | rows × W | how long after a wave began each input comes, smoothed, without lingering; 0: unknown |
| spread_ns   | rows × W | the mean deviation from that                                                          |
| early_ns    | rows × W | how long each child is to linger beyond this member                                   |
| backoff_ns  | rows × W | added to the patience with a requested input, until it comes without a request        |
| due_ns      | rows × W | when each input is overdue                                                            |
| asked       | rows × W | the newest wave for which each input was requested                                    |

Invariants: `done ≤ round`, `ended ≤ round`. To the driver wave w is round w + `skipped`.

*Liveness.* A member that has begun a wave asks for the inputs that have not arrived, until they do or the wave goes on
without them; a member that is asked joins the wave, and does the same. By induction over the levels every wave ends, if
repeated messages eventually arrive. Waves follow each other while anything is unstable, and a minimum that is too late
for one wave counts in the next, so what all have received eventually becomes stable. When the membership changes,
places are re-indexed, what was heard is discarded, minima start again from R, the wave runs again and all inputs are
asked for it; S stays.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import STABILITY, GroupState, learn_stable
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
    aggregation_traffic,
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
    message("ASK", round=4, view=4, ready=4, heard=4, minimum=per_sender(4)),
)
NEXT_WAVE, OVERDUE = range(2)
OVERLAYS = {"tree": TREE, "dissemination": DISSEMINATION, "hypercube": HYPERCUBE}
PATIENCE_NS = 20_000_000  # with inputs that have never arrived, in the reliable form
LINGER_NS_MAX = (1 << 31) - 1  # the largest value that a live message can carry
DEGREE_MAX = 256  # by default: every member's state has room for this many children
BACKOFF_NS_MAX = 10_000_000_000  # added to the patience: a slow network may need seconds for an answer
_NEVER = np.int64(1) << 62


@dataclass(frozen=True, kw_only=True)
class CascadeParameters:
    """Parameters of Cascade."""

    overlay: Literal["tree", "dissemination", "hypercube"] = parameter(
        "tree", "The edges along which minima travel.", search=("dissemination", "hypercube")
    )
    tree_degree: int | None = parameter(
        None,
        "Children of an inner member of the tree.",
        at_least=1,
        otherwise=f"n − 1, at most {DEGREE_MAX}",
        search=(8,),
        matters_with=("overlay", "tree"),
    )
    radix: int = parameter(
        2,
        "Each step of dissemination multiplies the members that a member covers by this factor.",
        at_least=2,
        at_most=RADIX_MAX,
        search=(4,),
        matters_with=("overlay", "dissemination"),
    )
    linger: bool = parameter(
        True,
        "Members whose minima would wait in the tree for later ones wait themselves before they read R.",
        search=(False,),
        matters_with=("overlay", "tree"),
    )


def resolve(parameters: CascadeParameters, context: Context) -> CascadeParameters:
    """By default a tree of one level, as long as its root can hold the vectors of all members."""
    degree = parameters.tree_degree or max(1, min(context.members - 1, DEGREE_MAX))
    return replace(parameters, tree_degree=min(degree, max(1, context.members - 1)))


class CascadeState(NamedTuple):
    """Cascade, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    lingers: int
    excuses: int
    links: Aggregation
    round: np.ndarray
    ended: np.ndarray
    done: np.ndarray
    skipped: np.ndarray
    rested: np.ndarray
    began_ns: np.ndarray
    done_ns: np.ndarray
    lap_ns: np.ndarray
    linger_ns: np.ndarray
    lingered_ns: np.ndarray
    late_ns: np.ndarray
    lag_ns: np.ndarray
    spread_ns: np.ndarray
    early_ns: np.ndarray
    backoff_ns: np.ndarray
    due_ns: np.ndarray
    asked: np.ndarray


_BY_ROW = (
    "round",
    "ended",
    "done",
    "skipped",
    "rested",
    "began_ns",
    "done_ns",
    "lap_ns",
    "linger_ns",
    "lingered_ns",
    "late_ns",
)
_BY_INPUT = ("lag_ns", "spread_ns", "early_ns", "backoff_ns", "due_ns", "asked")


def _shape(parameters: CascadeParameters) -> tuple[int, int]:
    """The overlay, and the degree of its tree or its radix."""
    overlay = OVERLAYS[parameters.overlay]
    return overlay, (parameters.tree_degree or 1) if overlay == TREE else parameters.radix


def build(group: GroupState, context: Context, parameters: CascadeParameters) -> CascadeState:
    """Cascade before its first wave."""
    overlay, fanout = _shape(parameters)
    links = new_aggregation(group, context, overlay=overlay, fanout=fanout, sizes=message_sizes(MESSAGES, context))
    return CascadeState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns or PATIENCE_NS,
        lingers=int(parameters.linger and overlay == TREE),
        excuses=int(context.repeat_ns > 0 and overlay == TREE),
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
    """Handle the minimum of an input, or a request for this member's."""
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
        answer(state.links, state.group, row, mail, slot, state.round[row], state.repeat_ns > 0)
    _advance(state, row, now_ns, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Begin the next wave when Δ is over; ask for overdue inputs of this wave."""
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
    """Start again in a new view: what was heard or measured does not apply to the present inputs."""
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
        _advance(state, row, now_ns, mail)


@linked
def _begin_or_skip(state, row, now_ns, mail):
    """Begin the next wave; while nothing is unstable, end the requested round without one."""
    if is_unstable(state.group, row):
        _begin_wave(state, row, now_ns, mail, state.round[row] + 1)
        return
    state.skipped[row] += 1
    state.rested[row] = 1
    number = state.round[row] + state.skipped[row]
    begin_round(mail, number)
    end_round(mail, number)
    rest(mail, NEXT_WAVE, number, max(state.delta_ns, IDLE_NS))


@linked
def _begin_wave(state, row, now_ns, mail, number):
    state.round[row] = number
    state.began_ns[row] = now_ns
    waited_ns = now_ns - state.done_ns[row] - state.delta_ns
    state.lingered_ns[row] = min(max(waited_ns, 0), state.linger_ns[row]) + state.late_ns[row]
    begin_round(mail, number + state.skipped[row])
    _watch_inputs(state, row, now_ns, mail)
    _advance(state, row, now_ns, mail)


@linked
def _advance(state, row, now_ns, mail):
    """Send what is ready; if the wave has reached the top it is over, and its minimum is S."""
    if state.lingers != 0:
        _share_linger(state, row)
    ready = send_ready(state.links, state.group, row, mail, state.round[row])
    if ready <= state.ended[row]:
        return
    state.ended[row] = ready
    compute_minima(state.links, state.group, row)
    learn_stable(state.group, row, state.links.minimum[state.links.top[row]])
    if ready <= state.done[row]:
        return
    state.done[row] = ready
    state.rested[row] = 0
    state.done_ns[row] = now_ns
    state.late_ns[row] = _frontier_late_ns(state, row, now_ns)
    lap_ns = now_ns - state.began_ns[row]
    state.lap_ns[row] += (lap_ns - state.lap_ns[row]) // (4 if state.lap_ns[row] > 0 else 1)
    number = ready + state.skipped[row]
    end_round(mail, number)
    rest(mail, NEXT_WAVE, number, state.delta_ns + state.linger_ns[row])


@linked
def _frontier_late_ns(state, row, now_ns):
    """How much later than usual a requested frontier arrived; the other members began their next waves in time."""
    k = state.links.input_count[row] - 1
    if state.lingers == 0 or k < 0 or state.links.input_levels[row, k] == 1:
        return np.int64(0)
    if state.asked[row, k] < state.done[row] or state.lag_ns[row, k] == 0:
        return np.int64(0)
    return max(now_ns - state.began_ns[row] + state.late_ns[row] - state.lag_ns[row, k], np.int64(0))


@linked
def _note_arrival(state, row, now_ns, mail, slot, k):
    """Measure how long after the beginning of its wave an input arrives; take the lingering time from the parent."""
    is_child = state.links.input_levels[row, k] == 1
    number = mail.heads[slot].round_number
    if state.asked[row, k] >= number:
        if state.lag_ns[row, k] > 0:  # otherwise keep it: an input that is always asked too early is never measured
            state.backoff_ns[row, k] //= 2
    elif number == state.round[row]:
        lag_ns = now_ns - state.began_ns[row]
        if state.lingers != 0 and is_child:
            lag_ns -= linger_of(mail, slot) - state.lingered_ns[row]
        elif state.lingers != 0:
            lag_ns += state.late_ns[row]
        _smooth(state, row, k, max(lag_ns, 1))
    elif state.lag_ns[row, k] > 0:  # the wave went on without it: wait somewhat longer for the next
        state.spread_ns[row, k] += state.lag_ns[row, k] // 16
    if state.lingers != 0 and not is_child:
        state.linger_ns[row] = min(linger_of(mail, slot), state.lap_ns[row])


@linked
def _smooth(state, row, k, lag_ns):
    """Update the mean and mean deviation, with TCP's weights (Jacobson 1988); a decrease of the mean counts half.

    The first waves wait for lost messages, so their times say little about later waves.
    """
    state.backoff_ns[row, k] = 0
    if state.lag_ns[row, k] == 0:
        state.lag_ns[row, k] = lag_ns
        state.spread_ns[row, k] = lag_ns
        return
    off_ns = lag_ns - state.lag_ns[row, k]
    state.lag_ns[row, k] = max(state.lag_ns[row, k] + off_ns // (2 if off_ns < 0 else 8), 1)
    state.spread_ns[row, k] += (abs(off_ns) - state.spread_ns[row, k]) // 4


@linked
def _share_linger(state, row):
    """Set the lingering times in messages to the children, so that their minima arrive together, and to the parent."""
    links = state.links
    latest_ns = np.int64(0)
    children = 0
    while children < links.input_count[row] and links.input_levels[row, children] == 1:
        latest_ns = max(latest_ns, state.lag_ns[row, children] + state.spread_ns[row, children])
        children += 1
    first = 0
    if links.output_count[row] > children:  # all except the root send to their parent first
        links.linger_ns[row, 0] = state.lingered_ns[row]
        first = 1
    for k in range(children):
        state.early_ns[row, k] = 0
        if state.lag_ns[row, k] > 0:
            state.early_ns[row, k] = latest_ns - state.lag_ns[row, k] - state.spread_ns[row, k]
        links.linger_ns[row, first + k] = min(state.early_ns[row, k] + state.linger_ns[row], LINGER_NS_MAX)


@linked
def _watch_inputs(state, row, now_ns, mail):
    """Note when each input is overdue, and set a timer for the first."""
    first_ns = _NEVER
    unknown_ns = _unknown_patience_ns(state, row)
    for k in range(state.links.input_count[row]):
        usual_ns = state.early_ns[row, k] + _patience_ns(state, row, k, unknown_ns)
        if state.rested[row] == 1:  # the others look at R at intervals, and may still wait for the message
            usual_ns += max(state.delta_ns, IDLE_NS)
        state.due_ns[row, k] = now_ns + usual_ns + state.backoff_ns[row, k]
        first_ns = min(first_ns, state.due_ns[row, k])
    if first_ns < _NEVER:
        set_timer(mail, OVERDUE, state.round[row], first_ns - now_ns)


@linked
def _patience_ns(state, row, k, unknown_ns):
    """How long to wait for an input that does not linger; `unknown_ns` for one that was never measured.

    The wait before a request is longer than the wait before a wave goes on, which costs no message. An input that takes
    this member into its waves seems to take no time at all, and so do its siblings; a minimum applies to all of them,
    so that no member asks faster than an answer can arrive.
    """
    least_ns = max(state.lap_ns[row] // 16, np.int64(state.repeat_ns // 64))
    if state.lag_ns[row, k] == 0:
        return max(unknown_ns, least_ns)
    usual_ns = state.lag_ns[row, k] + state.spread_ns[row, k] + state.lag_ns[row, k] // 8
    if not _may_excuse(state, row, k):
        if state.links.overlay != TREE:
            usual_ns += 3 * state.spread_ns[row, k]
        elif state.links.input_levels[row, k] == 1:
            usual_ns += state.spread_ns[row, k]
    return max(usual_ns, least_ns)


@linked
def _unknown_patience_ns(state, row):
    """How long to wait for an input that was never measured: twice as long as for the latest of the others."""
    latest_ns = np.int64(0)
    for k in range(state.links.input_count[row]):
        latest_ns = max(latest_ns, state.lag_ns[row, k])
    if latest_ns == 0:
        return np.int64(state.repeat_ns)
    return min(2 * latest_ns, np.int64(state.repeat_ns))


@linked
def _ask_overdue(state, row, now_ns, mail):
    """Ask for overdue inputs, at growing intervals; go on without children that were heard before."""
    number = state.round[row]
    unknown_ns = _unknown_patience_ns(state, row)
    first_ns = _NEVER
    is_excused = False
    for k in range(state.links.input_count[row]):
        if state.links.heard_round[row, k] >= number:
            continue
        if state.due_ns[row, k] <= now_ns:
            if _may_excuse(state, row, k):
                state.links.heard_round[row, k] = number
                is_excused = True
                continue
            ask(state.links, state.group, row, mail, k, number, number)
            state.asked[row, k] = number
            again_ns = _patience_ns(state, row, k, unknown_ns) + state.backoff_ns[row, k]
            state.due_ns[row, k] = now_ns + again_ns
            state.backoff_ns[row, k] = min(state.backoff_ns[row, k] + again_ns // 4, BACKOFF_NS_MAX)
        first_ns = min(first_ns, state.due_ns[row, k])
    if first_ns < _NEVER:
        set_timer(mail, OVERDUE, number, first_ns - now_ns)
    if is_excused:
        _advance(state, row, now_ns, mail)


@linked
def _may_excuse(state, row, k):
    """May a wave go on with the last minimum of this input? Only of a child, and not with the goal errors.

    After a rest the child may not have heard of anything new; with a long pause the next wave is far.
    """
    links = state.links
    return (
        state.excuses != 0
        and state.rested[row] == 0
        and 2 * state.lap_ns[row] >= state.delta_ns
        and links.input_levels[row, k] == 1
        and links.heard_round[row, k] > 0
        and state.group.goal == STABILITY
    )


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
    traffic=lambda context, parameters: aggregation_traffic(context.members, *_shape(parameters)),
    colour="#000000",
)
