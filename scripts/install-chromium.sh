#!/bin/sh
# Finds a Chromium for the tests that look at pages, or installs Debian's where that is possible.
set -eu

found() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

if found; then
    exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "==> Installing Chromium to test pages with"
    apt-get install -y -qq chromium >/dev/null 2>&1 || {
        apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq chromium >/dev/null 2>&1
    } || true
fi
found || echo "no Chromium here: the tests of pages are left out" >&2
