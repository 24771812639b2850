#!/usr/bin/env bash
# One run as several processes on this machine, each with simulated CPU devices: a small model of a
# cluster.
#
#   launch/local.sh PROCESSES DEVICES --config FILE --workdir DIR [flags of vlc_jax.main]
#
# Shows the output of process 0; the others print to DIR/logs/process_N.txt. Forwards SIGTERM and
# SIGINT to all processes, once each. Exits with the code of the first process that fails, after
# ending the others, or with 0. A process that something else killed has no code of a run: then the
# code of the others decides, or 30 (infrastructure: run the same command again). PYTHON:
# interpreter instead of that of .venv or PATH.
set -uo pipefail

refuse() {
  echo "launch/local.sh: $1" >&2
  echo "usage: launch/local.sh PROCESSES DEVICES --config FILE --workdir DIR [flags]" >&2
  exit 2
}

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || refuse "the number of processes must be at least 1, not '${1:-}'"
[[ ${2:-} =~ ^[1-9][0-9]*$ ]] || refuse "the devices of a process must be at least 1, not '${2:-}'"
processes=$1 devices=$2
shift 2
flags=("$@")

workdir=
while (($#)); do
  case $1 in
    --workdir=*) workdir=${1#*=} ;;
    --workdir) workdir=${2:-} ;;
    --coordinator* | --num_processes* | --process_id*) refuse "$1 is set here, for every process" ;;
  esac
  shift
done
[[ $workdir ]] || refuse "--workdir DIR is missing"

PATH=$PWD/.venv/bin:$PATH
python=${PYTHON:-python}
[[ -x $(command -v "$python") ]] || refuse "there is no $python; name an interpreter in PYTHON"
mkdir -p "$workdir/logs" || refuse "cannot write to $workdir"
free_port='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
port=$("$python" -c "$free_port") || exit

export JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=$devices

start() { # INDEX
  # In its own session: else Ctrl-C in a terminal would reach it twice, directly and forwarded, and
  # the second signal ends a run at once.
  exec setsid "$python" -m vlc_jax.main "${flags[@]}" \
    --coordinator="127.0.0.1:$port" --num_processes="$processes" --process_id="$1"
}

pids=()
pass_on() { kill -s "$1" "${pids[@]}" 2>/dev/null; }
trap 'pass_on TERM' TERM INT # a background job ignores SIGINT

start 0 &
pids+=($!)
for ((i = 1; i < processes; i++)); do
  start "$i" >"$workdir/logs/process_$i.txt" 2>&1 &
  pids+=($!)
done

is_killed() { # CODE: by a signal that is not the second of a stop
  (($1 > 128 && $1 != 130 && $1 != 143))
}

failed=0 killer=
while ((${#pids[@]})); do
  ended=
  wait -n -p ended "${pids[@]}" 2>/dev/null
  code=$?
  # Interrupted by a signal; or, of processes that ended at once, bash does not return the others.
  for pid in "${pids[@]}"; do
    [[ ${ended:-} ]] && break
    kill -0 "$pid" 2>/dev/null && continue
    wait "$pid" 2>/dev/null
    ended=$pid code=$?
  done
  [[ ${ended:-} ]] || continue
  for i in "${!pids[@]}"; do
    [[ ${pids[i]} == "$ended" ]] || continue
    unset "pids[i]"
    # of the others, ended below, a code of a run counts more than the signal that killed the first
    is_killed "$failed" && case $code in
      2 | 3 | 10 | 20 | 30 | 31 | 75) failed=$code ;;
    esac
    if ((code && !failed)); then
      failed=$code
      echo "process $i of $processes ended with $code" >&2
      ((i)) && tail -n 20 "$workdir/logs/process_$i.txt" >&2
      ((code == 75)) && continue # all processes save their state and stop by themselves
      pass_on TERM
      (sleep 10 && pass_on KILL) >/dev/null 2>&1 &
      killer=$!
    fi
  done
done
[[ $killer ]] && kill "$killer" 2>/dev/null
is_killed "$failed" && failed=30
exit "$failed"
