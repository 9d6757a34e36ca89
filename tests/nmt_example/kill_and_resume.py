#!/usr/bin/env python3
"""Kills training at random moments with SIGKILL, resumes, and compares every step with a run that was never killed.

usage: kill_and_resume.py DDL_NMT [--mpirun MPIRUN] [--rounds N] [--seed N] [--table FILE]

DDL_NMT is the trainer. A round starts a run, kills one or all of its ranks at a random moment within the time of a whole
run, and starts it again. The losses and gradient norms of all steps must agree in the 9 digits of the log, and the tensors
of the last checkpoint to the last bit. In every third round the run resumes with another number of ranks and the same
global batch; losses must then agree within 1e-4 (not with gradients in 16 bits, whose rounding depends on the ranks).
Rounds alternate between variants: sharded updates and checkpoints, checkpoints in the background, bf16 between emulated
hosts, micro-batches. The exit status is 1 if a round fails.
"""
import argparse
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 60
GLOBAL_BATCH = 24
RANKS = 2
COMMON = ["--builtin_corpus=600", "--vocab_size=120", "--num_units=24", "--num_layers=2", "--attention=scaled_luong",
          "--optimizer=adam", "--learning_rate=0.003", f"--num_train_steps={STEPS}", "--steps_per_stats=20",
          "--steps_per_eval=5", "--steps_per_external_eval=1000", "--num_keep_ckpts=3", "--threads=1", "--src=en",
          "--tgt=de", "--dropout=0.2"]
# Flags and the number of emulated hosts.
VARIANTS = {
    "plain": ([], 1),
    "in the foreground": (["--background_checkpoints=false"], 1),
    "sharded update and checkpoints": (["--sharded_update", "--sharded_checkpoints"], 1),
    "bf16 between two hosts": (["--gradient_wire=bf16"], 2),
    "micro-batches, dense embeddings": (["--micro_batch_size=5", "--sparse_embeddings=false"], 1),
    "two phases, sharded NovoGrad": (["--phase1_steps=30", "--phase1_max_len=40", "--optimizer=novograd",
                                      "--sharded_update"], 1),
}
MOST_ATTEMPTS = 20  # to kill a run before it has ended


class Job:
    """The command of one variant."""

    def __init__(self, options, variant, directory):
        self.options, self.directory = options, directory
        self.flags, self.hosts = VARIANTS[variant]
        self.log = os.path.join(directory, "log.jsonl")
        self.out_dir = os.path.join(directory, "model")

    def start(self, ranks):
        command = [self.options.mpirun, "--oversubscribe", "--bind-to", "none"]
        for rank in range(ranks):
            command += [":"] if rank else []
            command += ["-n", "1", "-x", f"DDL_HOST_ID=host{rank % self.hosts}", self.options.program, *COMMON,
                        *self.flags, f"--batch_size={GLOBAL_BATCH // ranks}", f"--out_dir={self.out_dir}",
                        f"--log_jsonl={self.log}"]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           DDL_DEADLINE="30")
        self.output = open(os.path.join(self.directory, "output.txt"), "a")
        return subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT, env=environment,
                                start_new_session=True)

    def processes(self):
        """Returns the processes of the ranks."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0] == self.options.program and f"--out_dir={self.out_dir}" in words:
                found.append(int(path.split("/")[2]))
        return found

    def steps(self):
        """Returns {step: (loss, gradient norm)} as text."""
        steps = {}
        with open(self.log) as file:
            for line in file:
                entry = json.loads(line)
                if "loss" not in entry:
                    continue  # scores
                steps[entry["step"]] = (repr(entry["loss"]), repr(entry["grad_norm"]))
        return steps

    def parameters(self):
        """Returns checksums of those files of the newest checkpoint that hold the run's tensors."""
        newest = sorted(glob.glob(os.path.join(self.out_dir, "step-*")))[-1]
        with open(os.path.join(newest, "manifest.json")) as file:
            manifest = json.load(file)
        return {name: entry["crc32"] for name, entry in manifest["files"].items() if name.endswith(".safetensors")}

    def explain(self):
        with open(os.path.join(self.directory, "output.txt")) as file:
            return "".join(file.readlines()[-30:])


