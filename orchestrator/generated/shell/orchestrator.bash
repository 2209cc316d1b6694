# bash completion. Made by tools/reference.py (make reference).
# shellcheck shell=bash disable=SC2207

__orchestrator_options() {
  case "$1" in
    'init') echo '-o --output --force -y --yes --scheduler --partition --account --log-dir --name --data --short --json' ;;
    'doctor') echo '--round --systems-dir --site --all --all-nodes --nodes --via --deep --exclude-file --ssh-config --parallel --json' ;;
    'demo') echo '--dir --nexp --json' ;;
    'run') echo '--round --systems-dir --site --nexp --env --override --spares --side-by-side --exclude --sbatch --dependency --begin --name --force --json --interval' ;;
    'submit') echo '--round --systems-dir --site --nexp --env --override --spares --side-by-side --exclude --sbatch --dependency --begin --name --force --json --wait --dry-run --test-only' ;;
    'resume') echo '--site --json --wait --nexp --spares --side-by-side --exclude --sbatch --time --dependency --begin --others --edited --allow-changes' ;;
    'cancel') echo '--site --json --others --grace' ;;
    'rm') echo '--failed --force --site --json' ;;
    'ls') echo '--all --site --json' ;;
    'status') echo '--site --json --all -w --watch' ;;
    'watch') echo '--site --json --interval --all' ;;
    'logs') echo '--site --run --attempt --node -f --follow --job' ;;
    'explain') echo '--site --json' ;;
    'nodes') echo '--site --json' ;;
    'score') echo '--ruleset --workload --compliance --rules-from --window --minutes-left --site --json' ;;
    'compare') echo '--ruleset --site --format -o --output --json' ;;
    'report') echo '-o --output --format --all --open --ruleset --workload --window --site' ;;
    'package') echo '-o --output --submitter --division --status --framework --system --implementation --system-json --ruleset --allow-differences --site --systems-dir --verify --json' ;;
    'systems') echo '--json --site --systems-dir --gpu --accelerator --workload --round --submitter --nodes' ;;
    'systems show') echo '--json --site --systems-dir --workload --round --env --why' ;;
    'systems diff') echo '--json --site --systems-dir' ;;
    'systems new') echo '--json --site --systems-dir --accelerator --nodes --gpus-per-node --fabric --workload --round --micro-batch --accumulation -o --output' ;;
    'systems import') echo '--json --site --systems-dir --round --as --workload --image --ruleset --nodes --gpus-per-node --micro-batch --global-batch --accelerator --config --code-dir --engine --execute --dry-run -o --output' ;;
    'systems schema') echo '--json --site --systems-dir' ;;
    'images') echo '--round --systems-dir --image --site --nodes --via --tar --tree --expect --limit --timeout --from --engine --engine-command --ssh-config --command --partial -o --output --always --registry --login --password-stdin --others --json' ;;
    'prepare') echo '--site --override --systems-dir --round --check --dry-run --with --hf-token-file --force-space --image --engine --verbose --json' ;;
    'tune') echo '--nodes --via --profile --workload --round --owner --for --all-owners --sudo --ask-sudo-password --sudo-password-fd --ssh-config --parallel --timeout --site --json' ;;
    'config') echo '--all --set --site --json' ;;
    'validate') echo '--systems-dir --site --json' ;;
    'render') echo '--round --systems-dir --site --nexp --env --override --spares --side-by-side --exclude --sbatch -o --output --diff --image-config --force --json' ;;
    'rehearse') echo '--round --systems-dir --site --nexp --env --override --spares --side-by-side --exclude --sbatch --time --cluster --run-time --fault --faults --seed --resume-after -o --output --node-mtbf --trials --node-repair --within --json' ;;
    'audit') echo '--site --json --only --head' ;;
    'export') echo '-o --output --format --ruleset --workload --site --json' ;;
    'published') echo '--system --benchmark --round --minutes --sources --others --json' ;;
    'docs') echo '-s --search --json' ;;
    'completion') echo '' ;;
  esac
}

