#!/bin/sh
# Puts redis-server on the machine, the peer of the bus's benchmark. It is not started here.
set -eu

command -v redis-server >/dev/null 2>&1 && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "redis-server is missing; on Debian or Ubuntu: sudo apt-get install redis-server" >&2
    exit 1
fi
echo "==> Installing redis-server"
apt-get update -qq
apt-get install -y -qq --no-install-recommends redis-server >/dev/null
