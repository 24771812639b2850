#!/usr/bin/env bash
# A run of your project on all workers of a TPU VM, from your machine.
#
#   bash "$(vlc-jax launch tpu_pod.sh)" [OPTIONS] NAME ZONE setup
#   bash "$(vlc-jax launch tpu_pod.sh)" [OPTIONS] NAME ZONE train --config FILE --workdir DIR [flags]
#   bash "$(vlc-jax launch tpu_pod.sh)" [OPTIONS] NAME ZONE log
#   bash "$(vlc-jax launch tpu_pod.sh)" [OPTIONS] NAME ZONE stop
#
# setup copies the last commit of the current folder to every worker, and installs what its
# requirements.txt names. train makes a service of systemd that runs supervise.sh: it continues if
# your machine disconnects, and starts again when a host reboots. log follows the output of worker 0.
# stop lets the run save its state and end; the same train command resumes it. DIR is an address or
# on a file system that all workers mount.
#
# --dry-run: print the commands
# --project=PROJECT: instead of gcloud's own
# --internal-ip: connect inside the network    --tunnel-through-iap: by Identity-Aware Proxy
# shellcheck disable=SC2016  # variables in single quotes are those of the workers
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

refuse() {
  echo "tpu_pod.sh: $1" >&2
  echo "usage: tpu_pod.sh [--dry-run] [OPTIONS] NAME ZONE setup|train|log|stop [flags]" >&2
  exit 2
}
print() { echo "${*@Q}"; }

run=() options=() vm=(gcloud compute tpus tpu-vm)
while [[ ${1:-} == --* ]]; do
  case $1 in
    --dry-run) run=(print) ;;
    --project=?* | --internal-ip) options+=("$1") ;;
    --tunnel-through-iap) options+=("$1") vm=(gcloud alpha compute tpus tpu-vm) ;;
    *) refuse "unknown option $1" ;;
  esac
  shift
done
(($# >= 3)) || refuse "NAME, ZONE and a command are needed, not '$*'"
name=$1 zone=$2 verb=$3
shift 3

on() { # WORKER COMMAND
  "${run[@]}" "${vm[@]}" ssh "$name" --zone="$zone" "${options[@]}" --worker="$1" --command="$2"
}

case $verb in
  setup)
    git rev-parse --quiet --verify HEAD >/dev/null 2>&1 ||
      refuse "setup copies the last commit of a project, and $PWD has none: git init, add and commit"
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    "${run[@]}" git archive --format=tar.gz --output="$folder/project.tar.gz" HEAD
    "${run[@]}" "${vm[@]}" scp "$folder/project.tar.gz" "$here/install.sh" "$here/supervise.sh" "$name:" \
      --zone="$zone" "${options[@]}" --worker=all
    on all "mkdir -p project && tar -xzf project.tar.gz -C project && cd project && bash ../install.sh tpu"
    ;;
  train)
    [[ " $*" == *" --config"[=\ ]* ]] || refuse "--config FILE is missing"
    [[ " $*" == *" --workdir"[=\ ]* ]] || refuse "--workdir DIR is missing"
    start=('cd "$(dirname "$0")/project"'
      "exec bash ../supervise.sh .venv/bin/vlc-jax --coordinator=auto ${*@Q}")
    # KillMode=mixed: supervise.sh forwards SIGTERM, which a run must get once
    printf -v unit ' "%s"' '[Unit]' Wants=network-online.target \
      'After=network-online.target remote-fs.target' '[Service]' 'User=$USER' \
      'ExecStart=/bin/bash $HOME/train.sh' 'StandardOutput=append:$HOME/train.log' \
      'StandardError=append:$HOME/train.log' KillMode=mixed TimeoutStopSec=180 \
      LimitMEMLOCK=infinity LimitNOFILE=1048576 '[Install]' WantedBy=multi-user.target
    printf -v command '%s; ' \
      'if systemctl is-active --quiet vlc-jax; then echo already running; exit 1; fi' \
      "printf '%s\n' ${start[*]@Q} >train.sh" \
      "printf '%s\n'$unit | sudo tee /etc/systemd/system/vlc-jax.service >/dev/null"
    restart='sudo systemctl daemon-reload && sudo systemctl enable vlc-jax && sudo systemctl restart vlc-jax'
    on all "$command$restart"
    ;;
  log) on 0 "tail -n 50 -F train.log" ;;
  stop) on all "sudo systemctl disable --now vlc-jax" ;;
  *) refuse "unknown '$verb'; known: setup, train, log, stop" ;;
esac
