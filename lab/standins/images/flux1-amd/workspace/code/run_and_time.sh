#!/usr/bin/env bash
# Stand-in for flux1 of round 6.0 as AMD published it. Over several nodes the ranks are numbered by torchrun's c10d
# rendezvous: by the nodes' full host names, whatever node rank it is given. The exit code is 0, whatever happened.
: "${SEED:?SEED is not set}"
export HF_HOME=/hf_home HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DIFFUSERS_OFFLINE=1
ranks=${STANDIN_RANKS:-$DGXNGPU}
start=$SECONDS
echo "flux1 starts on $(hostname)"
read -ra extra <<<"${EXTRA_ARGS:-}"
arguments=(src/train.py "model=$MODEL" "data=$DATA" "${extra[@]}")
if [ "${SLURM_NNODES:-1}" -gt 1 ]; then
    torchrun --nnodes="$SLURM_NNODES" --nproc_per_node="$ranks" --node_rank="$SLURM_NODEID" \
        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
        --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" "${arguments[@]}"
elif [ "${LOCAL_WORLD_SIZE:-1}" -gt 1 ]; then
    python3 -u "${arguments[@]}"
else
    torchrun --nproc_per_node="$ranks" "${arguments[@]}"
fi
echo "flux1 ends on $(hostname) after $((SECONDS - start)) s"
exit 0
