"""What a member knows of the paths to others, and the advice that follows from it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from cubecast.cli.app import run as run_command
from cubecast.live.local import free_addresses
from cubecast.live.path_quality import path_quality
from cubecast.live.status import StatusServer
from tests.live.members import groups_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked")]


def test_a_closed_connection_has_no_quality() -> None:
    import socket

    assert path_quality(None) is None
    one, other = socket.socketpair()
    assert path_quality(one) is None  # not TCP
    one.close()
    other.close()


def test_a_running_member_says_what_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> int:
        (address,) = free_addresses(1)
        async with groups_of(3, stability="coord", round_every_s=0.2) as groups, StatusServer(groups[0], address):
            for _ in range(60):
                for group in groups[:2]:
                    await group.multicast(bytes(100))
                await asyncio.sleep(0.05)
            links = [one["link"] for one in groups[0].status()["members"] if one["link"] is not None]
            assert len(links) == 2
            assert all(0 < link["rtt_ms"] < 1000 and link["segments"] > 0 for link in links)
            words = ["advise", "--from", address, "--protocols", "coord,s_coord", "--out", str(tmp_path), "--json"]
            return await asyncio.to_thread(run_command, words)

    assert asyncio.run(run()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["asked"]["members"] == 3
    assert answer["asked"]["senders"] == 2
    assert 5 < answer["asked"]["rate"] < 60
    assert 90 <= answer["asked"]["payload_bytes"] <= 200
    assert answer["current"]["protocol"] == "coord"
    assert answer["current"]["delta_ms"] == 200
    assert answer["best"]["time_to_stable_ms"] < answer["current"]["time_to_stable_ms"]
    assert answer["best"]["placement"] is None
