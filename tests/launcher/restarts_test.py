"""Otherwise a night of training would be lost because a host has died, or a job could not be ended."""

import contextlib
import os
import pathlib
import pty
import signal
import subprocess
import sys
import unittest

from stand_ins import StandInTest


class RestartsTest(StandInTest):
    def setUp(self):
        super().setUp()
        self.add_hosts("h1", "h2", "h3")

    def restart(self, *arguments, **more):
        return self.ddlrun("-H", "h1:4,h2:4,h3:4", "--max-restarts", "2", *arguments, **more)

    def hosts_of_jobs(self):
        return [words[words.index("-H") + 1] for words in self.jobs()]

    def checkpoint(self, step, name="run", complete=True):
        path = self.work / name / f"step-{step:010}"
        path.mkdir(parents=True)
        if complete:
            (path / "manifest.json").touch()

    def test_a_dead_host_is_left_out(self):
        self.checkpoint(30)
        self.checkpoint(7)
        self.checkpoint(40, complete=False)
        self.job(1, 'rm "$WORK/hosts/h2"; exit 137')
        self.restart("--checkpoints", "run", "./bin/train", "x")
        self.assertEqual(self.hosts_of_jobs(), ["h1:4,h2:4,h3:4", "h1:4,h3:4"])
        self.assertEqual([words[words.index("-np") + 1] for words in self.jobs()], ["12", "8"])
        self.assert_says("the job ended with status 137; restart 1 of 2",
                         "host h2 is left out: found no answer (status 255",
                         "starts on 2 hosts with 8 ranks: h1, h3",
                         "the newest checkpoint is run/step-0000000030")

    def test_a_host_that_has_come_back_takes_part_again(self):
        self.job(1, 'mv "$WORK/hosts/h2" "$WORK/away"; exit 1')
        self.job(2, 'mv "$WORK/away" "$WORK/hosts/h2"; exit 1')
        self.restart("--checkpoints", "run", "./bin/train")
        self.assertEqual(self.hosts_of_jobs(), ["h1:4,h2:4,h3:4", "h1:4,h3:4", "h1:4,h2:4,h3:4"])

    def test_an_mpirun_that_waits_for_a_host_out_of_reach_is_ended(self):
        """Its ranks here have ended, some before ddlrun looked, but it cannot tell the other host's daemon to end."""
        waits = 'rm "$WORK/hosts/%s"; trap "" TERM; %s while [ $((i += 1)) -lt 30000000 ]; do :; done'
        self.job(1, waits % ("h2", "sleep 6;"))
        self.job(2, waits % ("h3", ""))
        self.ddlrun("-H", "home:4,h2:4,h3:4", "--max-restarts", "2", "--checkpoints", "run", "./bin/train")
        self.assertEqual(self.hosts_of_jobs(), ["home:4,h2:4,h3:4", "home:4,h3:4", "home:4"])
        self.assert_says("the job has no ranks here any more, and h2 cannot be reached: ends mpirun",
                         "the job has no ranks here any more, and h3 cannot be reached: ends mpirun",
                         "the job ended with status 137; restart 2 of 2")

    def test_a_host_that_has_lost_a_gpu_is_left_out(self):
        for name in ("h1", "h2"):
            self.add_host(name, gpus=["Tesla V100"] * 4)
        self.add_host("fewer", gpus=["Tesla V100"] * 3)
        self.job(1, 'mv "$WORK/hosts/fewer" "$WORK/hosts/h1"; exit 1')
        self.ddlrun("-H", "h1,h2", "--max-restarts", "2", "--checkpoints", "run", "./bin/train")
        self.assertEqual(self.hosts_of_jobs(), ["h1:4,h2:4", "h2:4"])
        self.assert_says("host h1 is left out: found 3 x Tesla V100, expected 4 x Tesla V100")

    def test_a_spare_takes_a_dead_host_s_place(self):
        self.job(1, 'rm "$WORK/hosts/h1"; exit 1')
        self.restart("--checkpoints", "run", "--np", "8", "--port", "4000", "./bin/train")
        self.assertEqual(self.hosts_of_jobs(), ["h1:4,h2:4", "h2:4,h3:4"])
        self.assertIn("MASTER_ADDR=h2", self.jobs()[1])

    def test_a_grid_that_no_longer_fits_is_left_to_the_library(self):
        self.job(1, 'rm "$WORK/hosts/h2"; exit 1')
        arguments = ("--checkpoints", "run", "--mode", "p:4x3", "--dbg_level", "1", "./bin/train")
        self.restart(*arguments)
        self.assertIn("DDL_OPTIONS=-mode p -dbg_level 1", self.jobs()[1])
        self.assert_says("note: -mode p:4x3 is a grid of 12 ranks, but the job has 8: the library chooses another")
        (self.work / "jobs").unlink()
        self.add_host("h2")
        self.restart(*arguments, status=2, DDL_STRICT="1")
        self.assertEqual(len(self.jobs()), 1)

    def test_no_checkpoint_yet(self):
        self.checkpoint(40, complete=False)
        self.job(1, "exit 1")
        self.restart("--checkpoints", "run", "./bin/train")
        self.assert_says("there is no checkpoint in run yet: the job begins from the start")

    def test_no_place_of_checkpoints(self):
        self.restart("./bin/train", status=2)
        self.assert_says("--max-restarts: found no place of checkpoints", "--checkpoints DIR")
        self.restart("--checkpoints", "run", "--no-check", "./bin/train", status=2)
        self.assertEqual(self.jobs(), [])

    def test_the_place_is_the_program_s(self):
        for arguments in (["--out_dir=model"], ["--out_dir", "model"]):
            self.job(1, "exit 1")
            self.checkpoint(5, "model")
            self.restart("./bin/train", *arguments)
            self.assert_says("the newest checkpoint is model/step-0000000005")
            (self.work / "jobs").unlink()
            (self.work / "model" / "step-0000000005" / "manifest.json").unlink()
            (self.work / "model" / "step-0000000005").rmdir()

    def test_restarts_end(self):
        for number in (1, 2, 3):
            self.job(number, f"exit {number + 40}")
        self.restart("--checkpoints", "run", "./bin/train", status=43)
        self.assertEqual(len(self.jobs()), 3)
        self.assert_says("the job ended with status 43; all 2 restarts are used up")

    def test_no_host_is_left(self):
        self.job(1, 'rm "$WORK"/hosts/h?; exit 1')
        self.restart("--checkpoints", "run", "./bin/train", status=1)
        self.assertEqual(len(self.jobs()), 1)
        self.assert_says("no host is left of h1, h2, h3")

    def test_what_is_no_failure_is_not_repeated(self):
        for status in (0, 2, 130):  # success, a usage error, an interrupt
            (self.work / "jobs").unlink(missing_ok=True)
            self.job(1, f"exit {status}")
            self.restart("--checkpoints", "run", "./bin/train", status=status)
            self.assertEqual(len(self.jobs()), 1)

    def started(self, script):
        """Starts ddlrun with a running job; `script` prints "ready"."""
        self.job(1, script)
        process = subprocess.Popen(
            [sys.executable, str(self.bin / "ddlrun"), "-H", "h1:4", "--max-restarts", "2", "--checkpoints", "run",
             "./bin/train"], env=self.environment(), cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_signals_go_on_to_the_job_and_end_it(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            (self.work / "jobs").unlink(missing_ok=True)
            name = number.name[3:]
            process = self.started(f'trap "echo got {name}; exit 9" {name}\necho ready\nwhile :; do sleep 0.1; done')
            process.send_signal(number)
            output, _ = process.communicate()
            self.assertEqual((output, process.returncode), (f"got {name}\n", 9))
            self.assertEqual(len(self.jobs()), 1)

    def test_a_terminal_s_interrupt_reaches_the_job_once(self):
        """It goes to the whole foreground process group; a second one would make mpirun give up an orderly end."""
        (self.work / "count.py").write_text(
            "import signal, sys, time\ncame = []\nsignal.signal(signal.SIGINT, lambda *_: came.append(1))\n"
            "print('ready', flush=True)\nwhile not came: time.sleep(0.01)\ntime.sleep(1)\n"
            "print('interrupted', len(came), flush=True)\nsys.exit(9)\n")
        self.job(1, f'exec {sys.executable} "$WORK/count.py"')
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.work)
            os.execve(sys.executable, [sys.executable, str(self.bin / "ddlrun"), "-H", "h1:4", "./bin/train"],
                      self.environment())
        with open(terminal, "rb", buffering=0) as stream:
            seen = b""
            while b"ready" not in seen:
                seen += stream.read(1024)
            os.write(terminal, b"\x03")
            with contextlib.suppress(OSError):  # reading a closed terminal fails
                while data := stream.read(1024):
                    seen += data
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 9, seen)
        self.assertIn(b"interrupted 1", seen)

    def test_usr1_goes_on_and_ends_nothing(self):
        process = self.started('trap "echo got USR1; exit 7" USR1\necho ready\nwhile :; do sleep 0.1; done')
        process.send_signal(signal.SIGUSR1)
        output, error = process.communicate()
        self.assertEqual((output, process.returncode), ("got USR1\n", 0), error)
        self.assertEqual(len(self.jobs()), 2)

    def test_an_interrupt_during_the_check_leaves_nothing(self):
        self.stand_in("ssh", 'echo $$ >"$WORK/pid"; echo asked >"$WORK/pipe"; exec sleep 1000')
        subprocess.run(["mkfifo", str(self.work / "pipe")], check=True)
        process = subprocess.Popen([sys.executable, str(self.bin / "ddlrun"), "-H", "h1", "--check-seconds", "1000",
                                    "./bin/train"], env=self.environment(), cwd=self.work, stderr=subprocess.PIPE, text=True)
        (self.work / "pipe").read_text()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, error)
        self.assertIn("no job was running", error)
        self.assertFalse(pathlib.Path("/proc", self.read("pid").strip()).exists())
        self.assertEqual(self.jobs(), [])


if __name__ == "__main__":
    unittest.main()
