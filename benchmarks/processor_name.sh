#!/usr/bin/env bash
# Prints the processor's name, family and model, for lines of results.
awk -F '[ \t]*: ' '
  $1 ~ /^(model name|cpu family|model)$/ { field[$1] = $2 }
  /^$/ { exit }
  END { print field["model name"] ", family " field["cpu family"] ", model " field["model"] }' /proc/cpuinfo
