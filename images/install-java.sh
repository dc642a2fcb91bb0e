#!/bin/sh
# The Java that Spark 4.3 runs on.
set -eu

export DEBIAN_FRONTEND=noninteractive
mkdir -p /usr/share/man/man1  # the package's scripts expect it
apt-get update -qq
apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /usr/share/doc /usr/share/man /usr/share/locale
