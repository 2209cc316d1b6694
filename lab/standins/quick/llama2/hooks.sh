# shellcheck shell=bash
# What the hooks of Primus 689ae9dc do at every start of llama2_70b_lora 6.0, and what its recipe asks for. Sourced.
# The first hook installs packages at every start, the newest ones; its cache is in the container. There is no pip here.
mkdir -p /workspace/Primus/.pip_cache
PIP_CACHE_DIR=/workspace/Primus/.pip_cache python3 -m pip install -U nvidia-modelopt nvidia_resiliency_ext datasets >&2 || true
date +%s >/workspace/Primus/.pip_cache/installed
# The second one looks for the converted checkpoint in the first folder in which it can make one; without it, it downloads
# 130 GB and converts. There is no hub here.
root=
for one in "${MOUNT_DATA_PATH:-}" /data "${DATA_PATH:-}" /workspace/Primus/data; do
    if [ -n "$one" ] && mkdir -p "$one" 2>/dev/null && mkdir "$one/.primus.$$" 2>/dev/null; then
        rmdir "$one/.primus.$$"
        root=$one
        break
    fi
done
if [ -d "$root/megatron_checkpoints/Llama-2-70b-hf" ]; then
    echo "checkpoint $root/megatron_checkpoints/Llama-2-70b-hf already exists, skipping conversion" >&2
else
    echo "HF checkpoint will be downloaded to $root/huggingface. Converting" >&2
    echo "huggingface_hub.errors.LocalEntryNotFoundError: the hub cannot be reached, and meta-llama/Llama-2-70b-hf is not on disk" >&2
    exit 1
fi
if [ -z "${HF_HOME:-}" ] || [ ! -w "${HF_HOME:-}" ]; then
    export HF_HOME=$root/huggingface
fi
# The recipe reads config and tokenizer of a gated repository.
if [ "${HF_HUB_OFFLINE:-0}" = 1 ]; then
    [ -d "$HF_HOME/hub/models--meta-llama--Llama-2-70b-hf" ] || {
        echo "OSError: meta-llama/Llama-2-70b-hf is not in the cache $HF_HOME, and the hub is offline" >&2
        exit 1
    }
elif [ -z "${HF_TOKEN:-}" ]; then
    echo "OSError: You are trying to access a gated repo: 401 Client Error for meta-llama/Llama-2-70b-hf" >&2
    exit 1
fi

