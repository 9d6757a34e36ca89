"""Finds the checkpoint that a restarted job resumes from."""

from __future__ import annotations

import os
import re
from typing import Optional

from errors import UsageError

STEP = re.compile(r"step-[0-9]{10,}")


def of_program(arguments: list) -> Optional[str]:
    """The value of the last --out_dir among a program's arguments."""
    found = None
    for word, following in zip(arguments, arguments[1:] + [None]):
        if word.startswith("--out_dir="):
            found = word.partition("=")[2]
        elif word == "--out_dir":
            found = following
    return found or None


def directory_of(options) -> Optional[str]:
    """The job's directory of checkpoints; None without --max-restarts."""
    if not options.integer("--max-restarts", 0, 0, 1_000_000):
        return None
    directory = options.text("--checkpoints") or of_program(options.program[1:])
    if not directory:
        raise UsageError("--max-restarts: found no place of checkpoints, without which each restart would start over; "
                         "expected --checkpoints DIR, or --out_dir among the program's arguments")
    return directory


def newest(directory: str) -> Optional[str]:
    """The path of the newest complete checkpoint, by the names that ddl::Checkpoint writes; None without one."""
    try:
        names = [name for name in os.listdir(directory) if STEP.fullmatch(name)]
    except OSError:
        return None
    paths = [os.path.join(directory, name) for name in sorted(names, key=lambda name: int(name[5:]), reverse=True)]
    return next((path for path in paths if os.path.exists(os.path.join(path, "manifest.json"))), None)
