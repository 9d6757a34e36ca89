"""Uses the real mpirun and ddl-topo of this machine. Otherwise commands might work only with the stand-ins."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

LAUNCHER = pathlib.Path(os.environ["DDL_TEST_LAUNCHER"])
TOOL = os.environ["DDL_TEST_TOOL"]


class RealJobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        (self.work / "ddlrun").symlink_to(LAUNCHER / "ddlrun")
        (self.work / "ddl-topo").symlink_to(TOOL)

    def ddlrun(self, *arguments):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("DDL_", "OMPI_MCA_", "SLURM_", "PMIX_"))}
        return subprocess.run([sys.executable, str(self.work / "ddlrun"), "--mpirun-options", "--oversubscribe",
                               *arguments], cwd=self.work, capture_output=True, text=True, env=environment,
                              stdin=subprocess.DEVNULL)

    def test_ranks_get_their_settings(self):
        found = self.ddlrun("--np", "2", "--mode", "p:2", "--timeline", "it's here", "sh", "-c",
                            'echo "$OMPI_COMM_WORLD_RANK $DDL_OPTIONS, $DDL_TIMELINE; $0"', "a  b")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(sorted(found.stdout.splitlines()),
                         [f"{rank} -mode p:2, it's here; a  b" for rank in (0, 1)], found.stderr)

    def test_the_status_is_the_program_s(self):
        self.assertEqual(self.ddlrun("--np", "2", "sh", "-c", "exit 37").returncode, 37)

    def test_a_job_goes_on_from_what_it_has_saved(self):
        program = self.work / "program"
        program.write_text("#!/bin/sh\n[ ! -e run/step-0000000001 ] || { echo goes on; exit 0; }\n"
                           "mkdir -p run/step-0000000001; touch run/step-0000000001/manifest.json; exit 1\n")
        program.chmod(0o755)
        found = self.ddlrun("--np", "1", "--max-restarts", "1", "--checkpoints", "run", "./program")
        self.assertEqual((found.returncode, found.stdout), (0, "goes on\n"), found.stderr)
        self.assertIn("the newest checkpoint is run/step-0000000001", found.stderr)

    def test_a_port_that_somebody_has(self):
        for address, family in (("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET)):
            with socket.create_server((address, 0), family=family) as server:
                port = server.getsockname()[1]
                found = self.ddlrun("--np", "1", "--port", str(port), "true")
                self.assertEqual(found.returncode, 1)
                self.assertIn(f"found port {port} not free (Address already in use)", found.stderr)
        found = self.ddlrun("--np", "1", "--port", str(port), "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT")
        self.assertEqual(found.stdout, f"localhost {port}\n", found.stderr)

    def test_a_program_that_is_missing(self):
        found = self.ddlrun("--np", "1", "./none")
        self.assertEqual(found.returncode, 1)
        self.assertIn(f"found {self.work}/none missing, expected a program to start", found.stderr)

    def test_the_check_is_a_line_of_json(self):
        found = subprocess.run([TOOL, "check", "--program", "no/such", "--port", "1"], capture_output=True, text=True,
                               check=True)
        report = json.loads(found.stdout)
        self.assertEqual(found.stdout.count("\n"), 1)
        self.assertEqual(report["ddl_check"], 1)
        self.assertEqual(report["host"], socket.gethostname())
        self.assertEqual(report["program"], {"path": "no/such", "state": "missing"})
        self.assertEqual(report["port"]["number"], 1)
        self.assertGreaterEqual(report["cpus"], 1)


if __name__ == "__main__":
    unittest.main()
