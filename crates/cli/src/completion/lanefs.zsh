#compdef lanefs
# Completion of lanefs for zsh. The names come from the command itself, which also lists directories
# inside images: lanefs cp disk.img:/et<TAB>
_lanefs() {
    local -a found open closed typed
    # A blank in a name is typed as "\ ", or after a quote that is still open, which PREFIX lacks.
    typed=("${(@Q)words}")
    [[ -z $compstate[quote] ]] || typed[CURRENT]=$PREFIX
    found=("${(@f)$(LANEFS_COMPLETE=bash _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) _CLAP_IFS=$'\n' \
        $typed[1] -- "${(@)typed}" 2>/dev/null)}")
    # A directory or an image goes on: no blank is put after it.
    open=(${(M)found:#*[/:=]})
    closed=(${found:#*[/:=]})
    (( $#open )) && compadd -S '' -a open
    (( $#closed )) && compadd -a closed
}
if [[ $funcstack[1] == _lanefs ]]; then _lanefs "$@"; else compdef _lanefs lanefs; fi
