#!/usr/bin/env bash
# First minutes on a card, most telling first. Each part has a time limit, so that a hang costs one part only: ten minutes at most,
# under six on an H200. In the repository's root on the GPU machine: bash .whl/first_card.sh OUT (what wheels.py has made)
set -uo pipefail
out=${1:-/tmp/card}; mkdir -p "$out"
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl || exit 1
export PYTHONPATH="$PWD:$PWD/scripts/bench:/tmp/site" PYTHONUNBUFFERED=1
SECONDS=0
run() {  # NAME LIMIT COMMAND...
  local name=$1 limit=$2; shift 2
  echo "== $name, at $SECONDS s" | tee -a "$out/log.txt"
  timeout -k 5 "$limit" "$@" >"$out/part.txt" 2>&1
  echo "   exit code $?, at $SECONDS s" | tee -a "$out/log.txt"
  cat "$out/part.txt" >>"$out/log.txt"
  tail -n "${LINES_SHOWN:-4}" "$out/part.txt" | cut -c1-200
}
run card 15 nvidia-smi
run import 40 python3 -c 'import torch, triton, transformers, gencli, processors; print(torch.__version__, triton.__version__, transformers.__version__, torch.cuda.get_device_name())'
run story 60 python3 -m gencli run --device cuda --seed 7 --top-p 0.9 --stats "Once upon a time"
run same_text 80 bash -c 'for o in "cpu auto" "cuda auto" "cuda off"; do set -- $o; python3 -m gencli run -q --device $1 --cuda-graphs $2 --dtype float32 -t 0 --max-tokens 60 "Once upon a time" | md5sum & done; wait'
# Kernels of the benchmark are compiled beside the tests, so that it finds them in Triton's cache.
timeout 230 python3 .whl/bench.py /dev/null --steps 2 parts:1B chains steps:1B >"$out/warm.txt" 2>&1 &
tests=$(grep -rlE 'import interpreted|mark\.gpu|ON_A_CARD' tests --include='test_*.py')
GENCLI_KERNELS=cuda LINES_SHOWN=30 run gpu_tests 230 python3 -m pytest -m gpu -p no:cacheprovider -o filterwarnings=default \
  -n 12 --dist worksteal --maxfail=60 --tb=short --durations=10 -rfE $tests
cp "$out/part.txt" "$out/gpu_tests.txt"
pkill -f .whl/bench.py; sleep 1
LINES_SHOWN=40 run profile 60 python3 .whl/step_profile.py "$out/profile.txt"
run bench 110 python3 .whl/bench.py "$out/bench.jsonl" steps:1B chains parts:1B
rm -f "$out/part.txt" "$out/warm.txt"
echo "all at $SECONDS s"
