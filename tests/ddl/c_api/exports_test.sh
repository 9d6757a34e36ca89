#!/bin/bash
# exports_test.sh LIBRARY: other symbols than those of ddl.h could collide with a program's own.
others=$(nm -D --defined-only "$1" | awk '$3 !~ /^ddl_/') || exit 1
[ -z "$others" ] || { echo "$1 exports more than ddl_...: $others"; exit 1; }
nm -D --defined-only "$1" | grep -q ' ddl_reducer_create$' || { echo "$1 does not export ddl_reducer_create"; exit 1; }
