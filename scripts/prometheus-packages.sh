#!/usr/bin/env bash
# Debian's Prometheus, which the test of the dashboard asks (docs/internals/testing.md).
set -euo pipefail

command -v prometheus >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "[prometheus] missing: install it (Debian: apt-get install --no-install-recommends prometheus)" >&2
    exit 1
fi
echo "[prometheus] installing (apt-get)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends prometheus >/dev/null