__orchestrator_takes() {
  case "$1 $2" in
    'init -o'|'init --output') echo 'files' ;;
    'init --scheduler') echo '=slurm local' ;;
    'init --partition') echo 'any' ;;
    'init --account') echo 'any' ;;
    'init --log-dir') echo 'files' ;;
    'init --name') echo 'any' ;;
    'init --data') echo 'any' ;;
    'doctor --round') echo 'any' ;;
    'doctor --systems-dir') echo 'files' ;;
    'doctor --site') echo 'files' ;;
    'doctor --nodes') echo 'nodes' ;;
    'doctor --via') echo '=slurm ssh local' ;;
    'doctor --exclude-file') echo 'files' ;;
    'doctor --ssh-config') echo 'files' ;;
    'doctor --parallel') echo 'any' ;;
    'demo --dir') echo 'files' ;;
    'demo --nexp') echo 'any' ;;
    'run --round') echo 'any' ;;
    'run --systems-dir') echo 'files' ;;
    'run --site') echo 'files' ;;
    'run --nexp') echo 'any' ;;
    'run --env') echo 'any' ;;
    'run --override') echo 'any' ;;
    'run --spares') echo 'any' ;;
    'run --side-by-side') echo 'any' ;;
    'run --exclude') echo 'nodes' ;;
    'run --sbatch') echo 'any' ;;
    'run --dependency') echo 'nodes' ;;
    'run --begin') echo 'any' ;;
    'run --name') echo 'any' ;;
    'run --interval') echo 'any' ;;
    'submit --round') echo 'any' ;;
    'submit --systems-dir') echo 'files' ;;
    'submit --site') echo 'files' ;;
    'submit --nexp') echo 'any' ;;
    'submit --env') echo 'any' ;;
    'submit --override') echo 'any' ;;
    'submit --spares') echo 'any' ;;
    'submit --side-by-side') echo 'any' ;;
    'submit --exclude') echo 'nodes' ;;
    'submit --sbatch') echo 'any' ;;
    'submit --dependency') echo 'nodes' ;;
    'submit --begin') echo 'any' ;;
    'submit --name') echo 'any' ;;
    'resume --site') echo 'files' ;;
    'resume --nexp') echo 'any' ;;
    'resume --spares') echo 'any' ;;
    'resume --side-by-side') echo 'any' ;;
    'resume --exclude') echo 'nodes' ;;
    'resume --sbatch') echo 'any' ;;
    'resume --time') echo 'any' ;;
    'resume --dependency') echo 'nodes' ;;
    'resume --begin') echo 'any' ;;
    'cancel --site') echo 'files' ;;
    'cancel --grace') echo 'any' ;;
    'rm --site') echo 'files' ;;
    'ls --site') echo 'files' ;;
    'status --site') echo 'files' ;;
    'watch --site') echo 'files' ;;
    'watch --interval') echo 'any' ;;
    'logs --site') echo 'files' ;;
    'logs --run') echo 'any' ;;
    'logs --attempt') echo 'any' ;;
    'logs --node') echo 'nodes' ;;
    'explain --site') echo 'files' ;;
    'nodes --site') echo 'files' ;;
    'score --ruleset') echo 'any' ;;
    'score --workload') echo 'files' ;;
    'score --rules-from') echo '=mlperf_logging' ;;
    'score --minutes-left') echo 'any' ;;
    'score --site') echo 'files' ;;
    'compare --ruleset') echo 'any' ;;
    'compare --site') echo 'files' ;;
    'compare --format') echo '=text json html' ;;
    'compare -o'|'compare --output') echo 'files' ;;
    'report -o'|'report --output') echo 'files' ;;
    'report --format') echo '=html md csv json' ;;
    'report --ruleset') echo 'any' ;;
    'report --workload') echo 'files' ;;
    'report --site') echo 'files' ;;
    'package -o'|'package --output') echo 'files' ;;
    'package --submitter') echo 'any' ;;
    'package --division') echo '=closed open' ;;
    'package --status') echo '=onprem cloud rdi preview' ;;
    'package --framework') echo 'any' ;;
    'package --system') echo 'any' ;;
    'package --implementation') echo 'any' ;;
    'package --system-json') echo 'files' ;;
    'package --ruleset') echo 'any' ;;
    'package --site') echo 'files' ;;
    'package --systems-dir') echo 'files' ;;
    'systems --site') echo 'files' ;;
    'systems --systems-dir') echo 'files' ;;
    'systems --gpu'|'systems --accelerator') echo 'any' ;;
    'systems --workload') echo 'workloads' ;;
    'systems --round') echo 'any' ;;
    'systems --submitter') echo 'any' ;;
    'systems --nodes') echo 'any' ;;
    'systems show --site') echo 'files' ;;
    'systems show --systems-dir') echo 'files' ;;
    'systems show --workload') echo 'workloads' ;;
    'systems show --round') echo 'any' ;;
    'systems show --env') echo 'any' ;;
    'systems diff --site') echo 'files' ;;
    'systems diff --systems-dir') echo 'files' ;;
    'systems new --site') echo 'files' ;;
    'systems new --systems-dir') echo 'files' ;;
    'systems new --accelerator') echo 'any' ;;
    'systems new --nodes') echo 'any' ;;
    'systems new --gpus-per-node') echo 'any' ;;
    'systems new --fabric') echo 'any' ;;
    'systems new --workload') echo 'workloads' ;;
    'systems new --round') echo 'any' ;;
    'systems new --micro-batch') echo 'any' ;;
    'systems new --accumulation') echo 'any' ;;
    'systems new -o'|'systems new --output') echo 'files' ;;
    'systems import --site') echo 'files' ;;
    'systems import --systems-dir') echo 'files' ;;
    'systems import --round') echo 'any' ;;
    'systems import --as') echo 'any' ;;
    'systems import --workload') echo 'workloads' ;;
    'systems import --image') echo 'any' ;;
    'systems import --ruleset') echo 'any' ;;
    'systems import --nodes') echo 'any' ;;
    'systems import --gpus-per-node') echo 'any' ;;
    'systems import --micro-batch') echo 'any' ;;
    'systems import --global-batch') echo 'any' ;;
    'systems import --accelerator') echo 'any' ;;
    'systems import --config') echo 'any' ;;
    'systems import --code-dir') echo 'files' ;;
    'systems import --engine') echo 'any' ;;
    'systems import -o'|'systems import --output') echo 'files' ;;
    'systems schema --site') echo 'files' ;;
    'systems schema --systems-dir') echo 'files' ;;
    'images --round') echo 'any' ;;
    'images --systems-dir') echo 'files' ;;
    'images --image') echo 'any' ;;
    'images --site') echo 'files' ;;
    'images --nodes') echo 'nodes' ;;
    'images --via') echo '=slurm ssh' ;;
    'images --tar') echo 'files' ;;
    'images --tree') echo 'files' ;;
    'images --expect') echo 'any' ;;
    'images --limit') echo 'any' ;;
    'images --timeout') echo 'any' ;;
    'images --from') echo 'any' ;;
    'images --engine') echo 'any' ;;
    'images --engine-command') echo 'any' ;;
    'images --ssh-config') echo 'files' ;;
    'images --command') echo 'any' ;;
    'images -o'|'images --output') echo 'files' ;;
    'images --login') echo 'any' ;;
    'prepare --site') echo 'files' ;;
    'prepare --override') echo 'any' ;;
    'prepare --systems-dir') echo 'files' ;;
    'prepare --round') echo 'any' ;;
    'prepare --with') echo 'any' ;;
    'prepare --hf-token-file') echo 'files' ;;
    'prepare --image') echo 'any' ;;
    'prepare --engine') echo 'any' ;;
    'tune --nodes') echo 'nodes' ;;
    'tune --via') echo '=auto local ssh srun slurm' ;;
    'tune --profile') echo 'files' ;;
    'tune --workload') echo 'workloads' ;;
    'tune --round') echo 'any' ;;
    'tune --owner') echo 'any' ;;
    'tune --for') echo 'any' ;;
    'tune --sudo-password-fd') echo 'any' ;;
    'tune --ssh-config') echo 'files' ;;
    'tune --parallel') echo 'any' ;;
    'tune --timeout') echo 'any' ;;
    'tune --site') echo 'files' ;;
    'config --set') echo 'any' ;;
    'config --site') echo 'files' ;;
    'validate --systems-dir') echo 'files' ;;
    'validate --site') echo 'files' ;;
    'render --round') echo 'any' ;;
    'render --systems-dir') echo 'files' ;;
    'render --site') echo 'files' ;;
    'render --nexp') echo 'any' ;;
    'render --env') echo 'any' ;;
    'render --override') echo 'any' ;;
    'render --spares') echo 'any' ;;
    'render --side-by-side') echo 'any' ;;
    'render --exclude') echo 'nodes' ;;
    'render --sbatch') echo 'any' ;;
    'render -o'|'render --output') echo 'files' ;;
    'render --diff') echo 'sets' ;;
    'render --image-config') echo 'files' ;;
    'rehearse --round') echo 'any' ;;
    'rehearse --systems-dir') echo 'files' ;;
    'rehearse --site') echo 'files' ;;
    'rehearse --nexp') echo 'any' ;;
    'rehearse --env') echo 'any' ;;
    'rehearse --override') echo 'any' ;;
    'rehearse --spares') echo 'any' ;;
    'rehearse --side-by-side') echo 'any' ;;
    'rehearse --exclude') echo 'nodes' ;;
    'rehearse --sbatch') echo 'any' ;;
    'rehearse --time') echo 'any' ;;
    'rehearse --cluster') echo 'any' ;;
    'rehearse --run-time') echo 'any' ;;
    'rehearse --fault') echo 'any' ;;
    'rehearse --faults') echo 'files' ;;
    'rehearse --seed') echo 'any' ;;
    'rehearse --resume-after') echo 'any' ;;
    'rehearse -o'|'rehearse --output') echo 'files' ;;
    'rehearse --node-mtbf') echo 'any' ;;
    'rehearse --trials') echo 'any' ;;
    'rehearse --node-repair') echo 'any' ;;
    'rehearse --within') echo 'any' ;;
    'audit --site') echo 'files' ;;
    'audit --only') echo '=ledger replay compliance' ;;
    'audit --head') echo 'any' ;;
    'export -o'|'export --output') echo 'any' ;;
    'export --format') echo '=csv parquet mlflow prometheus' ;;
    'export --ruleset') echo 'any' ;;
    'export --workload') echo 'files' ;;
    'export --site') echo 'files' ;;
    'published --system') echo 'any' ;;
    'published --benchmark') echo 'any' ;;
    'published --round') echo 'any' ;;
    'published --minutes') echo 'any' ;;
    'docs -s'|'docs --search') echo 'any' ;;
    *' --debug-log') echo 'files' ;;
  esac
}

