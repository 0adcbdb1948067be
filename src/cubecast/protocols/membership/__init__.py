"""Agreement on views (guo §2.2.1, §3.2; causal §7): Paxos decides the members of each view, one decree per view.

Plain Python, not compiled: views change seldom, and views and proposals have no fixed size. Messages go in and come out
as objects; `cubecast.member` encodes them.

| module      | one idea                                                              |
|-------------|-----------------------------------------------------------------------|
| `views`     | identities, views, quorums, stable ranks                              |
| `messages`  | the messages that members exchange                                    |
| `relative`  | a proposal as a change of the view that it succeeds                   |
| `accept`    | a member's part in agreeing on the next view: promise, flush, accept  |
| `propose`   | a coordinator's part: gather promises, flush, decide                  |
| `agreement` | when to change the view, and which coordinator to follow              |
| `records`   | what a member writes to its journal                                   |
| `settings`  | times and quorum                                                      |
"""

from cubecast.protocols.membership.settings import MembershipSettings
from cubecast.protocols.membership.views import (
    MemberId,
    View,
    ViewId,
    founding_view,
    has_quorum,
)

__all__ = ["MemberId", "MembershipSettings", "View", "ViewId", "founding_view", "has_quorum"]
