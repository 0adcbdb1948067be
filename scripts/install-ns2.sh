#!/bin/sh
# Puts Debian's ns-2 on the machine for the side-by-side benchmark, or says how to.
set -eu

command -v ns >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "==> Installing ns2"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends ns2 >/dev/null && exit 0
fi
echo "make bench-peers: ns-2 is missing and needs root to install; on Debian or Ubuntu: sudo apt-get install ns2" >&2
exit 1
