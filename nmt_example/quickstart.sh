#!/usr/bin/env bash
# Builds the trainer, trains a small translator of English numbers, dates and prices into German with two
# processes, shows what it can do, and says what to type next. Installs what is missing with apt.
#   bash nmt_example/quickstart.sh [flags of ddl_nmt]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
build=build-quickstart
model=$build/model

bash tests/install_dependencies.sh build

cuda=OFF
[ ! -e /dev/nvidia0 ] || cuda=AUTO
# What takes the least time to compile: -Og, and a compiler that collects no garbage before its heap has 1 GiB.
# Kernels are compiled with -O3 all the same, so training is as fast.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-Og -DNDEBUG --param=ggc-min-heapsize=1048576" \
  -DDDL_BUILD_EXAMPLES=ON -DDDL_BUILD_TESTS=OFF -DDDL_BUILD_BENCHMARKS=OFF -DDDL_UNITY_BUILD=ON -DDDL_WITH_CUDA="$cuda"
cmake --build "$build" --target ddl_nmt

# Open MPI refuses to run as root or with more ranks than cores; in containers that forbid ptrace, it cannot
# copy between processes directly; and it would bind each of two ranks to one core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
rm -rf "$model"
mpirun --oversubscribe --bind-to none -np 2 "$build/bin/ddl_nmt" train --preset=quickstart --out_dir="$model" "$@"

# A build without Cairo says that it cannot draw.
echo
echo "The run as a picture:"
"$build/bin/ddl_nmt" report "$model" || true
sentence="The answer is three thousand four hundred and twelve."
echo
echo "$sentence"
echo "$sentence" | "$build/bin/ddl_nmt" translate --model="$model"

cat <<EOF

The model's checkpoints are in $root/$model. What to type next:

  cd $(printf %q "$root")
EOF
[ "$(id -u)" != 0 ] || echo "  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
cat <<EOF

  # Translate a sentence:
  echo "The answer is three thousand four hundred and twelve." | $build/bin/ddl_nmt translate --model=$model

  # Train on text files, here Multi30k (downloads it):
  bash nmt_example/get_multi30k.sh $build/multi30k
  mpirun --oversubscribe --bind-to none -np 2 $build/bin/ddl_nmt train --preset=multi30k --out_dir=$build/multi30k-model \\
    --train_prefix=$build/multi30k/train --dev_prefix=$build/multi30k/val --test_prefix=$build/multi30k/test_2016_flickr

  # See a model's size and all options without training; all commands; run the tests:
  $build/bin/ddl_nmt train --preset=ddl_reference --describe
  $build/bin/ddl_nmt --help
  bash tests/run.sh
EOF
