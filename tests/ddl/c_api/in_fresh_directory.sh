#!/usr/bin/env bash
# Runs a command with a fresh directory as one more argument, and removes that.
#   in_fresh_directory.sh COMMAND...
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$@" "$directory"
