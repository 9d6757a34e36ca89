#!/usr/bin/env bash
# The command line of ddl-topo: its output, the files that it reads back, and its error messages.
#   ddl_topo_test.sh DDL_TOPO GOLDEN_FOLDER
# With DDL_UPDATE_GOLDEN=1, writes the golden files instead of comparing with them.
set -uo pipefail
tool=$1 golden=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# status EXPECTED ARGUMENTS...: runs the tool, writes its output to $work/out and $work/err, and checks its status.
status() {
  local expected=$1 found
  shift
  "$tool" "$@" >"$work/out" 2>"$work/err"
  found=$?
  [ "$found" = "$expected" ] || fail "ddl-topo $*: status $found, expected $expected: $(head -c 500 "$work/err")"
}

# says FILE TEXT: checks that FILE (out or err) contains TEXT.
says() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in std$1: $(head -c 1000 "$work/$1")"; }

# refuses STATUS TEXT ARGUMENTS...: expects an empty standard output, and TEXT on standard error.
refuses() {
  local expected=$1 text=$2
  shift 2
  status "$expected" "$@"
  says err "$text"
  [ ! -s "$work/out" ] || fail "ddl-topo $*: wrote to standard output before it failed"
}

# The readable description of each preset.
for preset in ac922:4 dgx1v dgx2:2 dgx_a100 dgx_h100 ethernet:3x2@100gbit host:4; do
  name=${preset//[:@]/_}
  status 0 show --topology "$preset"
  if [ "${DDL_UPDATE_GOLDEN:-}" = 1 ]; then
    cp "$work/out" "$golden/$name.txt"
  else
    diff -u "$golden/$name.txt" "$work/out" >&2 || fail "show --topology $preset differs from $name.txt"
  fi
  # A round trip through a file changes nothing.
  status 0 export "$preset" -o "$work/a.json"
  status 0 import "$work/a.json" --output="$work/b.json"
  cmp -s "$work/a.json" "$work/b.json" || fail "$preset: export and import differ"
  status 0 show --json --topology "$work/a.json"
  cmp -s "$work/a.json" "$work/out" || fail "$preset: show --json and export differ"
done
status 0 presets
for preset in ac922 dgx1v dgx2 dgx_a100 dgx_h100 dgx_h100_rails ethernet host; do says out "$preset"; done

# A truncated matrix says so, and how to print all of it.
status 0 show --topology ac922:4
says out "matrix of 5 of the 16 devices (--matrix: of all)"
status 0 show --topology ac922:4 --matrix
says out "h3/gpu3  NET"

# This machine: discovered, written, read back; and a cluster of two such machines.
status 0 show --device cpu --ranks 3
says out "this machine: 1 host, 3 devices"
says out "h0/package0"
status 0 show --json --device cpu
cp "$work/out" "$work/this.json"
status 0 show --topology "$work/this.json"
"$tool" show --topology - <"$work/this.json" >"$work/out" 2>"$work/err" || fail "reading standard input"
says out "standard input: 1 host"
status 0 export this --host -o "$work/host.json"
status 0 import "$work/host.json" "$work/host.json" --ranks 2 --device cpu -o "$work/cluster.json"
status 0 show --topology "$work/cluster.json"
says out "2 hosts, 4 devices"
says out "network"

# NCCL's files.
cat >"$work/nccl.xml" <<'XML'
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:04:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="70" rank="0" gdr="0"><nvlink target="0000:05:00.0" count="2" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:05:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="70" rank="1" gdr="0"><nvlink target="0000:04:00.0" count="2" tclass="0x030200"/></gpu>
    </pci>
    <nic><net name="eth0" dev="0" speed="10000" port="0" guid="0x1" maxconn="65536" gdr="0"/></nic>
  </cpu>
</system>
XML
status 0 import "$work/nccl.xml" "$work/nccl.xml" -o "$work/nccl.json"
status 0 show --topology "$work/nccl.json"
says out "2 hosts, 4 devices"

# Measurements are printed and cached, and jobs find them.
export DDL_CACHE_DIR=$work/cache
status 0 probe --ranks 2
says out "inside_package"
says err "kept in $work/cache/ways-"
status 0 probe --ranks 2 --json
says out '"way": "inside_package"'
cmp -s "$work/out" "$work"/cache/ways-*.json || fail "probe --json prints other figures than it keeps"
rm -r "$work/cache"
status 0 probe --ranks 3 --dry-run
[ ! -e "$work/cache" ] || fail "probe --dry-run kept its figures"

# The check that ddlrun runs on each host: one line, with the state of a program and of a port.
status 0 check
says out '{"ddl_check":1,"version":"'
says out "\"host\":\"$(uname -n)\""
[ "$(wc -l <"$work/out")" = 1 ] || fail "check prints other than one line"
: >"$work/plain"
for case in "$tool:executable" "$work/none:missing" "$work/plain:not executable" "$work:a directory" \
  "no-such-program-anywhere:not on PATH"; do
  status 0 check --program "${case%:*}"
  says out "\"program\":{\"path\":\"${case%:*}\",\"state\":\"${case##*:}\"}"
done
PATH=$(dirname "$tool"):$PATH status 0 check --program "$(basename "$tool")"
says out "\"program\":{\"path\":\"$tool\",\"state\":\"executable\"}"

# Help shows examples, after any arguments.
for arguments in --help -h help "show --help" "import x.json --help"; do
  # shellcheck disable=SC2086  # several words
  status 0 $arguments
  says out "ddl-topo show --topology ac922:4"
done

# A wrong command line: status 2, with what to do.
refuses 2 "found no command, expected show, presets, export, import, probe, check or env"
refuses 2 "unknown command 'shwo'; the nearest is show" shwo
refuses 2 "unknown option '--topolgy'; the nearest is --topology" show --topolgy x
refuses 2 "--topology needs a value" show --topology
refuses 2 "--json takes no value: found '--json=yes'" show --json=yes
refuses 2 "--json is given twice" show --json --json
refuses 2 "show: found 1 argument, expected none" show ac922
refuses 2 "export: found 0 arguments, expected one" export
refuses 2 "import: found no file" import
refuses 2 "--ranks: found '0', expected an integer from 1 to 65536" show --ranks 0
refuses 2 "--ranks: found 'many'" show --ranks many
refuses 2 "--ranks: found '1', expected an integer from 2 to 1024" probe --ranks 1
refuses 2 "check: found 1 argument, expected none" check here
refuses 2 "--port: found '0', expected an integer from 1 to 65535" check --port 0
refuses 2 "probe: found 1 argument, expected none" probe ac922
refuses 2 "--device: found 'tpu', expected one of auto, cpu, gpu" show --device tpu
refuses 2 "the nearest preset is 'ac922'" show --topology ac92:4
refuses 2 "--host goes with" export ac922 --host
refuses 2 "ac922:0" show --topology ac922:0
refuses 2 "--output is given twice" export ac922 -o a --output b
refuses 2 "ddl-topo --help shows how it is used" bogus

# Wrong files: status 1, with the file, the path inside it, what was found and what was expected.
refuses 1 "$work/missing.json" show --topology "$work/missing.json"
head -c 200 "$work/a.json" >"$work/cut.json"
refuses 1 "$work/cut.json" show --topology "$work/cut.json"
sed 's/"package"/"packet"/' "$work/this.json" >"$work/bad.json"
refuses 1 "nodes[0].kind" show --topology "$work/bad.json"
says err "$work/bad.json"
says err "packet"
sed 's/"hostname"/"hostnam"/' "$work/host.json" >"$work/bad_host.json"
refuses 1 "$work/bad_host.json: top level: found unknown key 'hostnam', expected one of host_description, hostname" import "$work/bad_host.json"
refuses 1 "found a host description, expected a topology as in $work/this.json" import "$work/this.json" "$work/host.json"
refuses 1 "found a second topology, expected just one" import "$work/this.json" "$work/this.json"
: >"$work/empty.json"
refuses 1 "$work/empty.json" import "$work/empty.json"
refuses 1 "$work/no/such/folder" export ac922 -o "$work/no/such/folder/x.json"
sed 's/"gpus": \[[^]]*/"gpus": [/' "$work/host.json" | tr '\n' ' ' | sed 's/"gpus": \[.*\], *"notes"/"gpus": [], "notes"/' >"$work/no_gpu.json"
refuses 1 "expected at least one" import "$work/no_gpu.json" --device gpu
if [ -e /dev/full ]; then
  "$tool" show --topology ac922 >/dev/full 2>"$work/err"
  [ $? = 1 ] || fail "a full disk goes unnoticed"
  says err "standard output"
fi

# An output that is a device is written to, not replaced; a link is followed.
status 0 export ac922 -o /dev/null
[ -c /dev/null ] || fail "-o /dev/null replaced the device"
ln -s a.json "$work/link.json"
status 0 export host:2 -o "$work/link.json"
[ -L "$work/link.json" ] || fail "-o replaced a link"
refuses 1 "$work" export ac922 -o "$work"

# Every option, its value and the source of the value.
DDL_DEADLINE=7 DDL_OPTIONS="-mode r" status 0 env
says out "from DDL_DEADLINE"
says out "from DDL_OPTIONS"
says out "from default"
DDL_DEADLIN=7 refuses 1 "the nearest is DDL_DEADLINE" env

# Output files are complete or absent; no temporary files remain.
[ -z "$(find "$work" -name '*.tmp*')" ] || fail "temporary files are left: $(ls "$work")"

[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
