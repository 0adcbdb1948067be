#!/bin/sh
# Finds a Java that Spark can run on, or installs Debian's where that is possible; otherwise says what to do.
set -eu

usable() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    modules=$("$java" --list-modules 2>/dev/null) || return 1
    echo "$modules" | grep -Eq '^java\.base@(17|21)' && echo "$modules" | grep -q '^jdk\.incubator\.vector@'
}

if usable; then
    exit 0
fi
if [ -z "${JAVA_HOME:-}" ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "==> Installing Java 17 for Spark"
    apt-get install -y -qq openjdk-17-jre-headless >/dev/null 2>&1 || {
        apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq openjdk-17-jre-headless >/dev/null 2>&1
    } || true
    if usable; then
        exit 0
    fi
fi
echo "Spark needs Java 17 or 21 with jdk.incubator.vector: install it (Debian: openjdk-17-jre-headless)" \
    "or set JAVA_HOME to one" >&2
exit 1