__orchestrator_positional() {
  case "$1 $2" in
    'help 0') echo '=init doctor demo run submit resume cancel rm ls status watch logs explain nodes score compare report package systems images prepare tune config validate render rehearse audit export published docs completion' ;;
    'doctor 0') echo 'systems' ;;
    'doctor 1') echo 'workloads' ;;
    'run 0') echo 'systems' ;;
    'run 1') echo 'workloads' ;;
    'submit 0') echo 'systems' ;;
    'submit 1') echo 'workloads' ;;
    'resume 0') echo 'sets' ;;
    'cancel 0') echo 'sets' ;;
    'rm 0') echo 'sets' ;;
    'status 0') echo 'sets' ;;
    'watch 0') echo 'sets' ;;
    'logs 0') echo 'sets' ;;
    'explain 0') echo 'sets' ;;
    'nodes 0') echo 'sets' ;;
    'score 0') echo 'sets' ;;
    'compare '*) echo 'sets' ;;
    'report 0') echo 'sets' ;;
    'package '*) echo 'sets' ;;
    'systems 0') echo '=show diff new import schema' ;;
    'systems schema 0') echo '=system workload site outputs' ;;
    'images 0') echo '=check pull build distribute inspect code' ;;
    'images 1') echo 'systems' ;;
    'images 2') echo 'workloads' ;;
    'prepare 0') echo 'workloads' ;;
    'tune 0') echo '=plan apply verify revert status facts' ;;
    'tune 1') echo 'sets' ;;
    'render 0') echo 'systems' ;;
    'render 1') echo 'workloads' ;;
    'rehearse 0') echo 'systems' ;;
    'rehearse 1') echo 'workloads' ;;
    'audit 0') echo 'sets' ;;
    'export 0') echo 'sets' ;;
    'docs 0') echo 'pages' ;;
    'completion 0') echo '=bash zsh fish' ;;
  esac
}

