"""Includes go one way: between layers, and between the folders of a layer. With a circle, no part could be read, tested
or replaced without the others."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
LAYERS = ["topology", "collectives", "ddl", "nmt_example"]  # each may use the ones before it
LEAVES = ["examples", "package", "python"]  # folders of ddl with independent programs and files
SUFFIXES = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


def sources(layer):
    for path in sorted((ROOT / layer).rglob("*")):
        relative = path.relative_to(ROOT)
        if path.suffix in SUFFIXES and not (layer == "ddl" and relative.parts[1] in LEAVES):
            yield relative


def layer_of(included):
    """Returns the layer of a private header; None for public headers, which are in include/, and for other projects'."""
    return included.split("/")[0] if (ROOT / included).is_file() else None


def circle_in(graph):
    """Returns folders that include one another in a circle; empty if there are none."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return []
        path.append(folder)
        for target in sorted(graph.get(folder, {})):
            if found := visit(target):
                return found
        done.add(path.pop())
        return []

    for folder in sorted(graph):
        if found := visit(folder):
            return found
    return []


def main():
    problems = []
    for layer in LAYERS:
        allowed = LAYERS[: LAYERS.index(layer) + 1] if layer != "nmt_example" else [layer]
        graph = {}  # folder: {included folder: an example}
        for source in sources(layer):
            for included in INCLUDE.findall((ROOT / source).read_text(errors="replace")):
                target = layer_of(included)
                if target in LAYERS and target not in allowed:
                    problems.append(f"{source} includes {included}: {layer} may include "
                                    f"{', '.join(allowed)} and public headers only")
                folder = str(pathlib.PurePath(included).parent)
                if target == layer and folder != str(source.parent):
                    graph.setdefault(str(source.parent), {}).setdefault(folder, f"{source} includes {included}")
        if circle := circle_in(graph):
            problems.append(f"found a circle of includes between folders of {layer}, expected none:\n  " +
                            "\n  ".join(graph[a][b] for a, b in zip(circle, circle[1:])))
    print("\n".join(problems) or "no circles")
    return 1 if problems else 0


sys.exit(main())
