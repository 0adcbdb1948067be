"""Operator actions for a group that cannot recover automatically after all faults have ended.

| problem                                            | action                                                    |
|----------------------------------------------------|-----------------------------------------------------------|
| the missing members of the last view are gone      | `force()` at one of those left, later at all of them      |
| no process is in a view, or none has the state     | one machine founds the group anew, the others join it     |
| founders that lost their journals founded it twice | the smaller group is erased, its machines join the larger |
| all contacts of a process are gone                 | it is restarted with other contacts                       |

Every action is an event, so that the judge knows which guarantees still apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cubecast.fuzz.agenda import MS, SECOND
from cubecast.fuzz.process import Process
from cubecast.fuzz.world import FuzzWorld
from cubecast.protocols.membership.views import View, has_quorum

PATIENCE_NS = 600 * MS
"""How long a group may look lost before the first action, and between two actions."""
STEPS_MAX = 6


class Operator:
    """Watches one history."""

    def __init__(self, world: FuzzWorld) -> None:
        """The group is not lost yet."""
        self._world = world
        self._began_ns = world.agenda.now_ns
        self._lost_ns = -1
        self._steps = 0

    @property
    def has_given_up(self) -> bool:
        """Were all actions tried?"""
        return self._steps > STEPS_MAX

    def act(self) -> None:
        """Take the action that is due, if any."""
        now_ns = self._world.agenda.now_ns
        if not is_lost(self._world):
            self._lost_ns = -1
            if now_ns - self._began_ns > 4 * SECOND:
                self._give_contacts()
            return
        if self._lost_ns < 0:
            self._lost_ns = now_ns
        if now_ns - self._lost_ns >= PATIENCE_NS:
            self._lost_ns = now_ns
            self._steps += 1
            self._act()

    def _act(self) -> None:
        placed = _placed(self._world)
        if len({process.member.view.group_id for process in placed}) > 1:
            self._keep_one_group(placed)
        elif not any(process.member.is_ready for process in placed) or self._steps >= STEPS_MAX:
            self._found_anew()
        else:
            self._force(_in_last_view(placed))

    def _force(self, left: list[Process]) -> None:
        """Declare the reachable members to be enough."""
        chosen = left if self._steps > 1 else [self._world.draw.choice(left)]
        for process in chosen:
            self._world.note(process, "force", process.member.view)
            process.call(process.member.force)

    def _keep_one_group(self, placed: list[Process]) -> None:
        size = {process.member.view.group_id: 0 for process in placed}
        for process in placed:
            size[process.member.view.group_id] += process.member.is_ready
        kept = max(size, key=lambda group_id: (size[group_id], group_id))
        self._erase(process for process in placed if process.member.view.group_id != kept)

    def _found_anew(self) -> None:
        """The old group is gone, or unusable: found it anew."""
        world = self._world
        joining = [process for process in world.living() if process.member.phase == "joining"]
        self._erase(process for process in world.living() if process not in joining or process is joining[0])
        idle = [machine for _, machine in sorted(world.machines.items()) if machine.process is None]
        first = next((machine for machine in idle if machine.is_wanted), None)
        if first is not None:
            world.start(first, "found")

    def _erase(self, processes: Iterable[Process]) -> None:
        """Restart these processes with an empty disk; they do not found a group."""
        for process in list(processes):
            process.die("operator")
            process.machine.disk.erase()
        for machine in self._world.machines.values():
            machine.founders = ()

    def _give_contacts(self) -> None:
        """A process whose contacts are all gone cannot find the group by itself: restart it with other contacts.

        A member whose view is past contacts the members of that view.
        """
        reached = {process.name for process in _in_last_view(_placed(self._world)) if process.member.is_ready}
        for process in self._world.living():
            member = process.member
            is_placed = member.view is not None and member.me in member.view.members
            asked = {who.name for who in member.view.members} if is_placed else set()
            known = asked or {*(member.founders if member.phase == "forming" else member.contacts)}
            if process.name not in reached and reached and not known & reached:
                process.die("rescue", False)
                process.machine.founders = ()
                if is_placed or member.phase == "forming":
                    process.machine.disk.erase()


def _placed(world: FuzzWorld) -> list[Process]:
    """Processes that are in a view."""
    return [
        process
        for process in world.living()
        if process.member.view is not None and process.member.me in process.member.view.members
    ]


def _in_last_view(placed: list[Process]) -> list[Process]:
    last = max((process.member.view.number for process in placed), default=0)
    return [process for process in placed if process.member.view.number == last]


def is_lost(world: FuzzWorld) -> bool:
    """Can the group not continue, because too few members of its last view are left, or none with the state?"""
    members = [process.member for process in world.living()]
    if not members:
        return False  # all have left, or were given up
    placed = [process.member for process in _placed(world)]
    if not placed:
        return True
    if len({member.view.group_id for member in placed}) > 1:
        return True  # founders that lost their journals founded another group
    last = max(member.view.number for member in placed)
    views: set[View] = {member.view for member in placed if member.view.number == last}
    return not any(_may_continue(view, members, world.settings.quorum) for view in views)


def _may_continue(view: View, members: list[Any], quorum: str) -> bool:
    present = {member.me for member in members if member.me in view.members}
    has_state = any(member.is_ready for member in members if member.view == view and member.me in view.members)
    return has_state and has_quorum(view.members, present, quorum)
