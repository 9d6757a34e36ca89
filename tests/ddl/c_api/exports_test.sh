#!/bin/bash
# exports_test.sh LIBRARY: a program's own symbols must not meet others than those that ddl.h declares.
others=$(nm -D --defined-only "$1" | awk '$3 !~ /^ddl_/') || exit 1
[ -z "$others" ] || { echo "$1 exports more than ddl_...: $others"; exit 1; }
nm -D --defined-only "$1" | grep -q ' ddl_reducer_create$' || { echo "$1 does not export ddl_reducer_create"; exit 1; }
