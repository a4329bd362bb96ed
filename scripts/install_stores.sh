#!/bin/sh
# Installs stores that are npm packages into a directory, and says in a line each what can't be had and how to get it.
# What is missing is skipped by the tests. Usage: install_stores.sh DIRECTORY
set -eu
directory=$1
azurite=azurite@3.35.0 # later ones need Node 22
s3rver=s3rver@3.7.1
installed="$directory/$azurite-$s3rver"
if ! command -v npm >/dev/null; then
  echo "npm is not there, so Azurite and s3rver are left out: apt-get install npm" >&2
elif [ ! -e "$installed" ]; then
  mkdir -p "$directory"
  echo "Installing $azurite and $s3rver in $directory."
  AZURE_CORE_COLLECT_TELEMETRY=0 DO_NOT_TRACK=1 npm install --prefix "$directory" --silent --no-audit --no-fund \
    --no-update-notifier "$azurite" "$s3rver"
  touch "$installed"
fi
if ! PATH="${CEPH_ROOT:-}/usr/bin:${CEPH_ROOT:-}/usr/sbin:$PATH" command -v radosgw >/dev/null; then
  echo "radosgw is not there, so Ceph is left out:" \
    "apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common radosgw" >&2
fi
