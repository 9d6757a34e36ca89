"""A directory of programs that stand in for mpirun, ssh, srun, scontrol and ddl-topo, and of files that stand in for hosts:
the output of `ddl-topo check` there. ddlrun runs with only these programs on its PATH."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LAUNCHER = pathlib.Path(os.environ["DDL_TEST_LAUNCHER"])
HOME_HOST = "home"  # this machine; the jobs do not use it unless a test says so

# Prints the file of the host that it runs on, and records its arguments: one line in one write, because several
# run at once.
TOPO = """
host=${FAKE_HOST:-@HOME@}
line=$host
for word in "$@"; do line="$line <$word>"; done
printf '%s\\n' "$line" >>"$WORK/asked"
exec cat "$WORK/hosts/$host"
"""
# Takes options, a host, and a command line for the shell there, like ssh.
SSH = """
line="<@NAME@>"
for word in "$@"; do line="$line<$word>"; done
printf '%s\\n' "$line" >>"$WORK/agent_calls"
while [ $# -gt 2 ]; do shift; done
[ ! -e "$WORK/hosts/$1.silent" ] || exec sleep 1000
[ -e "$WORK/hosts/$1" ] || { echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255; }
[ ! -e "$WORK/hosts/$1.bare" ] || exec "$WORK/bin/sh" -c 'unset WORK; PATH=/nonexistent; exec /no/such/ddl-topo'
[ ! -e "$WORK/hosts/$1.greets" ] || echo "Welcome to $1"
FAKE_HOST=$1 exec sh -c "$2"
"""
SRUN = """
line="<srun>"
for word in "$@"; do line="$line<$word>"; done
printf '%s\\n' "$line" >>"$WORK/agent_calls"
for word in "$@"; do case $word in --nodelist=*) host=${word#*=} ;; esac; done
while [ "$1" != sh ]; do shift; done
FAKE_HOST=$host exec "$@"
"""
MPIRUN = """
import json, os, sys
work = os.environ["WORK"]
with open(work + "/jobs", "a") as jobs:
    jobs.write(json.dumps(sys.argv) + "\\n")
number = len(open(work + "/jobs").readlines())
script = f"{work}/job{number}"
if os.path.exists(script):
    os.execv("/bin/sh", ["sh", script])
"""


class StandInTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        self.bin = self.work / "bin"
        self.bin.mkdir()
        (self.work / "hosts").mkdir()
        for tool in ("sh", "cat", "mv", "rm", "sleep"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        (self.bin / "ddlrun").symlink_to(LAUNCHER / "ddlrun")
        self.stand_in("ddl-topo", TOPO.replace("@HOME@", HOME_HOST))
        self.stand_in("ssh", SSH.replace("@NAME@", "ssh"))
        self.stand_in("mpirun", MPIRUN, sys.executable)
        self.train = self.bin / "train"
        self.stand_in("train", "")
        self.add_host(HOME_HOST)

    def stand_in(self, name, body, interpreter="/bin/sh"):
        path = self.bin / name
        path.write_text(f"#!{interpreter}\n{body}")
        path.chmod(0o755)

    def add_host(self, name, **changes):
        """Adds a host that answers with a line of JSON, with `changes`."""
        report = {"ddl_check": 1, "version": "1.2.3", "host": name, "identity": name + "/boot", "cpus": 8, "gpus": [],
                  "program": {"path": str(self.train), "state": "executable"}}
        (self.work / "hosts" / name).write_text(json.dumps({**report, **changes}) + "\n")

    def add_hosts(self, *names):
        for name in names:
            self.add_host(name)

    def remove_host(self, name):
        (self.work / "hosts" / name).unlink()

    def job(self, number, script):
        """Sets the behaviour of the number-th job."""
        (self.work / f"job{number}").write_text(script)

    def environment(self, **more):
        return {"PATH": str(self.bin), "WORK": str(self.work), **more}

    def ddlrun(self, *arguments, status=0, **more):
        self.result = subprocess.run([sys.executable, str(self.bin / "ddlrun"), *arguments], env=self.environment(**more),
                                     cwd=self.work, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(self.result.returncode, status, self.result)
        return self.result

    def jobs(self):
        """Returns the mpirun commands that have run."""
        path = self.work / "jobs"
        if not path.exists():
            return []
        return [["mpirun"] + json.loads(line)[1:] for line in path.read_text().splitlines()]

    def assert_says(self, *texts):
        for text in texts:
            self.assertIn(text, self.result.stderr)

    def read(self, name):
        path = self.work / name
        return path.read_text() if path.exists() else ""