def finish(job, ranks):
    process = job.start(ranks)
    if process.wait(timeout=300) != 0:
        raise AssertionError(f"the run ended with status {process.returncode}:\n{job.explain()}")


def kill_once(job, ranks, after, whom, generator):
    """Returns the number of killed ranks; 0 if the run had ended before."""
    process = job.start(ranks)
    try:
        process.wait(timeout=after)
        return 0
    except subprocess.TimeoutExpired:
        pass
    victims = job.processes()
    if whom == "one rank" and victims:
        victims = [generator.choice(victims)]
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait(timeout=60)
    return len(victims)


def compare(job, baseline_steps, baseline_parameters, same_ranks):
    steps = job.steps()
    if sorted(steps) != list(range(1, STEPS + 1)):
        raise AssertionError(f"the log has the steps {sorted(steps)}, expected 1 to {STEPS}")
    if same_ranks:
        for step in sorted(steps):
            if steps[step] != baseline_steps[step]:
                raise AssertionError(f"step {step}: loss and norm {steps[step]}, expected {baseline_steps[step]}")
        if job.parameters() != baseline_parameters:
            raise AssertionError("the last checkpoints differ")
        return 0.0
    worst = max(abs(float(steps[s][0]) - float(baseline_steps[s][0])) for s in steps)
    if not worst <= 1e-4:
        raise AssertionError(f"losses differ by {worst}, expected 1e-4 at most")
    return worst


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    generator = random.Random(options.seed)
    baselines = {}
    lines = []
    failed = 0
    for number in range(options.rounds):
        variant = list(VARIANTS)[number % len(VARIANTS)]
        with tempfile.TemporaryDirectory() as directory:
            if variant not in baselines:
                job = Job(options, variant, os.path.join(directory, "baseline"))
                os.mkdir(job.directory)
                begin = time.monotonic()
                finish(job, RANKS)
                baselines[variant] = (job.steps(), job.parameters(), time.monotonic() - begin)
            steps, parameters, seconds = baselines[variant]
            job = Job(options, variant, os.path.join(directory, "killed"))
            os.mkdir(job.directory)
            # A third of every variant's rounds go on with other ranks.
            other_ranks = (number + number // len(VARIANTS)) % 3 == 2 and job.hosts == 1
            ranks = generator.choice([1, 3, 4]) if other_ranks else RANKS
            whom = generator.choice(["one rank", "all ranks"])
            after = generator.uniform(0.2, seconds)
            worst, problem = 0.0, ""
            try:
                for _ in range(MOST_ATTEMPTS):
                    if kill_once(job, RANKS, after, whom, generator):
                        break
                    subprocess.run(["rm", "-rf", job.out_dir, job.log], check=True)
                    after *= 0.8
                saved = len(glob.glob(os.path.join(job.out_dir, "step-*")))
                finish(job, ranks)
                worst = compare(job, steps, parameters, ranks == RANKS)
            except (AssertionError, OSError, subprocess.TimeoutExpired, ValueError) as error:
                problem = str(error)
                failed += 1
            text = (f"| {number + 1} | {variant} | {whom} after {after:.2f} s, {saved} checkpoints | {ranks} "
                    f"| {problem.splitlines()[0] if problem else 'same bits' if ranks == RANKS else f'{worst:.1e}'} |")
            print(text, flush=True)
            if problem:
                print(problem, flush=True)
            lines.append(text)
    print(f"{options.rounds} rounds, {failed} failed")
    if options.table:
        with open(options.table, "w") as file:
            file.write("# Training that is killed and goes on\n\n"
                       f"`kill_and_resume.py --rounds {options.rounds} --seed {options.seed}`: {RANKS} ranks, {STEPS} steps, "
                       f"a checkpoint every 5; SIGKILL at a random moment. {failed} of {options.rounds} rounds failed. "
                       "Last column: every step's loss and gradient norm and the last checkpoint's tensors against those of a run "
                       "that was never killed; the largest difference of losses where it went on with other ranks.\n\n"
                       "| round | variant | killed | went on with ranks | result |\n| --- | --- | --- | --- | --- |\n")
            file.write("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
