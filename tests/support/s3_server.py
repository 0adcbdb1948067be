"""A real S3 server on loopback, for tests: s3rver (scripts/install-s3.sh), in a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import wait_for_port

START_S_MAX = 60
SERVER = Path(
    os.environ.get("CUBECAST_S3RVER")
    or Path(__file__).parents[2] / ".venv" / "s3" / "node_modules" / "s3rver" / "bin" / "s3rver.js"
)
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "S3RVER",
    "AWS_SECRET_ACCESS_KEY": "S3RVER",
    "AWS_EC2_METADATA_DISABLED": "true",
    # This server is older than checksums behind the content.
    "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "WHEN_REQUIRED",
}


@contextmanager
def s3_bucket(folder: Path) -> Iterator[str]:
    """A server with an empty bucket; gives the address of a place in it, to which words may be added before the `?`."""
    node = shutil.which("node")
    if node is None or not SERVER.is_file():
        pytest.skip("no S3 server: sh scripts/install-s3.sh")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    words = [
        node,
        "--openssl-legacy-provider",
        str(SERVER),
        "-d",
        str(folder / "data"),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen([*words, "--configure-bucket", "lab"], stdout=log, stderr=log)
    try:
        wait_for_port(port, "S3 server", START_S_MAX)
        options = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"}
        yield "s3a://lab{}?" + "&".join(f"{name}={value}" for name, value in options.items())
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def own_bucket(folder: Path) -> Iterator[str]:
    """The same, with its credentials in the environment of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with s3_bucket(folder) as address:
            yield address
