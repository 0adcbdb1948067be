#!/bin/sh
# Puts the peers of the live benchmark on the machine: JGroups with a Java compiler, and NATS with its Python client.
# The client lives beside the project's packages, not among them.
set -eu

peers=.venv/peers
jar=/usr/share/java/jgroups.jar

missing=""
[ -e "$jar" ] || missing="libjgroups-java"
command -v javac >/dev/null 2>&1 || missing="$missing openjdk-17-jdk-headless"
[ -x /usr/sbin/nats-server ] || command -v nats-server >/dev/null 2>&1 || missing="$missing nats-server"
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "the peers of the live benchmark are missing; on Debian or Ubuntu: sudo apt-get install $missing" >&2
        exit 1
    fi
    echo "==> Installing $missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # one word a package
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
if ! "$peers/bin/python" -c "import nats, uvloop" 2>/dev/null; then
    echo "==> Installing nats-py"
    .venv/bin/python -m venv "$peers"
    "$peers/bin/python" -m pip install -qq --disable-pip-version-check "nats-py>=2.9,<3" "uvloop>=0.21"
fi
mkdir -p .venv/peers/classes
javac -cp "$jar" -d .venv/peers/classes bench/live/peers/JGroupsMember.java
