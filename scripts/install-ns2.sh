#!/bin/sh
# Puts Debian's ns-2 on the machine for the side-by-side benchmark, or says how to; the other peers run without it.
set -eu

command -v ns >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "==> Installing ns2"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends ns2 >/dev/null && exit 0
fi
echo "==> ns-2 is missing and will be left out; on Debian or Ubuntu: sudo apt-get install ns2" >&2
