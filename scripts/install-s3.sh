#!/bin/sh
# Puts an S3 server (s3rver, of npm) beside the project's packages, for the tests of object stores. It is not started here.
set -eu

place=.venv/s3
[ -f "$place/node_modules/s3rver/bin/s3rver.js" ] && exit 0
if ! command -v npm >/dev/null 2>&1; then
    echo "npm is missing, so the tests of object stores are left out; on Debian or Ubuntu: sudo apt-get install npm" >&2
    exit 0
fi
echo "==> Installing s3rver"
mkdir -p "$place"
npm install --silent --no-audit --no-fund --prefix "$place" s3rver@3.7.1 >/dev/null