__orchestrator_log_dir() { # where the sets are, by the site file that the command would take
  local site
  for site in "$1" "${ORCHESTRATOR_SITE:-}" site.yaml "${XDG_CONFIG_HOME:-$HOME/.config}/orchestrator/site.yaml"; do
    # a file in the current folder only if it is the user's own, as the command itself
    if [ -n "$site" ] && [ -f "$site" ] && { [ "$site" != site.yaml ] || [ -O "$site" ]; }; then
      sed -n "s/^log_dir:[[:space:]]*//p" "$site" | head -n 1 |
        sed "s/[[:space:]]#.*//; s/[[:space:]]*\$//; s/^[\"']//; s/[\"']\$//"
      return
    fi
  done
}

__orchestrator_words() { # the words of a kind; names of folders can be anybody's
  local top
  case "$1" in
    =*) printf '%s\n' "${1#=}" | tr ' ' '\n' ;;
    systems) printf '%s\n' '1xC885A_M8-8xMI350X-OAM-288GB' 'ESC_A8A_MI325X' 'MI300X_01x08x32' 'MI300X_02x08x32' 'MI300X_04x08x32' 'MI300X_08x08x32' 'MI300X_16x08x32' 'MI300X_1x8x1' 'MI300X_1x8x1_Dell' 'MI300X_1x8x1_Krai' 'MI300X_1x8x1_Krai_stack50' 'MI300X_1x8x1_MangoBoost' 'MI300X_1x8x1_Oracle' 'MI300X_2x8x1' 'MI300X_4x8x1' 'MI300X_64x08x16' 'MI325X_08x08x32' 'MI325X_08x08x32_Dell' 'MI325X_1node' 'MI325X_1x8x1' 'MI325X_1x8x1_GigaComputing' 'MI325X_1x8x1_MangoBoost' 'MI325X_1x8x1_MiTAC' 'MI325X_1x8x1_QCT' 'MI325X_1x8x1_Supermicro' 'MI325X_1x8x1_Supermicro_MangoBoost' 'MI325X_2x8x1' 'MI350X_01x08x64' 'MI350X_1x8x1' 'MI350X_1x8x1_MiTAC_SUTA' 'MI350X_1x8x1_MiTAC_SUTB' 'MI350X_2x8x1' 'MI350X_2x8x1_tp1pp1ep1_gbs64' 'MI350X_akash_1x8x1' 'MI350X_akash_4x8x1' 'MI355X_01x08x64' 'MI355X_02x08x64' 'MI355X_04x08x64' 'MI355X_08x08x32' 'MI355X_1x8x1' 'MI355X_1x8x1_Dell' 'MI355X_1x8x1_Dell_XE9785' 'MI355X_1x8x1_GigaComputing' 'MI355X_1x8x1_HPE' 'MI355X_1x8x1_MiTAC' 'MI355X_1x8x1_Oracle' 'MI355X_1x8x1_Supermicro' 'MI355X_2x8x1_tp1pp1ep1_gbs64' 'local_2x2x8' 'tinybox_8xMI300X' ;;
    workloads) printf '%s\n' 'bert' 'builtin' 'flux1' 'gpt_oss_20b' 'llama2_70b_lora' 'llama31_8b' ;;
    pages) printf '%s\n' 'api' 'architecture' 'commands' 'deep' 'descriptors' 'events' 'exit-codes' 'explain' 'explanation/comparison' 'explanation/how-a-set-runs' 'explanation/statistics' 'explanation/versions' 'glossary' 'howto/add' 'howto/install' 'howto/own-system' 'howto/own-workload' 'howto/reproduce-flux1' 'howto/reproduce-llama2-70b-lora' 'howto/reproduce-llama31-8b' 'howto/several-people' 'howto/short-time-limits' 'howto/site-file' 'howto/slower-than-published' 'howto/submit-to-mlcommons' 'howto/troubleshooting' 'images-and-data' 'index' 'inside' 'ledger' 'network' 'notify' 'package' 'preflight' 'published' 'reference/causes' 'reference/cli' 'reference/environment' 'reference/json' 'reference/keys' 'reference/runs' 'reference/settings' 'rehearse' 'report' 'scoring' 'set-folder' 'tuning' 'tutorial/first-set' ;;
    sets)
      top=$(__orchestrator_log_dir "$2")
      case "$top" in
        /*) find "$top" -mindepth 2 -maxdepth 2 -name set.json 2>/dev/null | sed 's|/set.json$||' | __orchestrator_plain ;;
      esac
      ;;
    nodes)
      top=$(__orchestrator_log_dir "$2")
      case "$top" in
        /*) find "$top" -mindepth 3 -maxdepth 3 -path '*/nodes/*' 2>/dev/null | __orchestrator_plain ;;
      esac
      ;;
  esac
}

__orchestrator_plain() { # the last names of paths, if no shell reads them as anything else
  sed 's|.*/||' | LC_ALL=C grep -x '[A-Za-z0-9._][A-Za-z0-9._-]*' | sort -u
}

