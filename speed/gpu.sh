#!/usr/bin/env bash
# Measurements on one GPU, the most valuable first, each part within its limit; tables in FOLDER/results.txt.
#
#   bash speed/gpu.sh FOLDER .venv-parity/bin/python       # an interpreter with open_clip and CUDA
#   SMALL=1 bash speed/gpu.sh FOLDER .venv-parity/bin/python  # smallest sizes: a trial on a CPU
#   ONLY=loss bash speed/gpu.sh FOLDER -                   # parts whose names begin so; -: no torch
#
# Each part has a time limit of its own; one that fails or exceeds it does not stop the others. All
# together take about TOTAL seconds, by default 570 (3600 of SMALL): what they leave unused goes to
# the last parts.
set -uo pipefail
folder=${1:?a folder for the results} torch=${2:?an interpreter with open_clip, or - for none}
PYTHON=${PYTHON:-python} SMALL=${SMALL:-} ONLY=${ONLY:-}
TOTAL=${TOTAL:-$([[ $SMALL ]] && echo 3600 || echo 570)}
mkdir -p "$folder"
here=$(cd "$(dirname "$0")" && pwd)
beside=(--torch-python "$torch" --torch-compile)
[[ $torch == - ]] && beside=(--no-torch)

part() { # name, seconds, script, arguments
  local name=$1 limit=$2 script=$3 start=$SECONDS
  shift 3
  [[ $name == $ONLY* ]] || return 0
  [[ $SMALL ]] && limit=$((3 * limit))  # few cores compile for long
  ((limit > TOTAL - SECONDS)) && limit=$((TOTAL - SECONDS))
  ((limit < 20)) && { echo "== $name: no time left" | tee -a "$folder/results.txt"; return; }
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
# A side compiles for 45 s on an H200; all sides of a part start at once.
step step_b32 130 B/32 1024 "${beside[@]}"
step step_b16 130 B/16 512 "${beside[@]}"
step step_l14 140 L/14 192 "${beside[@]}"
# siglip-kernel 0.1.2 on an H100: 65,536 pairs of 768 in 48.8 ms, 1.4 GB
sizes=(32768 65536) x3=(4096 32768) precisions=(highest TF32_TF32_F32_X3 BF16_BF16_F32_X3)
[[ $SMALL ]] && sizes=(64) x3=(64) precisions=(highest default)
loss=(--chunk 4096 --gib 100 --tflop 1000 --width 768)
part loss 60 loss.py --losses infonce sigmoid --batches "${sizes[@]}" "${loss[@]}"
part loss_x3 60 loss.py --losses infonce --batches "${x3[@]}" "${loss[@]}" \
  --precisions "${precisions[@]}"
step step_hard_texts 100 B/32 512 --no-torch --hard NegCLIP SVLC HP+HN
step step_b32_gelu 130 B/32 1024 --gelu "${beside[@]}"
heads=(--models B/16 --batches 256) cases=(--cases 10000)
[[ $SMALL ]] && heads=(--models mini --batches 4 --rounds 1) cases=(--cases 20 --images 8)
part heads 60 heads.py "${heads[@]}"
[[ $torch == - ]] || part evaluation 90 evaluation.py --torch-python "$torch" "${cases[@]}"
step step_b16_gelu 130 B/16 512 --gelu "${beside[@]}"
step step_l14_gelu 140 L/14 192 --gelu "${beside[@]}"
