"""Groups under churn, measured: the same seed gives the same figures, and the figures say what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubecast.cli.app import run as run_command
from cubecast.core.membership import MemberId, founding_view
from cubecast.core.membership.messages import Accept, Data, Decide, Flush, Message, Prepare, Promise, Proposal, Status
from cubecast.core.membership.views import View, next_view
from cubecast.errors import LocalProtocolError
from cubecast.sim.churn.figures import stable_times_ns, waits_ns
from cubecast.sim.churn.history import Row
from cubecast.sim.churn.measured import ChurnScenario, run_churn
from cubecast.sim.churn.octets import PAYLOAD_BYTES, octets_of
from cubecast.sim.churn.pictures import save_study
from cubecast.sim.churn.rates import run_study
from cubecast.wire.membership import encode_message

SMALL = ChurnScenario(members=6, churn=2.0, seconds=4.0, seed=3)


def test_a_run_under_churn_settles_keeps_every_promise_and_is_repeated_by_its_seed() -> None:
    result = run_churn(SMALL)
    assert result == run_churn(SMALL)
    assert result.broken == ()
    assert result.settled
    assert 0 < result.views <= result.changes
    assert 0 < result.pause_median_ms <= result.pause_p99_ms
    assert result.links_changed_per_view > 0


def test_without_churn_nothing_pauses_and_messages_become_stable_within_two_rounds() -> None:
    result = run_churn(ChurnScenario(members=6, churn=0.0, seconds=3.0))
    assert (result.changes, result.views, result.pause_p99_ms, result.paused_share) == (0, 0, 0.0, 0.0)
    assert 0 < result.stable_median_ms <= result.stable_p99_ms < 3 * 100 + 4 * 20
    assert result.control_messages_per_member_s == pytest.approx(5 * 10, rel=0.05)  # five others, ten ticks


def test_control_messages_of_a_large_group_grow_with_the_dimension_of_the_cube() -> None:
    result = run_churn(ChurnScenario(members=64, churn=0.0, seconds=1.0, messages_per_second=0.0))
    assert result.control_messages_per_member_s == pytest.approx(6 * 10, rel=0.1)


def test_times_are_read_from_the_history() -> None:
    me = MemberId(0, 1)
    view = founding_view([me, MemberId(1, 1)])
    after = next_view(view, set(view.members), [])
    history = [
        Row(0, me, "install", view),
        Row(5, me, "multicast", 1),
        Row(9, me, "sent", (1, 1, 1)),
        Row(10, me, "multicast", 2),
        Row(10, me, "sent", (1, 2, 2)),
        Row(30, me, "stable", (1, (1, 0))),
        Row(50, me, "install", after),
    ]
    assert waits_ns(history) == [4, 0]
    assert stable_times_ns(history) == [21, 40]


def _messages(members: int) -> list[Message]:
    everybody = tuple(MemberId(f"10.20.30.{rank:02}:7000", 1) for rank in range(members))
    view = View(2, everybody, everybody[:1], tuple((who.name, 1) for who in everybody))
    vector = (7,) * members
    close = tuple(range(300, 300 + members))
    far = (0, 70_000, *range(members - 2))
    sparse = (*vector[:-1], 1000)
    aged = ((everybody[0], 5), (everybody[1], 6))
    proposal = Proposal(view, close)
    return [
        Data(2, 1, 3, close, bytes(PAYLOAD_BYTES)),
        Status(2, vector, 9, 3, vector, vector, vector, (), everybody[:2], (), (), (), 3, False),
        Status(2, close, 9, 1 << members - 1, far, sparse, vector, sparse, (), aged, aged[:1], everybody[:1], 0, True),
        Prepare(2, (1, 0)),
        Promise(2, (1, 0), vector, (1, 0), proposal, True, False),
        Promise(2, (1, 0), vector, (1, 0), None, True, False),
        Flush(2, (1, 0), vector, everybody),
        Accept(2, (1, 0), proposal),
        Decide(2, proposal),
    ]


@pytest.mark.parametrize("message", _messages(40), ids=lambda message: type(message).__name__)
def test_bytes_are_counted_as_the_wire_writes_them(message: Message) -> None:
    assert octets_of(message) == len(encode_message(message))


def test_a_study_goes_on_from_its_log_and_is_drawn(tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    first = run_study(members=[4], churn=[0.0, 2.0], seconds=2.0, log=log)
    assert len(log.read_text().splitlines()) == 2
    again = run_study(members=[4, 5], churn=[0.0, 2.0], seconds=2.0, log=log)
    assert again.results[:2] == first.results
    assert len(log.read_text().splitlines()) == 4
    page = save_study(again, tmp_path / "churn.html").read_text()
    assert "Pause of a view change" in page
    assert len(again.rows()) == 4


def test_the_commands_measure_and_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "membership", "-n", "4", "--churn", "1", "--until-ms", "2000", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["scenario"]["seconds"] == 2.0
    assert said["broken"] == []
    assert run_command(["churn-study", "-n", "3", "--churn", "1", "--seconds", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
    for line, complaint in {
        "simulate coord -n 4 --churn 1": "its members are fixed",
        "simulate membership -n 4": "without --churn",
        "simulate membership -n 4 --churn 1 --network star": "--network with membership",
        "churn-study -n ten": "--members ten",
    }.items():
        assert run_command(line.split()) != 0
        assert complaint in capsys.readouterr().err


def test_what_cannot_be_measured_is_refused() -> None:
    for wrong in ({"members": 1}, {"churn": -1.0}, {"loss": 1.0}, {"seconds": 0.0}):
        with pytest.raises(LocalProtocolError, match=next(iter(wrong))):
            ChurnScenario(**({"members": 4, "churn": 1.0} | wrong))
