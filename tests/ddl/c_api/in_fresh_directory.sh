#!/usr/bin/env bash
# Runs a command with a fresh directory as an additional argument, and removes the directory.
#   in_fresh_directory.sh COMMAND...
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$@" "$directory"
