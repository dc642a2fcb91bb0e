#!/usr/bin/env bash
# Debian's PostgreSQL, into which the test of a recipe writes (docs/internals/testing.md).
set -euo pipefail

ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "[postgres] missing: install it (Debian: apt-get install --no-install-recommends postgresql)" >&2
    exit 1
fi
echo "[postgres] installing (apt-get)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql >/dev/null
