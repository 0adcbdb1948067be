"""A Dockerfile without Docker: its instructions in folders that serve as root file systems.

A stage is a folder. The programs and libraries of this machine are mounted into it read-only, and the Python that runs
the tests at /usr/local, where the official images have theirs. So the base image itself is not tested; everything that
is built on it is. A command runs as process 1 of its own process namespace. This needs root and Linux.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_ENTER = """
set -eu
root=$1 python=$2; shift 2
for name in usr bin sbin lib lib64; do
    if [ -L "/$name" ]; then cp -a "/$name" "$root/" 2>/dev/null || :; continue; fi
    [ -d "/$name" ] || continue
    mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; mount -o remount,bind,ro "$root/$name"
done
mkdir -p "$root$python"  # its libraries are looked for where it was installed
for place in "$root/usr/local" "$root$python"; do
    mount --bind "$python" "$place"; mount -o remount,bind,ro "$place"
done
mkdir -p "$root/proc" "$root/dev"; mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
exec chroot "$@"
"""
_ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "login.defs", "nsswitch.conf", "hosts")


def is_possible() -> bool:
    """Can this machine mount file systems in a namespace of its own?"""
    if sys.platform != "linux" or os.geteuid() != 0 or not (Path(sys.base_prefix) / "bin" / "python").exists():
        return False
    if not all(map(shutil.which, ("unshare", "chroot", "mount", "useradd"))):
        return False
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "x", "/mnt"], check=False)
    return tried.returncode == 0


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, without comments and continued lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


@dataclass
class Image:
    """What the instructions of one stage have made."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin"})
    user: str = "0"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    signal: str = "SIGTERM"
    ports: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """Make the folders that every image has."""
        (self.root / "etc").mkdir(parents=True)
        for name in _ACCOUNTS:
            if (Path("/etc") / name).exists():
                shutil.copy(Path("/etc") / name, self.root / "etc" / name)
        (self.root / "tmp").mkdir()
        (self.root / "tmp").chmod(0o1777)

    def start(self, command: list[str], output: IO[Any] | int) -> subprocess.Popen[bytes]:
        """A command in it, as process 1, as the user and in the folder of the image."""
        entries = [line.split(":") for line in (self.root / "etc/passwd").read_text("utf-8").splitlines()]
        _, _, uid, gid, _, home, _ = next(entry for entry in entries if self.user in (entry[0], entry[2]))
        inside = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        variables = [f"{name}={value}" for name, value in {**self.environment, "HOME": home}.items()]
        enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _ENTER, "enter"]
        chroot = [f"--userspec={uid}:{gid}", "--groups=", str(self.root)]
        return subprocess.Popen(
            [*enter, str(self.root), sys.base_prefix, *chroot, "/usr/bin/env", "-i", *variables, "sh", "-c", inside],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def run(self, command: list[str]) -> tuple[int, str]:
        """The exit status and the output of a command in it."""
        process = self.start(command, subprocess.PIPE)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output.decode()


def build(dockerfile: Path, context: Path, folder: Path, packages: Path) -> Image:
    """Carry out the instructions of a Dockerfile; returns its last stage. Its RUN instructions find those packages."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/packages"}
    stages: dict[str, Image] = {}
    image = Image(folder)
    for word, rest in instructions(dockerfile.read_text("utf-8")):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            assert re.fullmatch(r"python:3\.\d+-slim", base), base
            image = stages[name] = Image(folder / (name or "last"))
            image.prepare()
            shutil.copytree(packages, image.root / "packages", copy_function=os.link)
        elif word == "COPY":
            _copy(rest.split(), image, stages, context)
        elif word == "RUN":
            outer, image.environment = image.environment, {**image.environment, **pip}
            status, output = image.run(["/bin/sh", "-c", rest])
            assert status == 0, f"RUN {rest}\n{output}"
            image.environment = outer
        else:
            _configure(image, word, rest)
    return image


def _copy(words: list[str], image: Image, stages: dict[str, Image], context: Path) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].root
    *names, target = words
    for name in names:
        place, to = source / name.lstrip("/"), image.root / target.lstrip("/")
        if place.is_dir():
            shutil.copytree(place, to, symlinks=True, dirs_exist_ok=True)
        else:
            assert target.endswith("/"), "several files are copied into a folder"
            to.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, to)


def _configure(image: Image, word: str, rest: str) -> None:
    if word == "ENV":
        for name, value in (one.split("=", 1) for one in shlex.split(rest)):
            image.environment[name] = re.sub(r"\$(\w+)", lambda found: image.environment[found[1]], value)
    elif word == "USER":
        image.user = rest
    elif word == "WORKDIR":
        image.folder = rest
        (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "EXPOSE":
        image.ports = rest.split()
    elif word == "STOPSIGNAL":
        image.signal = rest
    elif word in ("ENTRYPOINT", "CMD"):
        setattr(image, {"ENTRYPOINT": "entrypoint", "CMD": "command"}[word], json.loads(rest))
    else:
        raise AssertionError(f"this instruction is not known here: {word}")
