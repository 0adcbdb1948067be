"""Groups that change: views agreed by a majority, virtual synchrony, late join (guo §2.2.1, §3.2, §4.1; causal §7).

The core has no I/O: `Member` takes messages, ticks and calls of the application, and gives back actions. It is plain
Python, not compiled: a view changes seldom, and what it handles (views, proposals, stores of messages) has no fixed
size. `docs/membership.md` says what holds.

| module        | one idea                                                              |
|---------------|-----------------------------------------------------------------------|
| `views`       | identities, views, quorums, ranks that stay                           |
| `messages`    | what members say to each other, and what a core asks its driver to do |
| `channel`     | reliable causal multicast within one view                             |
| `neighbours`  | whom a member talks to every tick                                     |
| `rumours`     | what is true for a while, told from neighbour to neighbour            |
| `rounds`      | which messages are stable                                             |
| `watch`       | who is silent, and how many members say so                            |
| `accept`      | a member's part in agreeing on the next view: promise, flush, accept  |
| `propose`     | a coordinator's part: gather promises, flush, decide                  |
| `agreement`   | when to change the view, and whom to follow                           |
| `transfer`    | the state of the application for those who join late                  |
| `records`     | what a member writes down to go on after a crash in the same life     |
| `durable`     | the state that the records stand for                                  |
| `application` | what a member owes its application: messages, state, restart          |
| `talk`        | what a member tells its neighbours every tick                         |
| `member`      | all of it together                                                    |
"""

from cubecast.core.membership.durable import Durable, fold
from cubecast.core.membership.member import Member
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, View, founding_view, has_quorum

__all__ = ["Durable", "Member", "MemberId", "MembershipSettings", "View", "fold", "founding_view", "has_quorum"]
