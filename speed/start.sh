#!/usr/bin/env bash
# Seconds from the start of a process to its first result, beside open_clip's in the same run.
#
#   bash speed/start.sh .venv-parity/bin/python      # an interpreter with open_clip
#   PYTHON=.venv/bin/python ROUNDS=5 bash speed/start.sh .venv-parity/bin/python
#   bash speed/start.sh .venv-parity/bin/python captions.txt  # embeds its lines, too
#
# A ViT-B/32 with random weights scores an image with two texts. Each row is a new process and goes
# further than the row above it: imports, then the weights, then the first scores. "compiled before":
# with JAX's folder of compiled programs, from an earlier process. Rows take turns; prints the least
# CPU seconds of all rounds (less sensitive to other processes) and the least by the clock.
set -euo pipefail
TORCH=${1:?an interpreter with open_clip} CAPTIONS=${2:-}
PYTHON=${PYTHON:-python} ROUNDS=${ROUNDS:-3}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
export PYTHONPATH=$(cd "$(dirname "$0")/.." && pwd) JAX_PLATFORMS=cpu
# bytecode as of an installed package, written by the round that is not counted
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$folder/bytecode

open_clip="from vlc_jax.tools.load_exported import without_torchvision as first; first(); import open_clip"
"$TORCH" -W ignore -c "$open_clip, torch, pathlib, numpy
from speed import harness
harness.photo(numpy.random.default_rng(0), 640, 480).save('$folder/0.jpg')
torch.save(open_clip.create_model('ViT-B-32').state_dict(), '$folder/weights.pt')
print(*pathlib.Path(open_clip.__file__).parent.glob('bpe_simple_vocab*'))
print(harness.versions())" 2>/dev/null >"$folder/torch"
{ read -r vocabulary; read -r versions; } <"$folder/torch"
for number in 1 2 3 4 5 6 7; do cp "$folder/0.jpg" "$folder/$number.jpg"; done
for number in 0 1 2 3 4 5 6 7; do
  echo "{\"image\": \"$number.jpg\", \"caption\": \"photo $number\"}"
done >"$folder/captions.jsonl"
echo "$(uname -m), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), $versions, $("$PYTHON" -c \
  'import jax, flax; from speed import harness; print(harness.versions())')"
echo "ROUNDS=$ROUNDS bash $0 $*"

torch_model="model = open_clip.create_model('ViT-B-32', pretrained='$folder/weights.pt').eval()"
torch_scores="from speed.torch_evaluation import pixels, torch
with torch.inference_mode():
    image = model.encode_image(pixels('$folder/0.jpg')[None], normalize=True)
    text = open_clip.get_tokenizer('ViT-B-32')(['a dog', 'a cat'])
    print(image @ model.encode_text(text, normalize=True).T)"
texts="texts = open('$CAPTIONS').read().splitlines()"
torch_texts="import torch; $texts; tokens = open_clip.get_tokenizer('ViT-B-32')(texts)
with torch.inference_mode():
    for start in range(0, len(texts), 64): model.encode_text(tokens[start:start + 64], normalize=True)"
shape=(--family clip --variant B/32 --image_size 224 --activation gelu --tokenizer "$vocabulary")
load="vlc_jax.load('$folder/weights.pt', family='clip', variant='B/32', image_size=224,
  activation='gelu', tokenizer='$vocabulary')"
full="import vlc_jax.encode.encoder as e; e.text_lengths = lambda *_, **__: None"
score=("$PYTHON" -m vlc_jax score --model "$folder/weights.pt" "${shape[@]}"
  --images "$folder/0.jpg" --texts "a dog" "a cat")

row() { # name, command
  local name=$1
  shift
  [[ $name == *compiled* ]] && export JAX_COMPILATION_CACHE_DIR=$folder/compiled
  if ! { TIMEFORMAT='%U %S %R'; time "$@" >/dev/null 2>"$folder/error"; } 2>"$folder/time"; then
    tail -3 "$folder/error" >&2
    exit 1
  fi
  unset JAX_COMPILATION_CACHE_DIR
  echo "$name|$(tail -1 "$folder/time")" >>"$folder/round_$round"
}
for round in $(seq 0 "$ROUNDS"); do
  row "open_clip: imports" "$TORCH" -c "$open_clip"
  row "open_clip: weights" "$TORCH" -c "$open_clip; $torch_model"
  row "open_clip: scores" "$TORCH" -c "$open_clip; $torch_model
$torch_scores"
  row "here: imports" "$PYTHON" -c "import vlc_jax; vlc_jax.load"
  row "here: weights" "$PYTHON" -c "import vlc_jax; $load"
  row "here: first text embedded" "$PYTHON" -c "import vlc_jax; $load.embed_texts(['a dog'])"
  row "here: scores (vlc-jax score)" "${score[@]}"
  row "here: scores, compiled before" "${score[@]}"
  if [[ $CAPTIONS ]]; then
    row "open_clip: texts" "$TORCH" -c "$open_clip; $torch_model; $torch_texts"
    row "here: texts" "$PYTHON" -c "import vlc_jax; $texts; $load.embed_texts(texts)"
    row "here: texts, all at 77 tokens" \
      "$PYTHON" -c "import vlc_jax; $full; $texts; $load.embed_texts(texts)"
  fi
  row "vlc-jax --list" "$PYTHON" -m vlc_jax --list
  row "imports of a run" "$PYTHON" -c "import vlc_jax.main"
  for name in "one step of configs/records.py" "the same, compiled before"; do
    row "$name" "$PYTHON" -m vlc_jax --workdir "$folder/${name%% *}_$round" \
      --config "records:path=$folder/captions.jsonl,holdout=0,steps=1"
  done
done
# round 0 fills the caches; it counts only where no other one was asked for
((ROUNDS)) && rm "$folder/round_0"
cat "$folder"/round_* | awk 'BEGIN { FS = "|"; printf "%-38s%10s%10s\n", "", "CPU s", "s" }
  { split($2, t, " "); cpu = t[1] + t[2]
    if (!($1 in least)) { order[++n] = $1; least[$1] = cpu; clock[$1] = t[3] }
    if (cpu < least[$1]) least[$1] = cpu
    if (t[3] < clock[$1]) clock[$1] = t[3] }
  END { for (i = 1; i <= n; i++) printf "%-38s%10.1f%10.1f\n", order[i], least[order[i]], clock[order[i]] }'
