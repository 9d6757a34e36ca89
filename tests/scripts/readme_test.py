"""What the READMEs promise: links lead somewhere, sources that they name exist, programs and scripts in command lines
exist, `sh` blocks that need nothing but this build and this machine run, and a `console` block that runs a program of
this build shows what that prints."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"build/bin/([\w-]+)")
SCRIPT = re.compile(r"(?:^|\s)((?:benchmarks|tests|nmt_example|ddl)/[\w./-]+\.(?:sh|py))")
RUNS_HERE = re.compile(r"export \w+=|mpirun (?!.* -H ).*build/bin/|build/bin/")
SOURCE = re.compile(r"`([\w/-]+\.(?:cpp|hpp|cu|cuh|py|sh))`")
BY_EXAMPLES = {"ddl_nmt"}  # programs that a build may leave out


def anchors(text):
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def problems_of_links(readme, text):
    for target in LINK.findall(BLOCK.sub("", text)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (readme.parent / path).resolve() if path else readme
        if not file.exists():
            yield f"links to {target}, which is not there"
        elif anchor and anchor not in anchors((file / "README.md" if file.is_dir() else file).read_text()):
            yield f"links to {target}: there is no such title"


def problems_of_sources(text):
    files = ["/" + str(path.relative_to(ROOT)) for path in ROOT.rglob("*.*") if not path.is_relative_to(BUILD)]
    for name in sorted(set(SOURCE.findall(text))):
        if not any(file.endswith("/" + name) for file in files):
            yield f"names {name}, which is not there"


def problems_of_commands(block):
    for program in sorted(set(PROGRAM.findall(block))):
        if program not in BY_EXAMPLES and not (BUILD / "bin" / program).exists():
            yield f"runs build/bin/{program}, which this build does not have"
    for script in sorted(set(SCRIPT.findall(block))):
        if not (ROOT / script).exists():
            yield f"runs {script}, which is not there"


def problems_of_console(block):
    """`block`: any number of times "$ command" and its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if not command.startswith("build/bin/"):
            continue  # needs other hosts, or a failure at the right moment
        run = subprocess.run(str(BUILD) + command.removeprefix("build"), shell=True, cwd=ROOT, text=True,
                             capture_output=True, timeout=60, check=False)
        if [line.rstrip() for line in run.stdout.splitlines()] != [line.rstrip() for line in shown.splitlines()]:
            yield f"shows for `{command}`:\n{shown}\nfound:\n{run.stdout}{run.stderr}"


def problems_of_shell(block):
    commands = [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    here = all(RUNS_HERE.match(line) and "DATA" not in line for line in commands)
    if not here or shutil.which("mpirun") is None or not all((BUILD / "bin" / p).exists() for p in PROGRAM.findall(block)):
        return
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "build").symlink_to(BUILD)
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        run = subprocess.run(["bash", "-e", "-c", block], cwd=directory, env=environment, text=True, capture_output=True,
                             timeout=240, check=False)
    if run.returncode != 0:
        yield f"shows a command that fails:\n{block}{run.stdout[-1000:]}{run.stderr[-1000:]}"
    print(f"ran: {commands[-1]}")


def problems_of(readme):
    text = readme.read_text()
    yield from problems_of_links(readme, text)
    yield from problems_of_sources(text)
    for indent, language, block in BLOCK.findall(text):
        block = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        if language in ("sh", "console"):
            yield from problems_of_commands(block)
        if language == "sh":
            yield from problems_of_shell(block)
        if language == "console":
            yield from problems_of_console(block)


found = 0
readmes = [file for file in sorted(ROOT.rglob("README.md"))
           if not any(part.startswith((".", "build")) for part in file.relative_to(ROOT).parts)]
for file in readmes:
    for problem in problems_of(file):
        print(f"{file.relative_to(ROOT)} {problem}")
        found += 1
print(f"{len(readmes)} READMEs, {found} problems")
sys.exit(1 if found or not readmes else 0)
