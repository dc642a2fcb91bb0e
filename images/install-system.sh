#!/bin/sh
# Debian's part of both images: Python 3.11, certificates, an init that reaps, the user that everything runs as by default.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 ca-certificates tini procps libnss-extrausers >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /usr/share/doc /usr/share/man /usr/share/locale

# A fixed number, so that `runAsNonRoot` can be checked and a volume's files can belong to it; home is what can be written.
echo 'streamtopology:x:10001:10001:StreamTopology:/tmp:/usr/sbin/nologin' >>/etc/passwd
echo 'streamtopology:x:10001:' >>/etc/group
# A platform may choose another number (OpenShift). Java, and so Hadoop, wants a name for it: the image's command writes one.
sed -i -E 's/^passwd:.*/& extrausers/' /etc/nsswitch.conf
mkdir -p /var/lib/extrausers
ln -sf /tmp/passwd /var/lib/extrausers/passwd
