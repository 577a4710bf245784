//! Tests of directories that ignore case, through a mount. The kernel compares names by their
//! bytes, so it must ask the server for each name.

use crate::mounting::*;
use std::fs;

/// Shell functions that end a script with an error. They are needed because a shell with `-e` does
/// not exit if `! test` fails.
const CHECKS: &str = r#"
    gone() { if test -e "$1"; then echo "$1 is there" >&2; exit 1; fi; }
    refused() { if "$@" 2>/dev/null; then echo "$* succeeded" >&2; exit 1; fi; }
"#;

#[test]
#[ignore = "long: a real mount"]
fn a_directory_that_ignores_case_finds_every_spelling() {
    if !can_mount() || !needs("chattr") {
        return;
    }
    let image = Image::with("64M", &["-O", "casefold"]);
    let mounted = Mounted::new(&image, &[]);
    let dir = &mounted.path;
    shell(dir, "mkdir d; chattr +F d");
    assert!(shell(dir, "lsattr -d d")[..24].contains('F'));
    shell(dir, "echo one >d/README; cat d/readme; echo two >>d/Readme");
    assert_eq!(fs::read(dir.join("d/README")).unwrap(), b"one\ntwo\n");
    assert_eq!(shell(dir, "ls d").trim(), "README");
    let stale = [
        // A name that was looked up while it was absent, and is then created and removed in other
        // spellings.
        "gone d/later; echo x >d/LATER; test -e d/later; rm d/Later; gone d/LATER",
        // A name that the kernel has cached in a plain directory.
        "echo x >plain; cat plain; mv plain d/Plain; rm d/PLAIN; gone d/Plain",
        "echo x >plain; ln plain d/Linked; rm d/LINKED; gone d/Linked; rm plain",
        // A directory that was moved into a directory that ignores case.
        "mkdir sub; ls sub; mv sub d/Sub; ls d/SUB; rmdir d/sub; gone d/Sub; mkdir d/SUB; rmdir d/Sub",
        // A name whose attributes the kernel got together with a listing.
        "echo x >d/Listed; ls -l d; rm d/LISTED; gone d/Listed",
        // A name that was looked up while it was absent, before the directory began to ignore case.
        "mkdir e; gone e/x; chattr +F e; echo x >e/X; test -e e/x; refused chattr -F e",
        "rm e/x; chattr -F e; echo x >e/X; gone e/x",
        // New directories inherit the flag `F` of chattr(1).
        "mkdir -p d/in/ner; echo x >D2; mv D2 d/IN/Ner/File; cat d/in/NER/FILE; refused mkdir d/IN",
        "refused chattr +F D2; refused chattr +F d/in/ner/file",
    ];
    stale.into_iter().for_each(|script| drop(shell(dir, &format!("{CHECKS}{script}"))));
    mounted.umount();
    image.assert_clean();
    // On a file system without the feature `casefold`, setting the flag `F` is refused.
    let plain = Image::new("16M");
    let mounted = Mounted::new(&plain, &[]);
    shell(&mounted.path, &format!("{CHECKS} mkdir d; refused chattr +F d"));
    mounted.umount();
}
