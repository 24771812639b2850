#!/usr/bin/env bash
# Measurements on one GPU, the most valuable first, each part within its limit; tables in FOLDER/results.txt.
#
#   bash speed/gpu.sh FOLDER .venv-parity/bin/python       # an interpreter with open_clip and CUDA
#   SMALL=1 bash speed/gpu.sh FOLDER .venv-parity/bin/python  # smallest sizes: a trial on a CPU
#   ONLY=loss bash speed/gpu.sh FOLDER -                   # parts whose names begin so; -: no torch
#
# Each part has a time limit of its own; one that fails or exceeds it does not stop the others.
set -uo pipefail
folder=${1:?a folder for the results} torch=${2:?an interpreter with open_clip, or - for none}
PYTHON=${PYTHON:-python} SMALL=${SMALL:-} ONLY=${ONLY:-}
mkdir -p "$folder"
here=$(cd "$(dirname "$0")" && pwd)
beside=(--torch-python "$torch" --torch-compile)
[[ $torch == - ]] && beside=(--no-torch)

part() { # name, seconds, script, arguments
  local name=$1 limit=$2 script=$3 start=$SECONDS
  shift 3
  [[ $name == $ONLY* ]] || return 0
  [[ $SMALL ]] && limit=$((3 * limit))  # few cores compile for long
  timeout -k 10 "$limit" "$PYTHON" "$here/$script" "$@" >"$folder/$name.txt" 2>"$folder/$name.err"
  local code=$?
  {
    echo "== $name: exit code $code after $((SECONDS - start)) of $limit s"
    cat "$folder/$name.txt"
    ((code)) && tail -3 "$folder/$name.err"
    echo
  } | tee -a "$folder/results.txt"
}

: >"$folder/results.txt"
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || nproc; } \
  2>/dev/null | tee -a "$folder/results.txt"
step() { # name, seconds, model, batch, further arguments
  local name=$1 limit=$2 model=$3 batch=$4
  shift 4
  [[ $SMALL ]] && model=S/16 batch=4
  part "$name" "$limit" step.py --model "$model" --batch "$batch" --rounds "${SMALL:-10}" "$@"
}
step step_b32 200 B/32 1024 "${beside[@]}"
step step_b16 160 B/16 512 "${beside[@]}"
step step_l14 150 L/14 192 "${beside[@]}"
step step_b32_gelu 140 B/32 1024 --gelu "${beside[@]}"
sizes=(32768 65536)
[[ $SMALL ]] && sizes=(64)
sizes=(--losses infonce sigmoid --batches "${sizes[@]}" --chunk 4096 --gib 100 --tflop 1000)
part loss 90 loss.py "${sizes[@]}"
[[ $SMALL ]] || part loss_x3 60 loss.py "${sizes[@]}" --precision TF32_TF32_F32_X3
step step_hard_texts 90 B/32 512 --no-torch --hard NegCLIP SVLC HP+HN
heads=(--models B/16 --batches 256) cases=(--cases 10000)
[[ $SMALL ]] && heads=(--models mini --batches 4 --rounds 1) cases=(--cases 20 --images 8)
part heads 60 heads.py "${heads[@]}"
[[ $torch == - ]] || part evaluation 90 evaluation.py --torch-python "$torch" "${cases[@]}"
