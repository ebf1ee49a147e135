# SPDX-License-Identifier: Apache-2.0
# Completion for bash. It asks the program for the possible words.

_qobs()
{
    local qobs=${COMP_WORDS[0]} command=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]}
    local before=${COMP_WORDS[COMP_CWORD - 1]} known='' prefix='' preset='' key='' i
    COMPREPLY=()
    # bash splits at '=': --preset=NAME is three words, input=NAME, too.
    if [[ $word == '=' ]]; then
        word='' before=${COMP_WORDS[COMP_CWORD - 1]}
        [[ $before == --* ]] || before=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $before == '=' ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
        [[ $before == --* ]] || before=${COMP_WORDS[COMP_CWORD - 3]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == --preset ]] && preset=${COMP_WORDS[i + 1]}
    done
    [[ $preset == = ]] && preset=''
    if [[ $COMP_CWORD -eq 1 ]]; then
        known="--help --version $("$qobs" info --list commands 2>/dev/null)"
    else
        case $before in
        --scheme) known=$("$qobs" info --list schemes "$command" 2>/dev/null) ;;
        --preset) known=$("$qobs" info --list presets 2>/dev/null) ;;
        --schemes)
            [[ $word == *,* ]] && prefix=${word%,*},
            known=$("$qobs" info --list schemes "$command" 2>/dev/null)
            ;;
        --compare)
            [[ $word == *,* ]] && prefix=${word%,*},
            known=$("$qobs" info --list presets 2>/dev/null)
            ;;
        --isa) known=$("$qobs" info --list isas 2>/dev/null) ;;
        --nonfinite) known='refuse ignore propagate' ;;
        --base-name) known='weight input output q k v' ;;
        --compat) known='vllm llm-compressor' ;;
        --dialect) known='compressed-tensors awq gptq gptq-v2 fp8 modelopt' ;;
        --set)
            if [[ ${COMP_WORDS[COMP_CWORD]} == '=' ]]; then
                key=${COMP_WORDS[COMP_CWORD - 1]}
            elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]]; then
                key=${COMP_WORDS[COMP_CWORD - 2]}
            fi
            if [[ $key == format ]]; then
                known=$("$qobs" info --list formats 2>/dev/null)
            else
                compopt -o nospace 2>/dev/null
                known=$("$qobs" info --list settings ${preset:+"$preset"} 2>/dev/null | sort -u | sed 's/$/=/')
                [[ $command == quantize ]] && known+=' format='
            fi
            ;;
        *)
            if [[ $word == -* ]]; then
                known=$("$qobs" info --list options "$command" 2>/dev/null)
            elif [[ $command == info && $word == *.* ]]; then
                known=$("$qobs" info --list presets 2>/dev/null)
            fi
            ;;
        esac
    fi
    if [[ -n $known ]]; then
        mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$known" -- "${word#"$prefix"}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 0 && $word != -* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -F _qobs qobs
