# Completion of lanefs for bash; needs the package bash-completion. The names come from the command
# itself, which also lists directories inside images: lanefs cp disk.img:/et<TAB>
_lanefs() {
    local cur prev words cword
    # A colon splits words in bash; the words of lanefs hold colons.
    _get_comp_words_by_ref -n : cur prev words cword || return
    # A blank in a name is typed as "\ ".
    cur=${cur//\\/} words=("${words[@]//\\/}")
    mapfile -t COMPREPLY < <(LANEFS_COMPLETE=bash _CLAP_COMPLETE_INDEX=$cword _CLAP_IFS=$'\n' \
        "${words[0]}" -- "${words[@]}" 2>/dev/null)
    __ltrim_colon_completions "$cur"
    [[ ${COMPREPLY-} == *[/:=] ]] && compopt -o nospace
    compopt -o filenames 2>/dev/null
}
complete -o bashdefault -o nosort -F _lanefs lanefs
