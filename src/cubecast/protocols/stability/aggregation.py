"""Minima over an aggregation overlay: the common part of `dissemination` and `cascade`.

Members have *places* 0 … n−1, the current members in the order of their ranks: when one is excluded, those behind it
move up. An overlay gives every place a number of *levels*, and at each level *inputs* (places it hears from) and
*outputs* (places it sends to). At level 0 a member knows its own R; its minimum at level l is the minimum of level l−1
and of all inputs of level l; an output of level l gets the minimum of level l; the minimum at the top covers all
members, and is S.

| overlay       | inputs of place i, by level         | outputs of place i, by level             |
|---------------|-------------------------------------|------------------------------------------|
| TREE          | 1: its children; 2: its parent      | 1: its parent; 2: its children           |
| DISSEMINATION | k+1: i − r·bᵏ, r = 1 … b−1          | k: i + r·bᵏ, as far as r·bᵏ < n          |
| HYPERCUBE     | 1: i + 2ᵐ; k+2: i ⊕ 2ᵏ, k = 0 … m−1 | k+1: i ⊕ 2ᵏ; top: i + 2ᵐ                 |

The cube has 2ᵐ ≤ n < 2ᵐ⁺¹ places; place i + 2ᵐ has the output i at level 0 and the input i at level 1. A member has
at most one input and one output per other member, so a message need not name its level.

| field        | shape        | meaning                                                                               |
|--------------|--------------|---------------------------------------------------------------------------------------|
| places       | n            | the rank at each place, in the membership last used …                                 |
| places_of    | 4            | … which is this one: its set, the mark of that set, number of members, `view_seen`    |
| view_seen    | rows         | a number that identifies the membership as this member sees it                        |
| top          | rows         | its highest level                                                                     |
| inputs       | rows × W     | the ranks it hears from, lower levels first; `input_count` of them                    |
| input_levels | rows × W     | the level of each input                                                               |
| outputs      | rows × W     | the ranks it sends to, lower levels first; `output_count` of them                     |
| output_levels| rows × W     | the level whose minimum each output gets                                              |
| heard        | rows × W × m | the element-wise maximum of the vectors from each input                               |
| heard_round  | rows × W     | the newest round heard from each input                                                |
| sent_round   | rows × W     | the newest round sent to each output                                                  |
| linger_ns    | rows × W     | the lingering time that a message to each output states (`cascade`)                   |
| minimum      | L × m        | scratch: the minimum at each level of the member it was last computed for             |

*Soundness.* Let C(i, l) be the places that level l of place i covers: C(i, 0) = {i}, and C(i, l) is the union of
C(i, l−1) and of what its inputs of level l cover at the level they send. Claim: at any time, minimum[i, l] ≤ R_j for
all j in C(i, l), and so is every vector that was sent from level l of i. By induction over events: R only grows, so
what held when a vector was computed still holds when it arrives, however late, how often and in whatever order;
`heard` is an element-wise maximum of vectors that are all ≤ R_j, hence ≤ R_j; a minimum of vectors covers the union of
their places. The argument uses no round, acknowledgement or order: rounds only determine when to send. C(i, top) is
the whole group (the tests compute it for every n), so S is never premature. (With the goal errors the minima become
maxima of what was seen: some member has reached each of them, so they need no argument.)

A place denotes the same member for two members only while they see the same membership G. A message therefore carries
the view of its sender and counts only for members with the same view; when the membership changes, everything heard is
discarded and minima start again from R. S stays: what all of G hold, all remaining members of G hold, and a newcomer
begins with what is stable. Live members have one view per state and the frame names it, so there the comparison is
exact; in the simulator two memberships have the same number with a probability of 2⁻³¹.

*Liveness.* The two members of an output and its input learn of a view at different times. If the sender is later, it
sends again in the new view; if the receiver is later, it asks (`ask_missing`). A member that is asked sends what it has
for that round, or sends it as soon as it has it. If messages can be lost, it sends at once what it has of an earlier
round that the other lacks: otherwise two members that lack each other's last round would wait for ever.

*Quiet.* The driver wakes a member for the next round. While nothing is unstable here, that round ends without a
message (`skipped`); if another member has an unstable message, this member joins when it hears of the round.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import NOTHING, STABILITY, GroupState, copy_numbers, fold, raise_numbers
from cubecast.protocol.mail import draft, send
from cubecast.protocol.traffic import Traffic, pairs, together, up_tree

MINIMUM, ASK = range(2)
TREE, DISSEMINATION, HYPERCUBE = range(3)
RADIX_MAX = 64
IDLE_NS = 1_000_000  # the least time between two looks at R while nothing is unstable


class Aggregation(NamedTuple):
    """Minima over an overlay, one row per local member; see the module."""

    overlay: int
    fanout: int
    sizes: np.ndarray
    places: np.ndarray
    places_of: np.ndarray
    view_seen: np.ndarray
    top: np.ndarray
    input_count: np.ndarray
    inputs: np.ndarray
    input_levels: np.ndarray
    output_count: np.ndarray
    outputs: np.ndarray
    output_levels: np.ndarray
    heard: np.ndarray
    heard_round: np.ndarray
    sent_round: np.ndarray
    linger_ns: np.ndarray
    minimum: np.ndarray


def new_aggregation(
    group: GroupState, context: Context, *, overlay: int, fanout: int, sizes: np.ndarray
) -> Aggregation:
    """Nothing has been heard. `fanout` is the degree of the tree, or the radix of the dissemination."""
    rows, senders = group.received.shape
    width, levels = _extent(context.members, overlay, fanout)
    return Aggregation(
        overlay=overlay,
        fanout=fanout,
        sizes=sizes,
        places=np.zeros(context.members, np.int64),
        places_of=np.full(4, -1, np.int64),
        heard=np.zeros((rows, width, senders), np.int32),
        minimum=np.zeros((levels + 1, senders), np.int32),
        **{name: np.zeros(rows, np.int64) for name in ("view_seen", "top", "input_count", "output_count")},
        **{
            name: np.zeros((rows, width), np.int64)
            for name in (
                *("inputs", "input_levels", "outputs", "output_levels"),
                *("heard_round", "sent_round", "linger_ns"),
            )
        },
    )


def _extent(members: int, overlay: int, fanout: int) -> tuple[int, int]:
    """The largest number of inputs or outputs of a place, and of levels."""
    if overlay == TREE:
        return min(fanout, members - 1) + 1, 2
    if overlay == HYPERCUBE:
        dimension = members.bit_length() - 1
        return dimension + 1, dimension + 1
    steps, stride, partners = 0, 1, 0
    while stride < members:
        partners += min((members - 1) // stride, fanout - 1)
        steps, stride = steps + 1, stride * fanout
    return max(partners, 1), steps


def aggregation_traffic(members: int, overlay: int, fanout: int) -> Traffic:
    """The traffic of a full group: one minimum per round from every place to each of its outputs."""
    places = np.arange(members)
    if overlay == TREE:
        up = up_tree((places - 1) // fanout)
        return together(up, pairs(up.target, up.source))
    if overlay == HYPERCUBE:
        corners = 1 << (members.bit_length() - 1)
        edges = [pairs(places[:corners], places[:corners] ^ (1 << k)) for k in range(corners.bit_length() - 1)]
        outside = places[corners:]
        return together(*edges, pairs(outside, outside - corners), pairs(outside - corners, outside))
    strides = [fanout**k for k in range(_extent(members, overlay, fanout)[1])]
    ahead = [r * stride for stride in strides for r in range(1, min((members - 1) // stride, fanout - 1) + 1)]
    return together(*(pairs(places, (places + far) % members) for far in ahead))


@linked
def link(links, group, row):
    """Find the inputs and outputs in the present membership, in which nothing has been heard yet."""
    _find_places(links, group, row)
    count = links.places_of[2]
    place = np.searchsorted(links.places[:count], group.rank[row])
    links.view_seen[row] = links.places_of[3]
    links.input_count[row] = 0
    links.output_count[row] = 0
    for k in range(links.heard_round.shape[1]):
        if links.heard_round[row, k] > 0:
            for j in range(links.heard.shape[2]):
                links.heard[row, k, j] = 0
        links.heard_round[row, k] = 0
        links.sent_round[row, k] = 0
        links.linger_ns[row, k] = 0
    if links.overlay == TREE:
        _link_tree(links, row, place, count)
    elif links.overlay == HYPERCUBE:
        _link_cube(links, row, place, count)
    else:
        _link_dissemination(links, row, place, count)


@linked
def _find_places(links, group, row):
    """Fill `places`, unless the member that last used them sees the same membership, which is the usual case."""
    members = group.members[row]
    which = group.members.which[row]
    mark = np.int64(group.members.marks[which] >> np.uint64(1))
    if links.places_of[0] == which and links.places_of[1] == mark:
        return
    count = 0
    for rank in range(links.places.shape[0]):
        if rank_sets.contains(members, rank):
            links.places[count] = rank
            count += 1
    links.places_of[0] = which
    links.places_of[1] = mark
    links.places_of[2] = count
    links.places_of[3] = rank_sets.fingerprint(members)


@linked
def _link_tree(links, row, place, count):
    first = place * links.fanout + 1
    last = min(first + links.fanout, count)
    for child in range(first, last):
        _add_input(links, row, child, 1)
    if place > 0:
        parent = (place - 1) // links.fanout
        _add_input(links, row, parent, 2)
        _add_output(links, row, parent, 1)
    for child in range(first, last):
        _add_output(links, row, child, 2)
    links.top[row] = 2


@linked
def _link_dissemination(links, row, place, count):
    step = 0
    stride = 1
    while stride < count:
        for r in range(1, min((count - 1) // stride, links.fanout - 1) + 1):
            _add_input(links, row, (place + count - r * stride) % count, step + 1)
            _add_output(links, row, (place + r * stride) % count, step)
        step += 1
        stride *= links.fanout
    links.top[row] = step


@linked
def _link_cube(links, row, place, count):
    dimension = 0
    while 2 << dimension <= count:
        dimension += 1
    corners = 1 << dimension
    if place >= corners:
        _add_output(links, row, place - corners, 0)
        _add_input(links, row, place - corners, 1)
        links.top[row] = 1
        return
    if place + corners < count:
        _add_input(links, row, place + corners, 1)
    for k in range(dimension):
        _add_input(links, row, place ^ (1 << k), k + 2)
        _add_output(links, row, place ^ (1 << k), k + 1)
    links.top[row] = dimension + 1
    if place + corners < count:
        _add_output(links, row, place + corners, dimension + 1)


@linked
def _add_input(links, row, place, level):
    k = links.input_count[row]
    links.inputs[row, k] = links.places[place]
    links.input_levels[row, k] = level
    links.input_count[row] = k + 1


@linked
def _add_output(links, row, place, level):
    k = links.output_count[row]
    links.outputs[row, k] = links.places[place]
    links.output_levels[row, k] = level
    links.output_count[row] = k + 1


@linked
def input_from(links, row, rank):
    """The index of the input from this rank, or −1."""
    for k in range(links.input_count[row]):
        if links.inputs[row, k] == rank:
            return k
    return -1


@linked
def output_to(links, row, rank):
    """The index of the output to this rank, or −1."""
    for k in range(links.output_count[row]):
        if links.outputs[row, k] == rank:
            return k
    return -1


@linked
def take(links, row, mail, slot):
    """Merge the minimum that a message of this view carries; return the index of its input, or −1."""
    k = input_from(links, row, mail.heads[slot].source)
    number = minimum_round_of(mail, slot)
    if k >= 0 and number > 0:
        raise_numbers(links.heard[row, k], mail.numbers[slot])
        links.heard_round[row, k] = max(links.heard_round[row, k], number)
    return k


@linked
def round_ready(links, row, number, level):
    """The newest round, up to `number`, for which all inputs up to a level have been heard."""
    for k in range(links.input_count[row]):
        if links.input_levels[row, k] <= level:
            number = min(number, links.heard_round[row, k])
    return number


@linked
def compute_minima(links, group, row):
    """Compute the minima at all levels, from the present R and what was heard."""
    copy_numbers(links.minimum[0], group.received[row])
    k = 0
    for level in range(1, links.top[row] + 1):
        copy_numbers(links.minimum[level], links.minimum[level - 1])
        while k < links.input_count[row] and links.input_levels[row, k] == level:
            fold(group, links.minimum[level], links.heard[row, k])
            k += 1


@linked
def send_minimum(links, row, mail, k, number):
    """Send the minimum of its level to output k, for a round."""
    slot = draft(mail, MINIMUM, number, links.sizes[MINIMUM])
    mail.heads[slot].field_1 = links.view_seen[row]
    mail.heads[slot].field_2 = links.linger_ns[row, k]
    copy_numbers(mail.numbers[slot, : links.heard.shape[2]], links.minimum[links.output_levels[row, k]])
    send(mail, slot, links.outputs[row, k])
    links.sent_round[row, k] = max(links.sent_round[row, k], number)


@linked
def send_ready(links, group, row, mail, number):
    """Send to every output whose level is ready for a round not sent yet; return the round that is ready at the top."""
    ready = number
    k = 0
    o = 0
    is_fresh = False
    for level in range(links.top[row] + 1):
        while k < links.input_count[row] and links.input_levels[row, k] == level:
            ready = min(ready, links.heard_round[row, k])
            k += 1
        while o < links.output_count[row] and links.output_levels[row, o] == level:
            if links.sent_round[row, o] < ready:
                if not is_fresh:
                    compute_minima(links, group, row)
                    is_fresh = True
                send_minimum(links, row, mail, o, ready)
            o += 1
    return ready


@linked
def ask(links, group, row, mail, k, number, own):
    """Ask input k for its minimum of a round, and repeat what it may lack; `own` is the newest round begun here."""
    slot = draft(mail, ASK, number, links.sizes[ASK])
    mail.heads[slot].field_1 = links.view_seen[row]
    o = output_to(links, row, links.inputs[row, k])
    ready = np.int64(0) if o < 0 else round_ready(links, row, own, links.output_levels[row, o])
    mail.heads[slot].field_2 = ready
    mail.heads[slot].sequence = links.heard_round[row, k]
    if ready > 0:
        compute_minima(links, group, row)
        copy_numbers(mail.numbers[slot, : links.heard.shape[2]], links.minimum[links.output_levels[row, o]])
    else:
        for j in range(links.heard.shape[2]):
            mail.numbers[slot, j] = 0
    send(mail, slot, links.inputs[row, k])


@linked
def ask_missing(links, group, row, mail, number):
    """Ask all inputs that have not been heard for a round."""
    for k in range(links.input_count[row]):
        if links.heard_round[row, k] < number:
            ask(links, group, row, mail, k, number, number)


@linked
def answer(links, group, row, mail, slot, own, is_lossy):
    """Send to an output again if it is ready for the requested round; `own` is the newest round begun here.

    If messages can be lost, a member that asks for the newest round may lack earlier ones too, and so may others.
    """
    k = output_to(links, row, mail.heads[slot].source)
    if k >= 0:
        ready = round_ready(links, row, own, links.output_levels[row, k])
        if ready >= mail.heads[slot].round_number or (is_lossy and ready > mail.heads[slot].sequence):
            compute_minima(links, group, row)
            send_minimum(links, row, mail, k, ready)


@linked
def minimum_round_of(mail, slot):
    """The round of the minimum that a message carries; 0 for an ASK without one."""
    return mail.heads[slot].round_number if mail.heads[slot].kind == MINIMUM else mail.heads[slot].field_2


@linked
def is_unstable(group, row):
    """Does this member hold a message that it does not know to be stable?

    With the goal errors (`protocol.group.ERRORS`) always: a member cannot know of messages it has not heard of.
    """
    if group.goal != STABILITY:
        return True
    for j in range(group.received.shape[1]):
        if group.stable[row, j] < group.received[row, j] != NOTHING:
            return True
    return False


@linked
def view_of(mail, slot):
    """The view in which a message was sent."""
    return mail.heads[slot].field_1


@linked
def linger_of(mail, slot):
    """The lingering time in a message: how long a reporting child waited, or how long a parent asks it to wait."""
    return mail.heads[slot].field_2
