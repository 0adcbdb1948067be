"""Scenes in which a stamped tree must repair itself, played step by step on the square 0–1–3–2–0; only 0 sends."""

from __future__ import annotations

from collections.abc import Callable

from tests.property.causal_adversary import Adversary, BrokenPromiseError

ANNOUNCE_NS = 20_000_000
PATIENCE_NS = 2 * ANNOUNCE_NS


def square(protocol: str) -> Adversary:
    """The first message flooded: 3 gets those of 0 from 1, and 2 does not push them to it."""
    talk = Adversary(protocol, members=4, senders=1)
    talk.let_publish(0)
    talk.let_everything_arrive()
    return talk


def stays_away(protocol: str) -> Adversary:
    """The second message is in transit from 1 to 3, which has requested it from 2 meanwhile."""
    talk = square(protocol)
    talk.let_publish(0)
    talk.flow(0, 1)
    talk.flow(0, 2)
    talk.pass_time(ANNOUNCE_NS)
    talk.flow(2, 3)
    talk.pass_time(PATIENCE_NS)
    return talk


def the_provider_dies(protocol: str) -> None:
    """3 gets from 2 what was lost with 1, without a report of the crash of 1."""
    talk = stays_away(protocol)
    talk.kill(1)
    reports, talk.unreported = talk.unreported, []
    talk.let_everything_arrive()
    talk.judge_the_end()
    talk.unreported = reports
    talk.let_publish(0)
    talk.let_everything_arrive()
    talk.judge_the_end()


def the_provider_and_the_one_asked_die(protocol: str) -> None:
    """Both neighbours of 3 crash: it links to 0, and requests again."""
    talk = stays_away(protocol)
    talk.kill(1)
    talk.kill(2)
    talk.let_everything_arrive()
    talk.judge_the_end()
    talk.let_publish(0)
    talk.let_everything_arrive()
    talk.judge_the_end()


def freed_before_the_wish_arrives(protocol: str) -> None:
    """3 gets the message from 1 after all; 2 learns that it is stable, frees it, and then receives the request."""
    talk = stays_away(protocol)
    talk.flow(1, 3)
    talk.let_settle(2)
    talk.flow(3, 2)
    talk.let_everything_arrive()
    talk.judge_the_end()


SCENES = (the_provider_dies, the_provider_and_the_one_asked_die, freed_before_the_wish_arrives)


def broken_in(scene: Callable[[str], None], protocol: str) -> str:
    """What the protocol breaks in a scene, if anything."""
    try:
        scene(protocol)
    except BrokenPromiseError as broken:
        return str(broken)
    return ""
