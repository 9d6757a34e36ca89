"""A Python exception on one rank soon ends all ranks, with its text; with a `with` statement and without."""

import os
import subprocess
import sys

RANKS = 3
PROGRAMS = {
    "with": """
with ddl.init("-dbg_level 0"):
    if ddl.rank() == 1:
        raise KeyError("boom")
    ddl.all_reduce(np.zeros(3))
""",
    "uncaught": """
ddl.init("-dbg_level 0")
if ddl.rank() == 1:
    raise KeyError("boom")
ddl.all_reduce(np.zeros(3))
""",
    "exit": """
with ddl.init("-dbg_level 0"):
    ddl.barrier()
    sys.exit()
""",
}

for name, program in PROGRAMS.items():
    environment = dict(os.environ, WORLD_SIZE=str(RANKS), DDL_SOCKET=f"@ddl-python-failure-{os.getpid()}-{name}")
    ranks = [subprocess.Popen([sys.executable, "-c", "import sys, ddl, numpy as np" + program], text=True,
                              stderr=subprocess.PIPE, env={**environment, "RANK": str(rank)}) for rank in range(RANKS)]
    texts = [each.communicate()[1] for each in ranks]
    for rank, (each, text) in enumerate(zip(ranks, texts)):
        if name == "exit":
            assert each.returncode == 0 and not text, text
            continue
        assert each.returncode == 1, (name, rank, each.returncode, text)
        raised = "KeyError: 'boom'" if rank == 1 else "gave up: KeyError: 'boom'"
        assert raised in text, (name, rank, text)
        assert "ddl_finalize" not in text, (name, rank, text)
print("passed")
