"""Otherwise jobs would start on hosts where they cannot run, and hang or die there without a reason."""

import unittest

from stand_ins import HOME_HOST, StandInTest


class ChecksTest(StandInTest):
    def refuses(self, *texts, arguments=("-H", "h1,h2,h3", "./bin/train"), **more):
        """Expects exit status 1, all these texts, and that nothing is started."""
        self.ddlrun(*arguments, status=1, **more)
        self.assert_says(*texts)
        self.assertEqual(self.jobs(), [])
        self.assertEqual(self.result.stdout, "")

    def test_hosts_that_are_alike_are_asked_and_the_job_starts(self):
        self.add_hosts("h1", "h2", "h3")
        self.ddlrun("-H", "h1,h2,h3", "--port", "4000", "./bin/train", "x")
        self.assertEqual(len(self.jobs()), 1)
        asked = sorted(self.read("asked").splitlines())
        questions = f"<check> <--program> <{self.train}> <--port> <4000>"
        self.assertEqual(asked, [f"{name} {questions}" for name in ("h1", "h2", "h3", HOME_HOST)])

    def test_a_host_that_cannot_be_reached(self):
        self.add_hosts("h1", "h3")
        self.refuses("error: host h2: found no answer (status 255: ssh: connect to host h2 port 22: No route to host), "
                     "expected the host to be up; try: ssh -o BatchMode=yes -o ConnectTimeout=5 h2",
                     "1 of 3 hosts cannot take part: h2; nothing was started")

    def test_a_host_that_never_answers(self):
        self.add_hosts("h1", "h2", "h3")
        (self.work / "hosts" / "h2.silent").touch()
        self.refuses("error: host h2: no answer within 1 s", "try: ssh",
                     arguments=("--check-seconds", "1", "-H", "h1,h2,h3", "./bin/train"))

    def test_all_hosts_that_are_wrong_are_named_at_once(self):
        self.add_hosts("h1")
        self.refuses("host h2:", "host h3:", "2 of 3 hosts cannot take part: h2, h3")

    def test_another_version(self):
        self.add_hosts("h1", "h3")
        self.add_host("h2", version="1.2.2")
        self.refuses("error: host h2: found ddl 1.2.2, expected 1.2.3 as on this machine; install that there")

    def test_a_host_without_the_library(self):
        self.add_hosts("h1", "h2", "h3")
        (self.work / "hosts" / "h2.bare").touch()
        self.refuses(f"error: host h2: found neither {self.bin}/ddl-topo nor ddl-topo on PATH there")

    def test_a_version_from_before_the_check(self):
        self.add_hosts("h1", "h3")
        self.stand_in("ddl-topo", f'[ "$FAKE_HOST" != h2 ] || {{ echo "ddl-topo: unknown command '
                      f"'check'\" >&2; exit 2; }}\nexec cat \"$WORK/hosts/${{FAKE_HOST:-{HOME_HOST}}}\"")
        self.add_host("h2")
        self.refuses("error: host h2: found a version of ddl from before `ddl-topo check`")

    def test_other_devices_than_most(self):
        volta = ["Tesla V100"] * 4
        for name, gpus in (("h1", volta[:3]), ("h2", volta), ("h3", volta)):
            self.add_host(name, gpus=gpus)
        self.refuses("error: host h1: found 3 x Tesla V100, expected 4 x Tesla V100 as most hosts have",
                     "1 of 3 hosts")
        self.add_host("h1", gpus=volta[:3] + ["Tesla K80"])
        self.refuses("host h1: found 1 x Tesla K80 and 3 x Tesla V100, expected 4 x Tesla V100")
        self.add_host("h1")
        self.refuses("host h1: found no GPUs, expected 4 x Tesla V100")

    def test_a_program_that_is_not_there(self):
        self.add_hosts("h1", "h3")
        for state in ("missing", "not executable"):
            self.add_host("h2", program={"path": str(self.train), "state": state})
            self.refuses(f"error: host h2: found {self.train} {state}, expected the program where it is on this machine")

    def test_a_port_in_use(self):
        for name in ("h1", "h2", "h3"):
            self.add_host(name, port={"number": 4000, "free": name != "h2", "reason": "Address already in use"})
        self.refuses("error: host h2: found port 4000 not free (Address already in use), expected to listen there",
                     arguments=("-H", "h1,h2,h3", "--port", "4000", "./bin/train"))

    def test_two_names_of_one_machine(self):
        self.add_hosts("h1", "h2")
        self.add_host("h3", identity="h1/boot")
        self.refuses("error: host h3: found the same machine as h1")

    def test_this_machine_that_cannot_be_checked(self):
        self.add_hosts("h1", "h2", "h3")
        self.remove_host(HOME_HOST)
        self.refuses("this machine: ", "try: " + str(self.bin / "ddl-topo"))
        (self.bin / "ddl-topo").unlink()
        self.refuses(f"found neither at {self.bin}/ddl-topo nor on PATH", "--no-check")

    def test_cpus_may_differ_with_a_note(self):
        self.add_hosts("h1", "h2")
        self.add_host("h3", cpus=2)
        self.ddlrun("-H", "h1,h2,h3", "./bin/train")
        self.assert_says("note: the hosts have from 2 to 8 CPUs")

    def test_a_login_script_that_prints(self):
        self.add_hosts("h1")
        (self.work / "hosts" / "h1.greets").touch()
        self.ddlrun("-H", "h1", "./bin/train")

    def test_no_check_asks_nobody(self):
        (self.bin / "ddl-topo").unlink()
        self.ddlrun("-H", "h1:2,h2:2", "--no-check", "./bin/train")
        self.assertEqual(self.read("agent_calls"), "")
        self.assertEqual(len(self.jobs()), 1)

    def test_this_machine_needs_no_agent(self):
        (self.bin / "ssh").unlink()
        self.refuses("the agent 'ssh' was not found", arguments=("-H", "h1", "./bin/train"))
        self.ddlrun("--np", "2", "./bin/train")
        self.ddlrun("-H", "localhost:2", "./bin/train")
        self.assertEqual(len(self.jobs()), 2)

    def test_the_agent(self):
        self.add_hosts("h1")
        for name in ("given", "set"):
            self.stand_in(name, "while [ $# -gt 2 ]; do shift; done\n"
                          f'echo {name} >>"$WORK/agent_calls"\nFAKE_HOST=$1 exec sh -c "$2"')
        agents = {"OMPI_MCA_plm_rsh_agent": "missing : set -q"}
        self.ddlrun("-H", "h1", "./bin/train", **agents)
        self.ddlrun("-H", "h1", "--agent", "given", "./bin/train", **agents)
        self.ddlrun("-H", "h1", "./bin/train", OMPI_MCA_plm_rsh_args="-p 2222")
        self.assertEqual(self.read("agent_calls").splitlines()[:2], ["set", "given"])
        self.assertIn("<ssh><-o><BatchMode=yes><-o><ConnectTimeout=5><-p><2222><h1>", self.read("agent_calls"))

    def test_names_with_spaces_and_quotes_arrive(self):
        odd = self.work / "it's a \"$HOME\" program"
        odd.write_text("#!/bin/sh\n")
        odd.chmod(0o755)
        self.add_hosts("h1")
        self.ddlrun("-H", "h1", str(odd))
        self.assertIn(f"h1 <check> <--program> <{odd}>\n", self.read("asked"))


if __name__ == "__main__":
    unittest.main()
