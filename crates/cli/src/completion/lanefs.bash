# Completion of lanefs for bash; needs the package bash-completion. The names come from the command
# itself, which also lists directories inside images: lanefs cp disk.img:/et<TAB>

# Sets REPLY to what was typed as $1: a backslash keeps the next character, and quotes go.
_lanefs_typed() {
    local left=$1
    REPLY=
    while [[ $left ]]; do
        case $left in
        \\?*) REPLY+=${left:1:1} left=${left:2} ;;
        [\\\"\']*) left=${left:1} ;;
        *) REPLY+=${left:0:1} left=${left:1} ;;
        esac
    done
}

_lanefs() {
    local cur prev words cword quoted= at REPLY
    # A colon and an @ split words in bash; the words of lanefs hold both.
    _get_comp_words_by_ref -n :@ cur prev words cword || return
    # A blank in a name is typed as "\ ", or after a quote that is still open.
    [[ $cur == [\"\']* ]] && quoted=1
    for at in "${!words[@]}"; do
        _lanefs_typed "${words[at]}"
        words[at]=$REPLY
    done
    _lanefs_typed "$cur"
    cur=$REPLY
    mapfile -t COMPREPLY < <(LANEFS_COMPLETE=bash _CLAP_COMPLETE_INDEX=$cword _CLAP_IFS=$'\n' \
        "${words[0]}" -- "${words[@]}" 2>/dev/null)
    # In quotes, neither splits. Bash replaces only what follows the last one.
    if [[ ! $quoted ]]; then
        local breaks=
        for at in : @; do [[ $COMP_WORDBREAKS == *$at* ]] && breaks+=$at; done
        [[ $breaks ]] && COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*["$breaks"]}"}"}")
    fi
    [[ ${COMPREPLY-} == *[/:=] ]] && compopt -o nospace
    compopt -o filenames 2>/dev/null
}
complete -o bashdefault -o nosort -F _lanefs lanefs
