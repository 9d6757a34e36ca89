#!/usr/bin/env python3
"""The rounds of chaos.sh, which sets up the hosts. See `chaos.sh --help`."""
import argparse
import collections
import glob
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import chaos_faults
from fault_matrix import left_behind

HOSTS = {"node0": 2, "node1": 1, "node2": 1}  # ranks of each
RANKS = sum(HOSTS.values())
STEPS = 60
GLOBAL_BATCH = 24
DEADLINE = 5
LONGEST = 150  # seconds that a round may take
COMMON = ["--builtin_corpus=600", "--vocab_size=120", "--num_units=24", "--num_layers=2", "--attention=scaled_luong",
          "--optimizer=adam", "--learning_rate=0.003", f"--num_train_steps={STEPS}", "--steps_per_stats=20",
          "--steps_per_eval=5", "--steps_per_external_eval=1000", "--num_keep_ckpts=3", "--threads=1", "--src=en",
          "--tgt=de", "--dropout=0.2"]
VARIANTS = {
    "plain": [],
    "in the foreground": ["--background_checkpoints=false"],
    "sharded update and checkpoints": ["--sharded_update", "--sharded_checkpoints"],
    "bf16 between hosts": ["--gradient_wire=bf16"],
    "micro-batches, dense embeddings": ["--micro_batch_size=5", "--sparse_embeddings=false"],
    "two phases, sharded NovoGrad": ["--phase1_steps=30", "--phase1_max_len=40", "--optimizer=novograd",
                                     "--sharded_update"],
}
# Gradients in 16 bits are rounded differently on other ranks.
TOLERANCE = {"bf16 between hosts": 0.05}
# An agent for ddlrun and mpirun: like ssh, it goes over the links.
AGENT = """#!/bin/sh
host=$1
[ "$1" != --exec ] || host=$2
for port in port0 "port${host#node}"; do
  if [ "$host" != node0 ] && [ -z "$(ip -n "$SWITCH" link show up dev "$port")" ]; then
    echo "connect to host $host port 22: No route to host" >&2
    exit 255
  fi
done
exec "$DDL_EMULATED_CLUSTER/agent" "$@"
"""
# The global batch stays the same on fewer ranks.
TRAINER = """#!/bin/sh
export LD_PRELOAD="$CHAOS_CLOCK_LIBRARY"
exec "%s" --batch_size=$((%d / OMPI_COMM_WORLD_SIZE)) "$@"
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class Cluster:
    """The emulated hosts, and the environment in which jobs start there."""

    def __init__(self, name, binaries, work):
        self.name, self.binaries, self.work = name, binaries, work
        self.program = os.path.join(binaries, "ddl_nmt")
        self.disk = os.path.join(work, "disk")
        self.temporary = os.path.join(work, "tmp")
        self.mark = f"DDL_EMULATED_CLUSTER=/run/ddl-emulated-cluster-{name}"
        os.mkdir(self.temporary)
        write_program(os.path.join(work, "agent"), AGENT)
        write_program(os.path.join(work, "train"), TRAINER % (self.program, GLOBAL_BATCH))
        self.clock = os.path.join(work, "clock")
        self.set_clock(0)
        key, state = self.mark.split("=")
        self.environment = dict(
            os.environ, SWITCH=self.namespace("switch"), TMPDIR=self.temporary, DDL_DEADLINE=str(DEADLINE),
            CHAOS_CLOCK=self.clock, CHAOS_CLOCK_LIBRARY=os.path.join(work, "clock.so"),
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", UCX_NET_DEVICES="eth0",
            OMPI_MCA_plm_rsh_agent=os.path.join(work, "agent"), OMPI_MCA_plm_rsh_no_tree_spawn="1",
            OMPI_MCA_oob_tcp_if_include="10.77.0.0/24", OMPI_MCA_btl_tcp_if_include="10.77.0.0/24",
            OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,vader,tcp", OMPI_MCA_osc="^ucx", OMPI_MCA_mpi_yield_when_idle="1",
            **{key: state})

    def namespace(self, host):
        return f"ddl-{self.name}-{host}"

    def set_link(self, host, state):
        subprocess.run(["ip", "-n", self.namespace("switch"), "link", "set", f"port{host[-1]}", state], check=True)

    def set_queue(self, host, rate, burst, limit):
        """Shapes both directions of a host's link; packets that do not fit into the queue are lost."""
        for namespace, device in ((self.namespace(host), "eth0"), (self.namespace("switch"), f"port{host[-1]}")):
            subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
                            "burst", burst, "limit", limit], check=True)

    def set_clock(self, seconds):
        """Moves the clock that the ranks see (clock_jump.c) away from the machine's."""
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as file:  # ranks have it mapped
            file.write(struct.pack("=q", int(seconds)))

    def repair(self):
        for host in HOSTS:
            self.set_link(host, "up")
            self.set_queue(host, "1gbit", "128kb", "4mb")

    def processes(self, host):
        found = subprocess.run(["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True,
                               check=True)
        return [int(word) for word in found.stdout.split()]

    def kill_all(self):
        for host in HOSTS:
            for process in self.processes(host):
                kill(process, signal.SIGKILL)

    def left_behind(self):
        found = left_behind(self.mark) + ["file " + name for name in os.listdir(self.temporary)]
        for host in HOSTS:
            found += [f"process {process} on {host}" for process in self.processes(host)]
            sockets = subprocess.run(["ip", "netns", "exec", self.namespace(host), "cat", "/proc/net/unix"],
                                     capture_output=True, text=True, check=True)
            found += [f"socket {line.split()[-1]} on {host}" for line in sockets.stdout.splitlines() if "@ddl-" in line]
        return found


def kill(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


class Job:
    """A training run under ddlrun."""

    def __init__(self, cluster, variant):
        self.cluster = cluster
        self.out_dir = os.path.join(cluster.disk, "model")
        self.log = os.path.join(self.out_dir, "log.jsonl")
        self.output = os.path.join(cluster.work, "output")
        hosts = ",".join(f"{host}:{ranks}" for host, ranks in HOSTS.items())
        command = [os.path.join(cluster.environment["DDL_EMULATED_CLUSTER"], "agent"), "--exec", "node0",
                   os.path.join(cluster.binaries, "ddlrun"), "-H", hosts, "--max-restarts", "4", "--check-seconds", "4",
                   os.path.join(cluster.work, "train"), *COMMON, *VARIANTS[variant], f"--out_dir={self.out_dir}"]
        self.begin = time.monotonic()
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, env=cluster.environment)

    def runs(self):
        return self.process.poll() is None and time.monotonic() < self.begin + LONGEST

    def sleep(self, seconds):
        """Sleeps, but not longer than the job runs."""
        end = time.monotonic() + seconds
        while self.runs() and time.monotonic() < end:
            time.sleep(0.01)

    def wait_until(self, condition):
        """Returns false if the job ended before the condition was true."""
        while not condition():
            if not self.runs():
                return False
            time.sleep(0.01)
        return True

    def ranks(self):
        """The processes of the ranks, by rank."""
        found = {}
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                if words[0] != self.cluster.program or f"--out_dir={self.out_dir}" not in words:
                    continue
                with open(path + "/environ", "rb") as file:
                    rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)", file.read())
            except OSError:
                continue
            if rank:
                found[int(rank.group(1))] = int(path.split("/")[2])
        return found

    def signal_rank(self, rank, number):
        """Returns the rank's process, or None if there is none."""
        process = self.ranks().get(rank)
        if process:
            kill(process, number)
        return process

    def last_step(self):
        """The last step in the log; -1 before the first once there are ranks, -2 before."""
        steps = re.findall(r'"step": (\d+)', read(self.log))
        return int(steps[-1]) if steps else -1 if self.ranks() else -2

    def steps(self):
        """Returns {step: (loss, gradient norm)} as text."""
        entries = [json.loads(line) for line in read(self.log).splitlines()]
        return {entry["step"]: (repr(entry["loss"]), repr(entry["grad_norm"])) for entry in entries if "loss" in entry}

    def checkpoints(self):
        return sorted(glob.glob(os.path.join(self.out_dir, "step-*")))

    def parameters(self):
        """Checksums of those files of the newest checkpoint that hold the run's tensors."""
        manifest = json.loads(read(os.path.join(self.checkpoints()[-1], "manifest.json")))
        return {name: entry["crc32"] for name, entry in manifest["files"].items() if name.endswith(".safetensors")}

    def restarts(self):
        return read(self.output).count("ddlrun: starts on ")

    def sizes(self):
        """The numbers of ranks of its starts."""
        return [int(ranks) for ranks in re.findall(r"^(\d+) ranks? on ", read(self.output), re.MULTILINE)]


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def finish(job):
    try:
        return job.process.wait(timeout=max(1, job.begin + LONGEST - time.monotonic()))
    except subprocess.TimeoutExpired:
        job.cluster.kill_all()
        job.process.wait()
        raise AssertionError(f"still there after {LONGEST} s") from None


