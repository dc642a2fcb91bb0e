#!/usr/bin/env bash
# Debian's packages that a Kubernetes node of the tests and its images need; Kubernetes itself is built from Go modules (docs/internals/testing.md).
set -euo pipefail

packages=(containerd runc containernetworking-plugins nftables iptables conntrack iproute2 util-linux busybox-static buildah debootstrap)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ "${#missing[@]}" = 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "[node] missing: ${missing[*]}: install them (Debian: apt-get install --no-install-recommends ...)" >&2
    exit 1
fi
echo "[node] installing ${missing[*]} (apt-get)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
