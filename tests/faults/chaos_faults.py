"""The kinds of faults that chaos.py draws. A fault strikes when the run's log reaches its step; -1: while it starts."""
import contextlib
import glob
import os
import shutil
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

    def where(self):
        return "all ranks" if self.other < 0.3 else super().where()

    def strike(self, job):
        job.sleep(self.between(0, 0.4 if self.step < 0 else 0.1))
        for rank, process in job.ranks().items():
            if self.other < 0.3 or rank == self.rank:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


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


class Cut(HostFault):
    """A link that is down for longer than the deadline."""

    name = "cut"

    def strike(self, job):
        job.cluster.set_link(self.host, "down")
        job.sleep(self.deadline + self.between(1, 3))
        job.cluster.set_link(self.host, "up")


class Away(HostFault):
    """A host that cannot be reached until the job goes on without it; comes back, and a rank is killed."""

    name = "away and back"

    def strike(self, job):
        starts = len(job.sizes())
        job.cluster.set_link(self.host, "down")
        if not job.wait_until(lambda: len(job.sizes()) > starts):
            return
        job.cluster.set_link(self.host, "up")
        if self.other < 0.7:
            job.sleep(self.between(0.2, 1))
            job.signal_rank(0, signal.SIGKILL)


class DeadHost(Fault):
    """All processes of a host die, MPI's daemon included; the host starts again at once."""

    name = "dead host"

    def where(self):
        return "node1" if self.other < 0.5 else "node2"

    def strike(self, job):
        for process in job.cluster.processes(self.where()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def undo(self, job):
        """Removes the files of MPI's daemon, which the killed one could not."""
        for path in glob.glob(os.path.join(job.cluster.temporary, f"ompi.{self.where()}.*")):
            shutil.rmtree(path, ignore_errors=True)


class FullDisk(Fault):
    """The disk has no room until the job has failed, or for good."""

    name = "full disk"
    error = "No space left on device"

    def where(self):
        return "for good" if self.other < 0.3 else "for a while"

    def strike(self, job):
        starts = job.restarts()
        with open(os.path.join(job.cluster.disk, "filler"), "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        job.wait_until(lambda: job.restarts() > starts)
        if self.other >= 0.3:
            self.undo(job)
        else:
            job.wait_until(lambda: False)

    def undo(self, job):
        with contextlib.suppress(OSError):
            os.remove(os.path.join(job.cluster.disk, "filler"))


class Damage(Fault):
    """A checkpoint, or all of them, has wrong bytes, is cut short or lacks a file; then a rank dies."""

    name = "damaged checkpoint"
    error = r"all checkpoints in .* are damaged"

    def where(self):
        return "all" if self.other < 0.3 else "newest"

    def strike(self, job):
        checkpoints = job.checkpoints()
        for checkpoint in checkpoints if self.other < 0.3 else checkpoints[-1:]:
            files = sorted(glob.glob(os.path.join(checkpoint, "*")))
            with contextlib.suppress(OSError, IndexError):  # a checkpoint that is just being removed
                self.damage(files[int(self.part * len(files))])
        job.signal_rank(self.rank, signal.SIGKILL)

    def damage(self, path):
        how = int(self.part * 1000) % 3
        if how == 0:
            os.remove(path)
            return
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            at = int(self.other * size)
            if how == 1:
                file.truncate(at)
                return
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))


class ClockJump(Fault):
    """The clock of all hosts jumps by up to a day, in either direction."""

    name = "clock jump"
    harmless = True

    def where(self):
        return f"by {self.seconds():.0f} s"

    def seconds(self):
        return (self.other - 0.5) * 2 * 86400

    def strike(self, job):
        job.cluster.set_clock(self.seconds())

    def undo(self, job):
        job.cluster.set_clock(0)


KINDS = [Kill, Pause, Stop, Slow, Flicker, Lossy, Cut, Away, DeadHost, FullDisk, Damage, ClockJump]


def draw(generator, only, hosts, ranks, deadline, steps):
    """One or two faults, in the order in which they strike."""
    kinds = [kind for kind in KINDS if only in (None, kind.name)]
    at = sorted(generator.randrange(-1, steps - 10) for _ in range(generator.choice([1, 1, 2])))
    return [generator.choice(kinds)(generator, step, hosts, ranks, deadline) for step in at]
