# SPDX-License-Identifier: Apache-2.0
# Completion for fish. It asks the program for the possible words.

function __qobs_list
    set -l words (commandline -opc)
    $words[1] info --list $argv 2>/dev/null
end

function __qobs_command
    set -l words (commandline -opc)
    echo $words[2]
end

# True if the command has this option.
function __qobs_has
    contains -- --$argv[1] (__qobs_list options (__qobs_command))
end

function __qobs_settings
    set -l words (commandline -opc)
    set -l at (contains -i -- --preset $words)
    if test -n "$at"; and set -q words[(math $at + 1)]
        __qobs_list settings $words[(math $at + 1)]
    else
        __qobs_list settings | sort -u
    end | string replace -r '$' =
    test (__qobs_command) = quantize; and __qobs_list formats | string replace -r '^' format=
end

complete -c qobs -n __fish_use_subcommand -f -a '(__qobs_list commands)'
complete -c qobs -n __fish_use_subcommand -l help -d 'explain the commands'
complete -c qobs -n __fish_use_subcommand -s V -l version -d 'print the version'
complete -c qobs -n 'not __fish_use_subcommand' -a '(string match -q -- "-*" (commandline -ct); and __qobs_list options (__qobs_command))'
complete -c qobs -n '__qobs_has scheme' -l scheme -x -a '(__qobs_list schemes (__qobs_command))'
complete -c qobs -n '__qobs_has schemes' -l schemes -x -a '(__qobs_list schemes (__qobs_command))'
complete -c qobs -n '__qobs_has preset' -l preset -x -a '(__qobs_list presets)'
complete -c qobs -n '__qobs_has compare' -l compare -x -a '(__qobs_list presets)'
complete -c qobs -n '__qobs_has isa' -l isa -x -a '(__qobs_list isas)'
complete -c qobs -n '__qobs_has set' -l set -x -a '(__qobs_settings)'
complete -c qobs -n '__qobs_has nonfinite' -l nonfinite -x -a 'refuse ignore propagate'
complete -c qobs -n '__qobs_has base-name' -l base-name -x -a 'weight input output q k v'
complete -c qobs -n '__qobs_has compat' -l compat -x -a 'vllm llm-compressor'
complete -c qobs -n '__qobs_has dialect' -l dialect -x -a 'compressed-tensors awq gptq gptq-v2 fp8 modelopt'
