"""Otherwise jobs would have other ranks, hosts or settings than requested, or the printed command would differ from the
one that runs."""

import os
import subprocess
import unittest

from stand_ins import HOME_HOST, SRUN, StandInTest


class CommandTest(StandInTest):
    def setUp(self):
        super().setUp()
        self.add_hosts("h1", "h2", "h3")

    def dry_run(self, *arguments, **more):
        return self.ddlrun("--dry-run", *arguments, **more).stdout

    def hosts_of(self, *arguments, **more):
        """Returns the argument of -H in the command, and the mapping."""
        words = self.dry_run(*arguments, **more).split()
        return words[words.index("-H") + 1], words[words.index("--map-by") + 1]

    def test_dry_run_prints_the_command_and_runs_nothing(self):
        text = self.dry_run("-H", "h1:4,h2:4", "--mode", "p:4x2", "--dbg_level", "1", "--dump_iter", "50", "--timeline",
                            "my trace.json", "--port", "4000", "--mpirun-options", "--mca pml ob1", "./bin/train", "--x",
                            "it's", DDL_DEADLINE="60", OTHER="no")
        self.assertEqual(
            text,
            "mpirun -np 8 -H h1:4,h2:4 --map-by slot --bind-to none -x DDL_DEADLINE=60 "
            "-x 'DDL_OPTIONS=-mode p:4x2 -dbg_level 1 -dump_iter 50' -x 'DDL_TIMELINE=my trace.json' "
            f"-x MASTER_PORT=4000 -x MASTER_ADDR=h1 --mca pml ob1 {self.train} --x 'it'\"'\"'s'\n")
        self.assertEqual(self.jobs(), [])
        self.assertNotEqual(self.read("asked"), "")

    def test_dry_run_still_checks(self):
        self.ddlrun("--dry-run", "-H", "h1,h9", "./bin/train", status=1)
        self.assertEqual(self.result.stdout, "")

    def test_what_is_printed_is_what_runs(self):
        arguments = ["", "a b", "$HOME", "`id`", "x'y\"z", "*", "new\nline", "--np", "\\"]
        self.ddlrun("-H", "h1:2", "./bin/train", *arguments, DDL_REPORT="a;b, c'")
        printed = self.result.stderr[self.result.stderr.index("mpirun"):]
        subprocess.run(["sh", "-c", printed], env=self.environment(), check=True)
        first, second = self.jobs()
        self.assertEqual(first, second)
        self.assertEqual(first[-len(arguments):], arguments)
        self.assertIn("DDL_REPORT=a;b, c'", first)

    def test_ranks_by_host_and_round_robin(self):
        self.assertEqual(self.hosts_of("-H", "h1:4,h2:4", "x"), ("h1:4,h2:4", "slot"))
        self.assertEqual(self.hosts_of("-H", "h1:4,h2:4", "--np", "5", "x"), ("h1:4,h2:1", "slot"))
        self.assertEqual(self.hosts_of("-H", "h1:4,h2:4", "--np", "4", "x"), ("h1:4", "slot"))
        self.assertEqual(self.hosts_of("-H", "h1:4,h2:4", "--np", "5", "--by", "round_robin", "x"), ("h1:3,h2:2", "node"))
        self.assertEqual(self.hosts_of("-H", "h1:1,h2:4,h3:2", "--np", "6", "--by=round_robin", "x"),
                         ("h1:1,h2:3,h3:2", "node"))

    def test_ranks_of_hosts_without_a_number(self):
        self.assertEqual(self.hosts_of("-H", "h1,h2", "x")[0], "h1:1,h2:1")
        self.assertEqual(self.hosts_of("-H", "h1,h2,h3", "--np", "7", "x")[0], "h1:3,h2:2,h3:2")
        self.assertEqual(self.hosts_of("-H", "h1:5,h2,h3", "-np", "9", "x")[0], "h1:5,h2:2,h3:2")
        for name in ("h1", "h2"):
            self.add_host(name, gpus=["Tesla V100"] * 4)
        self.assertEqual(self.hosts_of("-H", "h1,h2", "x")[0], "h1:4,h2:4")
        self.assertEqual(self.hosts_of("--np", "3", "x")[0], "localhost:3")

    def test_this_machine_comes_first_as_mpirun_has_it(self):
        self.add_host("h2", identity=HOME_HOST + "/boot")
        text = self.dry_run("-H", "h1:2,h2:2,h3:2", "--port", "4000", "x")
        self.assertIn("-H h2:2,h1:2,h3:2 ", text)
        self.assertIn("-x MASTER_ADDR=h2 ", text)
        self.assert_says("note: rank 0 is on h2")
        # Being the first host gives it no more ranks than its place in the list.
        self.assertEqual(self.hosts_of("-H", "h1:2,h2:2,h3:2", "--np", "3", "x")[0], "h2:1,h1:2")
        self.assertEqual(self.hosts_of("-H", "h1:2,h2:2,h3:2", "--np", "2", "x")[0], "h1:2")

    def test_a_host_file(self):
        (self.work / "hosts.txt").write_text("# mine\nh1 slots=2\n\nh2 slots=3 max_slots=4  # fast\nh3\n")
        self.assertEqual(self.hosts_of("--hostfile", "hosts.txt", "x")[0], "h1:2,h2:3,h3:1")
        self.assertEqual(self.hosts_of("x", OMPI_MCA_orte_default_hostfile="hosts.txt")[0], "h1:2,h2:3,h3:1")
        self.assertEqual(self.hosts_of("-H", "h2:1", "x", OMPI_MCA_orte_default_hostfile="hosts.txt")[0], "h2:1")
        (self.work / "hosts.txt").write_text("h1 slots=2\nh1\n")
        self.wrong("found the host h1 2 times", "--hostfile", "hosts.txt", "x")
        (self.work / "hosts.txt").write_text("h1 slots=2\nh2 slot=3\n")
        self.wrong("hosts.txt, line 2: found 'slot', expected a host and slots=N", "--hostfile", "hosts.txt", "x")
        (self.work / "hosts.txt").write_text("#\n")
        self.wrong("hosts.txt: found no host", "--hostfile", "hosts.txt", "x")
        self.wrong("none.txt: cannot be read: No such file", "--hostfile", "none.txt", "x")

    def test_slurm_gives_its_nodes_and_tasks(self):
        self.stand_in("scontrol", 'printf "<%s>" "$@" >>"$WORK/scontrol"\nprintf "h1\\nh2\\nh3\\n"')
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
        self.assertEqual(self.hosts_of("x", **slurm)[0], "h1:2,h2:2,h3:1")
        self.assertEqual(self.read("scontrol"), "<show><hostnames><h[1-3]>")
        self.assertIn("<ssh>", self.read("agent_calls"))
        self.assertEqual(self.hosts_of("-H", "h1:1", "x", **slurm)[0], "h1:1")
        self.ddlrun("x", status=1, **{**slurm, "SLURM_TASKS_PER_NODE": "2(x2)"})
        self.assert_says("for 2 nodes, expected 3", "give the hosts with -H")
        self.stand_in("scontrol", "echo no such job >&2; exit 1")
        self.ddlrun("x", status=1, **slurm)
        self.assert_says("scontrol show hostnames h[1-3] ended with 1", "no such job", "give the hosts with -H")

    def test_slurm_s_nodes_are_asked_by_srun(self):
        self.stand_in("scontrol", 'printf "h1\\nh2\\n"')
        self.stand_in("srun", SRUN)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
        text = self.dry_run("./bin/train", **slurm)
        self.assertEqual(text, f"mpirun -np 4 -H h1:2,h2:2 --map-by slot --bind-to none {self.train}\n")
        self.assertIn("<srun><--overlap>", self.read("agent_calls"))
        self.assertNotIn("<ssh>", self.read("agent_calls"))
        text = self.dry_run("--agent", "ssh -q", "./bin/train", **slurm)
        self.assertIn("--mca plm rsh --mca plm_rsh_agent 'ssh -q'", text)
        self.assertIn("<ssh><-q><-o>", self.read("agent_calls"))

    def test_ddl_options_are_merged(self):
        options = {"DDL_OPTIONS": "-dbg_level 1"}
        self.assertIn("'DDL_OPTIONS=-dbg_level 1 -mode r'", self.dry_run("--mode", "r", "x", **options))
        self.assertIn("'DDL_OPTIONS=-dbg_level 1'", self.dry_run("--dbg_level", "1", "x", **options))
        self.assertIn("'DDL_OPTIONS=-mode  r '", self.dry_run("x", DDL_OPTIONS="-mode  r "))
        self.wrong("--dbg_level 2 contradicts DDL_OPTIONS='-dbg_level 1' of the environment", "--dbg_level", "2", "x",
                   **options)
        self.wrong("--timeline a contradicts DDL_TIMELINE='b' of the environment", "--timeline", "a", "x",
                   DDL_TIMELINE="b")
        self.wrong("--port 4000 contradicts MASTER_PORT='4001'", "--port", "4000", "x", MASTER_PORT="4001")
        self.wrong("-dbg_level needs a value", "--mode", "r", "x", DDL_OPTIONS="-dbg_level")
        self.wrong("-mode p:4x4 is a grid of 16 ranks, but the job has 8; expected sizes whose product is 8", "--mode",
                   "p:4x4", "-H", "h1:4,h2:4", "x")
        self.assertIn("p:4,2", self.dry_run("--mode", "p:4,2", "-H", "h1:3,h2:3", "x"))  # the library checks it

    def test_bind_to_is_mpirun_s_if_given(self):
        text = self.dry_run("--mpirun-options", "--bind-to core", "x")
        self.assertEqual(text.count("--bind-to"), 1)

    def test_the_exit_status_is_mpirun_s(self):
        self.job(1, "exit 37")
        self.ddlrun("-H", "h1:2", "./bin/train", status=37)
        self.job(2, "kill -9 $$")
        self.ddlrun("-H", "h1:2", "./bin/train", status=137)

    def test_mpirun_that_is_missing(self):
        (self.bin / "mpirun").unlink()
        self.ddlrun("--np", "2", "./bin/train", status=1)
        self.assert_says("mpirun was not found on PATH")
        self.dry_run("--np", "2", "./bin/train")

    def wrong(self, text, *arguments, **more):
        """Expects status 2, the text, and an empty standard output."""
        self.ddlrun(*arguments, status=2, **more)
        self.assert_says(text, "ddlrun --help shows how it is used.")
        self.assertEqual(self.result.stdout, "")
        self.assertEqual(self.jobs(), [])

    def test_wrong_command_lines(self):
        self.wrong("found no program")
        self.wrong("found no program", "--np", "2")
        self.wrong("unknown option '--mod'; the nearest is --mode", "--mod", "r", "x")
        self.wrong("--np needs a value", "--np")
        self.wrong("--mode: found an empty value", "--mode=", "x")
        self.wrong("--dry-run takes no value: found '--dry-run=1'", "--dry-run=1", "x")
        self.wrong("--np is given twice", "--np", "2", "-np", "2", "x")
        for value in ("0", "-1", "two", "2.5", ""):
            self.wrong("--np: found", "--np=" + value, "x")
        self.wrong("--port: found '65536', expected an integer from 1 to 65535", "--port", "65536", "x")
        self.wrong("--by: found 'node', expected host or round_robin", "--by", "node", "x")
        self.wrong("--np 9: found 8 slots on 2 hosts, expected 9", "-H", "h1:4,h2:4", "--np", "9", "x")
        self.wrong("No closing quotation", "--mpirun-options", "'", "x")
        self.wrong("-H and --hostfile both name hosts", "-H", "h1", "--hostfile", "f", "x")

    def test_wrong_hosts(self):
        self.wrong("-H h1,h2,h1:4: found the host h1 2 times, expected each once", "-H", "h1,h2,h1:4", "x")
        for text in ("", ",", "h1,", "h1,,h2", ":4"):
            self.wrong("found an empty", "-H", text, "x")
        for slots in ("", "0", "-1", "four", "1:2", "1e3", "10000000"):
            self.wrong(f"host h1: found '{slots}' as its number of ranks", "-H", "h1:" + slots, "x")
        for name in ("-oProxyCommand=id", "h 1", "h;id", "h/1", "[::1]"):
            self.wrong("found the host '" + name.partition(":")[0], "-H", "h3," + name, "x")

    def test_help_teaches_by_example(self):
        for option in ("--help", "-h"):
            self.ddlrun("--np", "2", option)
            self.assertIn("ddlrun -H h1:4,h2:4 ./train", self.result.stdout)
        from_program = self.ddlrun("--np", "2", "./bin/train", "--help")
        self.assertEqual(from_program.stdout, "")
        self.assertEqual(self.jobs()[0][-1], "--help")

    def test_it_runs_where_it_is_installed(self):
        prefix = self.work / "prefix"
        subprocess.run([os.environ["DDL_TEST_CMAKE"], "--install", os.environ["DDL_TEST_BUILD"], "--prefix", str(prefix)],
                       check=True, stdout=subprocess.DEVNULL)
        (prefix / "bin" / "ddl-topo").symlink_to(self.bin / "ddl-topo")
        moved = self.work / "moved"
        prefix.rename(moved)
        for name in ("slurm.sbatch", "mpijob.yaml"):
            self.assertTrue((moved / "share" / "ddl" / "cluster" / name).exists())
        found = subprocess.run([str(moved / "bin" / "ddlrun"), "--dry-run", "--np", "2", "./bin/train"], check=True,
                               capture_output=True, text=True, cwd=self.work,
                               env=self.environment(PATH=f"{self.bin}:{os.environ['PATH']}"))
        self.assertIn("mpirun -np 2 ", found.stdout)


if __name__ == "__main__":
    unittest.main()
