# SPDX-License-Identifier: Apache-2.0
# Completion for bash. It asks the program for the possible words.

_qobs()
{
    local qobs=${COMP_WORDS[0]} command=${COMP_WORDS[1]}
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local known=
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        known="--help --version $("$qobs" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)   .*/\1/p')"
    elif [[ $before == --scheme ]]; then
        known=$("$qobs" "$command" --help 2>/dev/null | sed -n '/^schemes:/,$s/^  \([A-Z][^ ]*\) .*/\1/p')
    elif [[ $before == --preset ]]; then
        known=$("$qobs" info 2>/dev/null | sed -n '/^presets/,$s/^.\{15\}\([^ ][^ ]*\) .*/\1/p')
    elif [[ $before == --isa ]]; then
        known=$("$qobs" info 2>/dev/null |
            sed -n '/^instructions/,/^presets/{/^presets/!{/not usable/!s/^.\{15\}\([^ ]*\) .*/\1/p}}')
    elif [[ $before == --set ]]; then
        compopt -o nospace 2>/dev/null
        known=$("$qobs" info 2>/dev/null | sed -n '/^presets/,$s/^ \{17\}//p' | tr ' ' '\n' | sort -u | sed 's/$/=/')
    elif [[ $word == -* ]]; then
        known=$("$qobs" "$command" --help 2>/dev/null | sed -n 's/^  \(-., \)*\(--[a-z-]*\).*/\2/p')
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$known" -- "$word")
}

complete -F _qobs qobs
