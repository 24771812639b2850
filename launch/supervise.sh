#!/usr/bin/env bash
# Runs a command and restarts it on exit codes 30 (infrastructure), 31 (hang) and 75 (stopped by a
# signal, state saved). Any other code, 0 included, ends it at once.
#
#   bash "$(vlc-jax launch supervise.sh)" COMMAND [ARGUMENTS]
#
# The wait before a restart doubles from VLC_RESTART_WAIT (10 seconds) up to VLC_RESTART_WAIT_MAX
# (600). After VLC_RESTARTS (10) restarts it ends with the last code. A command that ran for
# VLC_RESTART_RESET (3600) seconds made progress: it resets count and wait.
# SIGTERM and SIGINT are forwarded as SIGTERM, and prevent further restarts.
set -uo pipefail

refuse() {
  echo "supervise.sh: $1" >&2
  echo "usage: supervise.sh COMMAND [ARGUMENTS]" >&2
  exit 2
}

setting() { # NAME DEFAULT
  local value=${!1:-$2}
  [[ $value =~ ^[0-9]+$ ]] || refuse "$1 must be a whole number of at least 0, not '$value'"
  echo "$value"
}

(($#)) || refuse "the command is missing"
restarts=$(setting VLC_RESTARTS 10) || exit
first_wait=$(setting VLC_RESTART_WAIT 10) || exit
longest_wait=$(setting VLC_RESTART_WAIT_MAX 600) || exit
reset=$(setting VLC_RESTART_RESET 3600) || exit

signals=0 pending='' child=''
pass_on() {
  ((signals += 1))
  kill -s TERM "$child" 2>/dev/null || pending=yes # no child at this moment
}
trap pass_on TERM INT

finish() { # waits for the child despite signals; sets $code to its exit code
  local before
  [[ $pending ]] && kill -s TERM "$child" 2>/dev/null
  pending=''
  while :; do
    before=$signals
    wait "$child"
    code=$?
    ((signals == before)) && break # else a signal interrupted the wait
  done
}

count=0 pause=$first_wait
while :; do
  started=$SECONDS
  # In its own session: else Ctrl-C in a terminal would reach it twice, directly and forwarded.
  setsid "$@" &
  child=$!
  finish
  case $code in
    30 | 31 | 75) ;;
    *) exit "$code" ;;
  esac
  ((signals)) && exit "$code"
  ((SECONDS - started >= reset)) && count=0 pause=$first_wait
  if ((count >= restarts)); then
    echo "supervise.sh: ended with $code after $count restarts" >&2
    exit "$code"
  fi
  ((count += 1))
  ((pause = pause < longest_wait ? pause : longest_wait))
  echo "supervise.sh: ended with $code; restart $count of $restarts in $pause s" >&2
  last=$code
  sleep "$pause" &
  child=$!
  finish
  ((signals)) && exit "$last"
  ((pause *= 2))
done
