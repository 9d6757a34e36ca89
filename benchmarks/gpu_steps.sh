# Runs gpu.sh's steps in sequence, within the budget, and keeps their results. Sourced by gpu.sh, which sets out (the
# directory for results), archive, budget, devices and temporary.
failed=0 unfinished=() current='' mps=''

# Ends processes of any group or session that were started with a variable.
end_processes() { # NAME=value
  local environment process
  for environment in /proc/[0-9]*/environ; do
    process=${environment//[!0-9]/}
    if [ "$process" != $$ ] && grep -qzxF -- "$1" "$environment" 2>/dev/null; then kill -KILL "$process" 2>/dev/null; fi
  done
}

row() { # name, result, seconds or a reason
  printf '%-32s %-12s %s\n' "$1" "$2" "$3" | tee -a "$out/steps.txt"
}
left_out() { # name, why
  row "$1" "left out" "$2"
}

# Shortens a long file to its beginning and end.
shorten() {
  local bytes
  bytes=$(stat -c %s "$1")
  [ "$bytes" -gt 262144 ] || return 0
  { head -c 131072 "$1"; printf '\n... %s bytes left out ...\n' $((bytes - 262144)); tail -c 131072 "$1"; } >"$1.short"
  mv "$1.short" "$1"
}
pack_results() {
  local most=16000000
  tar -C "$(dirname "$out")" -czf "$archive.part" "$(basename "$out")" 2>/dev/null
  if [ "$(stat -c %s "$archive.part")" -gt $most ]; then
    tar -C "$out" -czf "$archive.part" gpu.jsonl machine.txt steps.txt
    echo "gpu.sh: $out is too large for $archive, which has only gpu.jsonl, machine.txt and steps.txt" >&2
  fi
  mv "$archive.part" "$archive"
}

# Returns the status of the background process, or 124 if even SIGKILL does not end it.
await() { # seconds
  local end=$((SECONDS + $1))
  while kill -0 "$current" 2>/dev/null; do
    [ "$SECONDS" -lt "$end" ] || return 124
    sleep 0.1
  done
  wait "$current"
}

result_of() { # status, output, whether the limit was reached, whether the budget shortened the limit
  if [ "$1" = 77 ] || { [ "$1" = 0 ] && grep -q '^\[  SKIPPED \]' "$2"; }; then
    # With devices, no test has another reason to be skipped, wholly or in part.
    if [ "$devices" -gt 0 ] && ! grep -q '^UCX on devices: UCX does not know the memory of devices' "$2"; then
      echo "FAILED: skipped"
    else
      echo skipped
    fi
  elif [[ $1 =~ ^(124|137)$ ]] && [ "$3" = 1 ]; then
    [ "$4" = 1 ] && echo "cut short" || echo "FAILED: time limit"
  elif [ "$1" != 0 ]; then
    echo "FAILED ($1)"
  elif grep -q '^skipped in part' "$2"; then
    echo "ok, in part" # the output says which part
  else
    echo ok
  fi
}
show_failure() { # name
  local report
  tail -n 20 "$out/$1.txt" | sed 's/^/    /'
  for report in "$out/reports/$1"*.json; do
    [ ! -e "$report" ] || { echo "    exit report: $report"; head -c 2000 "$report" | sed 's/^/    /'; echo; }
  done
}

step() { # name, seconds, command
  local name=$1 limit=$2 status result begin=$SECONDS is_cut=0 left
  shift 2
  left=$((${budget:-100000} - 3 - SECONDS)) # the remaining 3 s are for the archive
  if [ "$left" -le 0 ]; then
    unfinished+=("$name")
    row "$name" "not run" "the budget is used up"
    return
  fi
  [ "$limit" -le "$left" ] || { limit=$left; is_cut=1; }
  current_name=$name
  env GPU_SH_STEP=$$ DDL_REPORT="$out/reports/$name" timeout -k 2 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null &
  current=$!
  await $((limit + 4))
  status=$?
  end_processes GPU_SH_STEP=$$
  current=''
  result=$(result_of "$status" "$out/$name.txt" $((SECONDS - begin >= limit)) $is_cut)
  row "$name" "$result" "$(printf '%4d s' $((SECONDS - begin)))"
  [ "$result" != "cut short" ] || unfinished+=("$name")
  if [[ $result == FAILED* ]]; then
    failed=1
    show_failure "$name"
  fi
  shorten "$out/$name.txt"
  pack_results
}

start_mps() {
  mps=$temporary/mps
  mkdir -p "$mps" "$out/mps"
  env CUDA_MPS_PIPE_DIRECTORY="$mps" CUDA_MPS_LOG_DIRECTORY="$out/mps" timeout 20 nvidia-cuda-mps-control -d \
    >"$out/mps/start.txt" 2>&1 </dev/null
}
stop_mps() {
  [ -n "$mps" ] || return 0
  echo quit | env CUDA_MPS_PIPE_DIRECTORY="$mps" timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
  end_processes CUDA_MPS_PIPE_DIRECTORY="$mps"
  mps=''
}

# Prints the trainers' words/s by precision and sentences, if any was measured.
trainer_figures() {
  awk '
    function value(key) {
      if (!match($0, "\"" key "\": *\"?[^,\"}]*")) return ""
      found = substr($0, RSTART, RLENGTH)
      sub(/^[^:]*: *"?/, "", found)
      return found
    }
    /"benchmark": *"(nmt_reference|pytorch_nmt)"/ {
      row = sprintf("%-10s %9s", value("arithmetic"), value("batch"))
      if (!(row in seen)) order[++count] = row
      seen[row] = 1
      rate[value("benchmark"), row] = value("words_per_s")
    }
    END {
      if (count) printf "%-10s %9s %10s %10s %6s\n", "words/s", "sentences", "ddl_nmt", "PyTorch", "ratio"
      for (i = 1; i <= count; ++i) {
        ours = rate["nmt_reference", order[i]]
        theirs = rate["pytorch_nmt", order[i]]
        ratio = ours > 0 && theirs > 0 ? sprintf("%.2f", ours / theirs) : "-"
        printf "%s %10s %10s %6s\n", order[i], ours == "" ? "-" : ours, theirs == "" ? "-" : theirs, ratio
      }
    }' "$out/gpu.jsonl"
}

# Prints the figures of the benchmarks and trainers that succeeded.
show_figures() {
  local name
  echo
  grep -E '^(device_perf|device_gradients_perf|gemm_rate|nmt_reference|pytorch_nmt)[^ ]* +ok' "$out/steps.txt" |
    while read -r name _; do
      echo "$name:"
      tail -n 17 "$out/$name.txt"
    done
  trainer_figures
  echo
}
finish() {
  trap '' TERM INT HUP PIPE
  if [ -n "$current" ]; then
    end_processes GPU_SH_STEP=$$
    row "$current_name" interrupted ""
    show_failure "$current_name"
  fi
  stop_mps
  pack_results
  show_figures
  cat "$out/machine.txt" "$out/steps.txt"
  [ ${#unfinished[@]} = 0 ] || echo "not run to the end, in a budget of $budget s: ${unfinished[*]}"
  echo "everything printed: $archive"
  rm -rf "$temporary"
}
