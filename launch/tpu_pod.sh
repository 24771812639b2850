#!/usr/bin/env bash
# A run on all workers of a TPU VM, from your machine.
#
#   launch/tpu_pod.sh [--dry-run] NAME ZONE setup
#   launch/tpu_pod.sh [--dry-run] NAME ZONE train --config FILE --workdir DIR [flags of vlc_jax.main]
#   launch/tpu_pod.sh [--dry-run] NAME ZONE log
#   launch/tpu_pod.sh [--dry-run] NAME ZONE stop
#
# setup copies the last commit of this checkout to every worker and installs it there. train starts
# the run under launch/supervise.sh; it continues if your machine disconnects. log follows the output
# of worker 0. stop lets the run save its state and end; the same train command resumes it.
# --dry-run prints the commands. DIR must be on a file system that all workers mount.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
  echo "launch/tpu_pod.sh: $1" >&2
  echo "usage: launch/tpu_pod.sh [--dry-run] NAME ZONE setup|train|log|stop [flags]" >&2
  exit 2
}

run=()
[[ ${1:-} == --dry-run ]] && run=(print) && shift
print() { echo "${*@Q}"; }

(($# >= 3)) || refuse "NAME, ZONE and a command are needed, not '$*'"
name=$1 zone=$2 verb=$3
shift 3
vm=(gcloud compute tpus tpu-vm)

on() { # WORKER COMMAND
  "${run[@]}" "${vm[@]}" ssh "$name" --zone="$zone" --worker="$1" --command="$2"
}

case $verb in
  setup)
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    "${run[@]}" git archive --format=tar.gz --output="$folder/vlc_jax.tar.gz" HEAD
    "${run[@]}" "${vm[@]}" scp "$folder/vlc_jax.tar.gz" "$name:" --zone="$zone" --worker=all
    on all "mkdir -p vlc_jax && tar -xzf vlc_jax.tar.gz -C vlc_jax && bash vlc_jax/launch/install.sh tpu"
    ;;
  train)
    [[ " $*" == *" --config"[=\ ]* ]] || refuse "--config FILE is missing"
    [[ " $*" == *" --workdir"[=\ ]* ]] || refuse "--workdir DIR is missing"
    # setsid and no terminal: the end of the connection must not signal the run
    printf -v start '%s' \
      "cd vlc_jax && if kill -0 \"\$(cat train.pid)\" 2>/dev/null; then echo already running; exit 1; fi; " \
      "setsid launch/supervise.sh .venv/bin/python -m vlc_jax.main --coordinator=auto ${*@Q}" \
      " >>train.log 2>&1 </dev/null & echo \$! >train.pid"
    on all "$start"
    ;;
  log) on 0 "tail -n 50 -F vlc_jax/train.log" ;;
  stop) on all "kill -s TERM \"\$(cat vlc_jax/train.pid)\"" ;;
  *) refuse "unknown '$verb'; known: setup, train, log, stop" ;;
esac
