#!/usr/bin/env bash
# The published single-node flow of rounds 5.x, step by step as docs/launch-flow of the submissions describe it, written anew
# for comparison: a detached container that sleeps for ever, a fixed wait of five seconds, one `exec` per run.
#
#   published_flow.sh IMAGE LOGDIR NEXP [NAME=VALUE ...]      the rest is the environment of the runs
set -euo pipefail
image=$1 logdir=$2 nexp=$3
shift 3
name=published_flow_$$
mkdir -p "$logdir"
options=()
for pair in "$@"; do options+=(--env "$pair"); done
docker rm --force "$name" >/dev/null 2>&1 || true
trap 'docker rm --force "$name" >/dev/null' EXIT
docker run --rm --init --detach --network=host --uts=host --ipc=host --device=/dev/dri --device=/dev/kfd \
  --security-opt=seccomp=unconfined --name="$name" --volume "$logdir:/results" "$image" sleep infinity >/dev/null
sleep 5
docker exec "$name" true
for ((i = 0; i < nexp; i++)); do
  sync && echo 3 >/proc/sys/vm/drop_caches
  docker exec --workdir /workspace/code "${options[@]}" --env "SEED=$RANDOM" --env SLURM_NNODES=1 --env SLURM_NODEID=0 \
    "$name" bash ./run_and_time.sh 2>&1 | tee "$logdir/result_$i.txt" >/dev/null
done
