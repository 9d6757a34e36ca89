#!/usr/bin/env bash
# The trainer of ddl/examples whose gradients are one block has the plain one's result: arguments as job.sh's.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"
same_training
echo passed
