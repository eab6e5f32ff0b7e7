#!/usr/bin/env bash
# Two network namespaces on this machine, joined by a cable (veth), are two hosts: a program with two ranks on each.
# two_hosts.sh <sherd or torchrun, the command that starts them> <program> [<argument>...]. Exits with 77, and says why, where namespaces
# are not permitted. The commands are those of docs/guide.md.
set -u

launcher=$1
program=("${@:2}")
first=sherd-$$-a
second=sherd-$$-b
log=$(mktemp -d)

skip() {
  echo "skipped: $1"
  exit 77
}
cleanup() {
  ip netns delete "$first" 2>/dev/null
  ip netns delete "$second" 2>/dev/null
  rm -rf "$log"
}
trap cleanup EXIT

command -v ip >/dev/null || skip "there is no command ip here (package iproute2)"
ip netns add "$first" 2>"$log/why" || skip "network namespaces are not permitted here: $(cat "$log/why")"
ip netns add "$second" 2>"$log/why" || skip "network namespaces are not permitted here: $(cat "$log/why")"
ip link add "va-$$" netns "$first" type veth peer name "vb-$$" netns "$second" 2>"$log/why" ||
  skip "veth is not permitted here: $(cat "$log/why")"

set -e
ip -n "$first" address add 10.97.0.1/24 dev "va-$$"
ip -n "$second" address add 10.97.0.2/24 dev "vb-$$"
for end in "$first va-$$" "$second vb-$$"; do
  read -r host device <<<"$end"
  ip -n "$host" link set "$device" up
  ip -n "$host" link set lo up
done
set +e

on_host() { # <namespace> <number> <where the first host is>
  local words
  case $launcher in
  *torchrun)
    words=("$launcher" --nnodes 2 --node-rank "$2" --nproc-per-node 2 --master-addr "${3%:*}" --master-port "${3#*:}" --no-python)
    ;;
  *) words=("$launcher" run -n 2 --nnodes 2 --node-rank "$2" --master "$3" --) ;;
  esac
  ip netns exec "$1" timeout 100 "${words[@]}" "${program[@]}"
}
run_both() { # <where the first host is, as it says itself>
  on_host "$second" 1 10.97.0.1:29500 >"$log/second" 2>&1 &
  local other=$! code other_code
  on_host "$first" 0 "$1"
  code=$?
  wait "$other"
  other_code=$?
  cat "$log/second"
  echo "the hosts ended with $code and $other_code"
  [[ $code -eq 0 && $other_code -eq 0 ]]
}
run_both 10.97.0.1:29500 || exit 1
# The first host may call itself what only it can; torchrun listens there alone.
[[ $launcher == *torchrun ]] || run_both 127.0.0.1:29500