__orchestrator_offer() { # the lines of the input that begin with $1, quoted
  local line quoted
  while IFS= read -r line; do
    case "$line" in
      "$1"*) printf -v quoted %q "$line"; COMPREPLY+=("$quoted") ;;
    esac
  done
}

_orchestrator() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command="" site="" kind="" word="" count=0 n=1
  COMPREPLY=()
  while [ "$n" -lt "$COMP_CWORD" ]; do
    word=${COMP_WORDS[n]}
    [ "$word" = --site ] && site=${COMP_WORDS[n+1]}
    case "$word" in
      -*) [ -n "$(__orchestrator_takes "$command" "$word")" ] && n=$((n + 1)) ;;
      *)
        if [ -z "$command" ]; then command=$word
        elif [ -n "$(__orchestrator_options "$command $word")" ]; then command="$command $word"
        else count=$((count + 1))
        fi ;;
    esac
    n=$((n + 1))
  done
  if [ -z "$command" ]; then
    COMPREPLY=($(compgen -W "init doctor demo run submit resume cancel rm ls status watch logs explain nodes score compare report package systems images prepare tune config validate render rehearse audit export published docs completion help --help --version" -- "$current"))
    return
  fi
  case "$previous" in -*) kind=$(__orchestrator_takes "$command" "$previous") ;; esac
  if [ -z "$kind" ]; then
    case "$current" in
      -*)
        COMPREPLY=($(compgen -W "$(__orchestrator_options "$command") --quiet --verbose --debug-log --help" -- "$current"))
        return ;;
    esac
    kind=$(__orchestrator_positional "$command" "$count")
  fi
  case "$kind" in
    ""|any) ;;
    files) __orchestrator_offer "$current" < <(compgen -f -- "$current") ;;
    *)
      __orchestrator_offer "$current" < <(__orchestrator_words "$kind" "$site")
      [ ${#COMPREPLY[@]} -gt 0 ] || __orchestrator_offer "$current" < <(compgen -f -- "$current") ;;
  esac
}

complete -F _orchestrator orchestrator orchestrator.pyz
