# Completion of lanefs for fish. The names come from the command itself, which also lists directories
# inside images: lanefs cp disk.img:/et<TAB>
function __lanefs_candidates
    set -l typed (commandline --current-token --cut-at-cursor)
    # A blank in a name is typed as "\ ", or after a quote that is still open.
    if string match -qr '^["\']' -- $typed
        set typed (string sub --start 2 -- $typed)
    else
        set typed (string unescape -- $typed)
    end
    LANEFS_COMPLETE=fish lanefs -- (commandline --current-process --tokenize --cut-at-cursor) \
        "$typed" 2>/dev/null
end
complete --keep-order --exclusive --command lanefs --arguments '(__lanefs_candidates)'