def baseline(cluster, variant):
    job = Job(cluster, variant)
    status = finish(job)
    if status != 0 or job.restarts():
        raise AssertionError(f"the run that was left alone ended with status {status}:\n{read(job.output)}")
    return job.steps(), job.parameters(), sorted(os.listdir(job.out_dir))


def compare(job, variant, expected):
    """Returns the result in words; raises AssertionError."""
    steps, parameters, names = expected
    found = job.steps()
    if sorted(found) != list(range(1, STEPS + 1)):
        raise AssertionError(f"the log has the steps {sorted(found)}, expected 1 to {STEPS}")
    if sorted(os.listdir(job.out_dir)) != names:
        raise AssertionError(f"{job.out_dir} has {sorted(os.listdir(job.out_dir))}, expected {names}")
    if set(job.sizes()) == {RANKS}:
        for step in steps:
            if found[step] != steps[step]:
                raise AssertionError(f"step {step}: loss and norm {found[step]}, expected {steps[step]}")
        if job.parameters() != parameters:
            raise AssertionError("the last checkpoints differ")
        return "same bits"
    most = TOLERANCE.get(variant, 1e-4)
    for step in sorted(steps):
        if not abs(float(found[step][0]) - float(steps[step][0])) <= most:
            raise AssertionError(f"step {step}: loss {found[step][0]}, expected {steps[step][0]} within {most}")
    return f"losses within {most} on fewer ranks"


