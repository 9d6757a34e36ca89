"""Makes a wheel of ddl.py and the C library: make_wheel.py ddl.py LIBRARY VERSION DIRECTORY. Prints its path. The wheel
works on machines with the shared libraries that LIBRARY needs (UCX, MPI, fmt, spdlog), such as the one that built it."""

import base64
import hashlib
import pathlib
import sys
import sysconfig
import zipfile

module, library, version, directory = sys.argv[1:]
tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
info = f"ddl-{version}.dist-info"
files = {
    "ddl.py": pathlib.Path(module).read_bytes(),
    "libddl_c.so.0": pathlib.Path(library).read_bytes(),
    f"{info}/METADATA": (f"Metadata-Version: 2.1\nName: ddl\nVersion: {version}\n"
                         "Summary: Topology-aware data-parallel communication\nLicense: Apache-2.0\n"
                         "Requires-Python: >=3.9\n").encode(),
    f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: ddl\nRoot-Is-Purelib: false\nTag: {tag}\n").encode(),
}
record = ""
for name, content in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record += f"{name},sha256={digest},{len(content)}\n"
files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
wheel = pathlib.Path(directory) / f"ddl-{version}-{tag}.whl"
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, content in files.items():
        archive.writestr(name, content)
print(wheel)
