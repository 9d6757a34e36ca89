"""The environment variables of all ranks: DDL_* variables of the environment, and those from ddlrun's options."""

from __future__ import annotations

import re

from errors import UsageError

DDL_VARIABLE = re.compile(r"DDL_[A-Za-z0-9_]+")
IN_DDL_OPTIONS = ("mode", "dbg_level", "dump_iter")


def contradiction(option: str, value: str, variable: str, found: str) -> UsageError:
    return UsageError(f"{option} {value} contradicts {variable}='{found}' of the environment: give one of them, or the "
                      "same in both")


def merge_ddl_options(options, environment: dict) -> str:
    """DDL_OPTIONS of the environment with the command line's options added."""
    text = environment.get("DDL_OPTIONS", "")
    words = text.split()
    if not any(options.has("--" + name) for name in IN_DDL_OPTIONS):
        return text
    if len(words) % 2 != 0:
        raise UsageError(f"DDL_OPTIONS='{text}' of the environment: {words[-1]} needs a value")
    present = dict(zip(words[::2], words[1::2]))
    for name in IN_DDL_OPTIONS:
        value = options.text("--" + name)
        if value is None:
            continue
        if re.search(r"\s", value):
            raise UsageError(f"--{name}: found '{value}', expected one word")
        if present.setdefault("-" + name, value) != value:
            raise contradiction("--" + name, value, "DDL_OPTIONS", text)
    return " ".join(f"{name} {value}" for name, value in present.items())


def collect(options, environment: dict) -> dict:
    """The variables by name, without MASTER_ADDR, which depends on the hosts of each start."""
    variables = {name: value for name, value in sorted(environment.items()) if DDL_VARIABLE.fullmatch(name)}
    merged = merge_ddl_options(options, environment)
    if merged:
        variables["DDL_OPTIONS"] = merged
    for option, name in (("--timeline", "DDL_TIMELINE"), ("--port", "MASTER_PORT")):
        value = options.text(option)
        if value is None:
            continue
        if environment.get(name, value) != value:
            raise contradiction(option, value, name, environment[name])
        variables[name] = value
    return variables


def grid_of(ddl_options: str) -> tuple:
    """-mode's letter, its grid ("2x4", or empty), and the number of ranks of the grid; None if only the library can tell
    the number."""
    words = ddl_options.split()
    mode = dict(zip(words[::2], words[1::2])).get("-mode", "")
    letter, _, grid = mode.partition(":")
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", grid):
        return letter, grid, None
    ranks = 1
    for size in grid.split("x"):
        ranks *= int(size)
    return letter, grid, ranks


def fit_grid(variables: dict, np: int, is_restart: bool) -> tuple:
    """The variables for `np` ranks, and a note if they had to change: a restart with a different number of ranks leaves
    the grid to the library."""
    letter, grid, ranks = grid_of(variables.get("DDL_OPTIONS", ""))
    if ranks is None or ranks == np:
        return variables, None
    found = f"-mode {letter}:{grid} is a grid of {ranks} ranks, but the job has {np}"
    if not is_restart or variables.get("DDL_STRICT") == "1":
        raise UsageError(f"{found}; expected sizes whose product is {np}")
    words = variables["DDL_OPTIONS"].split()
    words[words.index("-mode") + 1] = letter
    return dict(variables, DDL_OPTIONS=" ".join(words)), f"{found}: the library chooses another"
