#!/usr/bin/env bash
# The Python example learns as well with the library as without, although ranks start from different weights.
#   example_python_test.sh PYTHON EXAMPLE [LAUNCHER...] DIRECTORY
set -euo pipefail
python=$1 example=$2
launcher=("${@:3:$#-3}")

# Prints "yes" if the last epoch's line occurs once, with an accuracy of at least 98%.
learned() { awk '/^epoch 30:/ { lines++; share = $3 } END { if (lines == 1 && share >= 0.98) print "yes"; else print lines " lines, " share }'; }

plain=$("$python" "$example/plain_trainer.py" | learned)
# Each rank seeds its own initial weights, which the broadcast makes equal.
trained=$("${launcher[@]}" bash -c "exec '$python' '$example/ddl_trainer.py' \"\${OMPI_COMM_WORLD_RANK:-0}1\"" | learned)
[ "$plain" = yes ] && [ "$trained" = yes ] && exit 0
echo "FAILED: plain $plain; with the library $trained"
exit 1