def check_end(job, status, faults, variant, expected):
    """Returns the result in words; raises AssertionError."""
    if status == 0:
        if job.restarts() and all(fault.harmless for fault in faults):
            raise AssertionError("the job was started again")
        return compare(job, variant, expected)
    for fault in faults:
        if fault.error and re.search(fault.error, read(job.output)):
            return "one clear error"
    raise AssertionError(f"the job ended with status {status}")


def run_round(cluster, variant, faults, expected):
    """Returns the result and the number of restarts; raises AssertionError."""
    job = Job(cluster, variant)
    try:
        for fault in faults:
            if job.wait_until(lambda fault=fault: job.last_step() >= fault.step):
                fault.strike(job)
        status = finish(job)
    finally:
        for fault in faults:
            fault.undo(job)
        cluster.repair()
    result = check_end(job, status, faults, variant, expected)
    for _ in range(100):
        left = cluster.left_behind()
        if not left:
            return result, job.restarts()
        time.sleep(0.1)
    raise AssertionError("left behind: " + ", ".join(left))


def clear(directory):
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[kind.name for kind in chaos_faults.KINDS])
    options = parser.parse_args()
    cluster = Cluster(options.cluster, options.binaries, options.work)
    baselines = {}
    kinds, results = collections.Counter(), collections.Counter()
    for seed in range(options.seed, options.seed + options.rounds):
        generator = random.Random(seed)
        variant = generator.choice(list(VARIANTS))
        faults = chaos_faults.draw(generator, options.only, list(HOSTS), RANKS, DEADLINE, STEPS)
        problem, restarts, begin = "", 0, time.monotonic()
        try:
            if variant not in baselines:
                baselines[variant] = baseline(cluster, variant)
                clear(cluster.disk)
                begin = time.monotonic()
            result, restarts = run_round(cluster, variant, faults, baselines[variant])
        except (AssertionError, OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            result, problem = "FAILED", f"{error}\n{read(os.path.join(cluster.work, 'output'))}"
            cluster.kill_all()
            clear(cluster.temporary)
        clear(cluster.disk)
        print(f"seed {seed}: {variant}: {'; '.join(map(str, faults))}: {restarts} restarts, {result}, "
              f"{time.monotonic() - begin:.1f} s", flush=True)
        if problem:
            print(problem, flush=True)
        kinds.update(fault.name for fault in faults)
        results[result] += 1
    print("faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    print(f"{options.rounds} rounds: " + ", ".join(f"{count} {result}" for result, count in sorted(results.items())))
    return 1 if results["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
