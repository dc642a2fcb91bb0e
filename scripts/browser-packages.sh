#!/usr/bin/env bash
# Debian's Chromium, which the tests of the page drive (docs/internals/testing.md).
set -euo pipefail

command -v chromium >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "[browser] missing: chromium: install it (Debian: apt-get install --no-install-recommends chromium)" >&2
    exit 1
fi
echo "[browser] installing chromium (apt-get)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium >/dev/null
