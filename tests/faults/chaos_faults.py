"""The kinds of faults that chaos.py draws. A fault strikes when the run's log reaches its step; -1: while it starts."""
import glob
import os
import signal
import time


class Fault:
    harmless = False  # the job must go on without a restart
    error = None      # what the job may say if it cannot go on

    def __init__(self, generator, step, hosts, ranks, deadline):
        self.step, self.deadline = step, deadline
        self.rank = generator.randrange(ranks)
        self.host = generator.choice(hosts)
        self.part = generator.random()
        self.other = generator.random()

    def __str__(self):
        return f"{self.name} {self.where()} at step {self.step}"

    def where(self):
        return f"rank {self.rank}"

    def between(self, least, most):
        return least + self.part * (most - least)

    def strike(self, job):
        raise NotImplementedError

    def undo(self, job):
        """Called when the job has ended."""


class HostFault(Fault):
    def where(self):
        return self.host


class Kill(Fault):
    name = "kill"

    def strike(self, job):
        job.sleep(self.between(0, 0.4 if self.step < 0 else 0.1))
        job.signal_rank(self.rank, signal.SIGKILL)


class Pause(Fault):
    name = "pause"
    harmless = True

    def strike(self, job):
        process = job.signal_rank(self.rank, signal.SIGSTOP)
        job.sleep(self.between(0.1, 0.4 * self.deadline))
        if process:
            os.kill(process, signal.SIGCONT)


class Stop(Fault):
    """A stop that outlasts the deadline."""

    name = "stop"

    def strike(self, job):
        process = job.signal_rank(self.rank, signal.SIGSTOP)
        if process:
            job.wait_until(lambda: not os.path.exists(f"/proc/{process}"))


class Slow(Fault):
    """A rank that gets a fifth of its time."""

    name = "slow"
    harmless = True

    def strike(self, job):
        end = time.monotonic() + self.between(1, 4)
        while job.runs() and time.monotonic() < end:
            process = job.signal_rank(self.rank, signal.SIGSTOP)
            time.sleep(0.08)
            if process:
                os.kill(process, signal.SIGCONT)
            time.sleep(0.02)


class Flicker(HostFault):
    """A link that is down for less than the deadline."""

    name = "flicker"
    harmless = True

    def strike(self, job):
        job.cluster.set_link(self.host, "down")
        job.sleep(self.between(0.05, 0.3 * self.deadline))
        job.cluster.set_link(self.host, "up")


class Lossy(HostFault):
    """A link that loses packets."""

    name = "lossy"
    harmless = True

    def strike(self, job):
        job.cluster.set_queue(self.host, "20mbit", "2kb", "5kb")
        job.sleep(self.between(0.5, 3))
        job.cluster.set_queue(self.host, "1gbit", "128kb", "4mb")


KINDS = [Kill, Pause, Stop, Slow, Flicker, Lossy]


def draw(generator, only, hosts, ranks, deadline, steps):
    """One or two faults, in the order in which they strike."""
    kinds = [kind for kind in KINDS if only in (None, kind.name)]
    at = sorted(generator.randrange(-1, steps - 10) for _ in range(generator.choice([1, 1, 2])))
    return [generator.choice(kinds)(generator, step, hosts, ranks, deadline) for step in at]
