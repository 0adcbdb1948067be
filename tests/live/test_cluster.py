"""Members as pods: the script of deploy/statefulset.yaml in network namespaces, with a DNS server of our own.

A *pod* is a process in a namespace. It has a name that stays and an address that changes with the namespace. The names
come from `/etc/resolv.conf`, which `ip netns exec` replaces by the one of the namespace, as a container engine does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cubecast.live.keys import init, issue
from tests.live.bad_network import BadNetwork, inside, is_possible
from tests.live.cast import ROOT
from tests.live.dns_server import SRV, A, DnsServer

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux" or not is_possible(), reason="namespaces need root and Linux"),
]

DOMAIN = "orders.shop.svc.cluster.local"
SERVICE = f"_cubecast._tcp.{DOMAIN}"
STATUS = "http://127.0.0.1:9001"
WAIT_S = 150.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition holds, and return it."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


class Cluster:
    """Namespaces for pods, and one more with the DNS server at port 53."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.network = BadNetwork(nodes + 1)
        self.folder = folder
        self.hosts = [address.rpartition(":")[0] for address in self.network.addresses]
        self.dns = DnsServer()
        self._loop = asyncio.new_event_loop()
        with inside(self.network.names[-1]):
            server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            server.bind((self.hosts[-1], 53))
        self._thread = threading.Thread(target=self._serve, args=(server,), daemon=True)
        self._thread.start()
        for name in self.network.names:
            settings = Path("/etc/netns") / name
            settings.mkdir(parents=True)
            (settings / "resolv.conf").write_text(f"nameserver {self.hosts[-1]}\noptions timeout:1 attempts:2\n")

    def _serve(self, server: socket.socket) -> None:
        self._loop.run_until_complete(self._loop.create_datagram_endpoint(lambda: self.dns, sock=server))
        self._loop.run_forever()

    def close(self) -> None:
        """Take everything down."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        for name in self.network.names:
            shutil.rmtree(Path("/etc/netns") / name)
        self.network.close()


class Pod:
    """One member. It is started again when it fails, as a supervisor does."""

    def __init__(self, cluster: Cluster, name: str, node: int, command: list[str]) -> None:
        self.name, self.node = name, node
        self.log = cluster.folder / f"{name}.log"
        self._cluster = cluster
        self._command = command
        self._is_wanted = True
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "CUBECAST_JIT": "off",
            "HOSTNAME": self.name,
            "NAMESPACE": "shop",
            "PATH": f"{self._cluster.folder}:{os.environ['PATH']}",
        }
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._cluster.network.enter(self.node), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def ask(self, path: str) -> Any:
        """An answer of its status server; None when it gives none."""
        if self._is_wanted and self.process.poll() is not None:
            self.process = self._start()
        with suppress(OSError), inside(self._cluster.network.names[self.node]):
            return json.load(urllib.request.urlopen(STATUS + path, timeout=5))
        return None

    def members(self) -> set[str]:
        """The members of its view; none while it is not in one, or blocked."""
        status = self.ask("/status.json")
        if status is None or status["phase"] != "member" or status["blocked"] or status["changing"]:
            return set()
        return {one["address"] for one in status["members"]}

    def end(self, number: int) -> int:
        """Send a signal, wait, and do not start it again."""
        self._is_wanted = False
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def cluster_of(nodes: int, folder: Path) -> Iterator[Cluster]:
    cubecast = folder / "cubecast"
    cubecast.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from cubecast.cli import main; main()" "$@"\n')
    cubecast.chmod(0o755)
    cluster = Cluster(nodes, folder)
    try:
        yield cluster
    finally:
        cluster.close()


def script(folder: Path) -> str:
    """What a container of the StatefulSet runs, with the folders of this test."""
    text = (ROOT / "deploy" / "statefulset.yaml").read_text("utf-8")
    found = re.search(r"args:\n\s+- \|\n(.*?)\n\s+env:", text, re.DOTALL)
    assert found is not None
    return (
        found[1]
        .replace("/var/lib/cubecast/orders", "$STATE/$HOSTNAME")
        .replace("/keys/", "$STATE/keys/")
        .replace("$STATE", str(folder))
    )


def test_the_stateful_set_forms_grows_moves_a_pod_survives_a_silent_dns_and_ends_during_a_view_change(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys"
    init(keys)
    addresses = {f"orders-{place}": f"orders-{place}.{DOMAIN}:7001" for place in range(4)}
    for name, address in addresses.items():
        issue(keys, address, name=name)
    command = ["sh", "-c", script(tmp_path)]
    with cluster_of(5, tmp_path) as cluster, ExitStack() as stack:
        dns, hosts, pods = cluster.dns, cluster.hosts, {}

        def start(place: int, node: int) -> Pod:
            """Start a pod; the endpoints of the headless service follow."""
            name = f"orders-{place}"
            pod = pods[name] = Pod(cluster, name, node, command)
            stack.callback(pod.process.kill)
            stack.callback(lambda: pod.end(signal.SIGKILL))
            dns.records[f"{name}.{DOMAIN}", A] = [hosts[node]]
            targets = dns.records.get((SERVICE, SRV), [])
            dns.records[SERVICE, SRV] = [*targets, *({(f"{name}.{DOMAIN}", 7001)} - set(targets))]
            return pod

        def agree(*names: str) -> None:
            wanted = {addresses[name] for name in names}
            until(
                lambda: all(pods[name].members() == wanted for name in names),
                f"{names}: " + "".join(pod.log.read_text()[-400:] for pod in pods.values()),
            )

        dns.is_silent = True
        founders = [start(place, place) for place in range(3)]
        until(lambda: dns.questions, "nobody asks")
        time.sleep(2)
        assert not any(pod.members() for pod in founders)
        dns.is_silent = False
        agree("orders-0", "orders-1", "orders-2")

        start(3, 3)  # `kubectl scale --replicas 4`: it joins through the SRV records
        agree("orders-0", "orders-1", "orders-2", "orders-3")
        seen = until(lambda: pods["orders-3"].ask("/group.json"), "no page")
        assert [one["reason"] for one in seen["members"]] == [""] * 4

        assert pods["orders-1"].end(signal.SIGKILL) == -signal.SIGKILL
        start(1, 4)  # on another node: the same name and journal, another address
        agree("orders-0", "orders-1", "orders-2", "orders-3")

        dns.is_silent = True  # a group needs no DNS while its links are up
        time.sleep(4)
        agree("orders-0", "orders-1", "orders-2", "orders-3")
        dns.is_silent = False

        for link in cluster.network.links.values():  # so that the agreement on the next view takes a while
            link.delay_s = 0.5
        pods["orders-3"].end(signal.SIGKILL)
        until(lambda: (pods["orders-2"].ask("/status.json") or {}).get("changing"), "the view does not change")
        assert pods["orders-2"].end(signal.SIGTERM) == 0
        for link in cluster.network.links.values():
            link.delay_s = 0.0
        agree("orders-0", "orders-1")
        for pod in pods.values():
            assert " ERROR " not in pod.log.read_text()


def test_members_find_each_other_by_the_address_records_of_one_name_and_come_back_at_another_address(
    tmp_path: Path,
) -> None:
    with cluster_of(4, tmp_path) as cluster, ExitStack() as stack:
        dns, hosts = cluster.dns, cluster.hosts

        def start(node: int, *way: str) -> Pod:
            at = f"{hosts[node]}:7001"
            options = ["--listen", at, *way, "--plaintext", "--quiet", "--status", "127.0.0.1:9001"]
            command = ["cubecast", "node", "orders", *options, "--join-timeout", "60", "--suspect-after", "3"]
            pod = Pod(cluster, f"node-{node}", node, command)
            stack.callback(lambda: pod.end(signal.SIGKILL))
            return pod

        def agree(*pods: Pod) -> None:
            wanted = {f"{hosts[pod.node]}:7001" for pod in pods}
            until(
                lambda: all(pod.members() == wanted for pod in pods),
                "".join(f"{pod.members()} {pod.log.read_text()[-300:]}" for pod in pods),
            )

        dns.is_silent = True
        founder = start(0, "--found")
        second, third = (start(node, "--contact", "dns://orders.example:7001") for node in (1, 2))
        until(lambda: founder.members(), "no founder")
        until(lambda: "orders.example" in second.log.read_text(), "it says nothing")
        dns.is_silent = False  # an answer, but no record
        time.sleep(1)
        assert not second.members()
        dns.records["orders.example", A] = hosts[:3]
        agree(founder, second, third)

        third.end(signal.SIGKILL)
        dns.records["orders.example", A] = [
            hosts[2],
            hosts[3],
            hosts[1],
        ]  # the old one is still listed, the founder not
        moved = start(3, "--contact", "dns://orders.example:7001")
        agree(founder, second, moved)
