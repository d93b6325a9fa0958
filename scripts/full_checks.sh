#!/bin/sh
# The checks that need other libraries or minutes: what `./test --full` does after the plain tests.
# Usage: scripts/full_checks.sh BUILD_FOLDER
#
# 1. A virtual environment, build/checks/venv, with the Python packages below; made once.
# 2. The fixtures of tests/model_runner are made anew by Hugging Face's libraries and compared with
#    those that are there: tokens of 2,000 strings and chat templates, logits of the default model
#    on 20 texts of 256 tokens, logits of tiny models of every family.
# 3. The runner's logits are compared with all of those 20 texts; plain tests take four.
# 4. Every random test runs with ten new seeds, which it prints; plain tests always take the same.
set -eu
cd "$(dirname "$0")/.."
build=${1:?usage: scripts/full_checks.sh BUILD_FOLDER}
folder=build/checks
packages="torch==2.13.0 transformers==5.22.2 gguf==0.19.0 accelerate==1.15.0 tokenizers==0.23.3
  jinja2==3.1.6"

if [ ! -f $folder/packages ] || [ "$(cat $folder/packages)" != "$packages" ]; then
  echo "full checks: installs into $folder/venv:" $packages
  mkdir -p $folder
  if ! python3 -m venv $folder/venv || ! $folder/venv/bin/pip install --quiet $packages; then
    echo "full checks: the packages above are missing. They need Python's venv (Debian:" \
      "python3-venv) and the network (PyPI)." >&2
    exit 1
  fi
  echo "$packages" > $folder/packages
fi
model=$(python3 scripts/fetch_model.py)

# Progress bars are for people who wait for one model.
export TQDM_DISABLE=1 HF_HUB_OFFLINE=1
check() {
  echo "full checks: tests/model_runner/$1"
  $folder/venv/bin/python "tests/model_runner/$@"
}
check tokenizer_truth.py --model "$model" --check
check logits_truth.py --model "$model" --check
check families_truth.py --check

echo "full checks: the default model's logits on all texts"
QUIRE_TEST_FULL=1 QUIRE_MODEL="$model" \
  "$build/tests/model_runner_tests" --gtest_brief=1 --gtest_filter='Logits.*'

for round in 1 2 3 4 5 6 7 8 9 10; do
  echo "full checks: random tests with new seeds, round $round of 10"
  for program in base codec page cache attend property; do
    log=$folder/$program.log
    QUIRE_TEST_SEED=random "$build/tests/${program}_tests" --gtest_brief=1 > "$log" 2>&1 ||
      { cat "$log"; exit 1; }
  done
done
echo "full checks: all passed"
