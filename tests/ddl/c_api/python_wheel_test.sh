#!/usr/bin/env bash
# A module installed from the wheel finds its own library, whatever the environment says.
#   python_wheel_test.sh PYTHON FOLDER_OF_THE_MODULE LIBRARY VERSION DIRECTORY
set -euo pipefail
python=$1 module=$2 library=$3 version=$4 directory=$5
unset DDL_LIBRARY
wheel=$("$python" "$module/make_wheel.py" "$module/ddl.py" "$library" "$version" "$directory")
"$python" -m zipfile -e "$wheel" "$directory/site"
cd "$directory"
PYTHONPATH=$directory/site "$python" -c "
import ddl
with ddl.init('-dbg_level 0'):
    assert ddl.__file__ == '$directory/site/ddl.py' and ddl._library._name == '$directory/site/libddl_c.so.0', ddl._library
    assert (ddl.size(), ddl.version()) == (1, '$version')
"
basename "$wheel"
