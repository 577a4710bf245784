//! Tests of verity files on a mount. The program `fsverity` creates and measures these files;
//! writes to them must fail.

use crate::mounting::*;
use std::fs;

/// A shell function that runs a command, and prints its error or "done".
const TRY: &str =
    r#"try() { if error=$("$@" 2>&1); then echo done; else echo "${error##*: }"; fi; }; "#;

/// Mounts a new image that can have verity files; `None` if this host cannot.
fn mounted() -> Option<(Image, Mounted)> {
    if !can_mount() || !needs("fsverity") {
        return None;
    }
    let image = Image::with("32M", &["-O", "verity", "-b", "4096"]);
    let mounted = Mounted::new(&image, &[]);
    Some((image, mounted))
}

/// Runs a shell script that may use [`TRY`].
fn tried(mounted: &Mounted, script: &str) -> String {
    shell(&mounted.path, &[TRY, script].concat())
}

#[test]
#[ignore = "long: a real mount"]
fn fsverity_makes_and_measures_files_on_a_mount() {
    let Some((image, mounted)) = mounted() else { return };
    let said = tried(
        &mounted,
        r#"
        seq 100000 > f; cp f g; cp f busy; cp f signed
        exec 5>>busy; try fsverity enable busy; exec 5>&-
        try fsverity measure g
        fsverity enable f --salt=0102
        fsverity enable g --hash-alg=sha512 --block-size=1024
        [ "$(fsverity measure f)" = "$(fsverity digest --salt=0102 f)" ] && echo equal
        [ "$(fsverity measure g)" = \
            "$(fsverity digest --hash-alg=sha512 --block-size=1024 g)" ] && echo equal
        cmp f g; cmp f busy; cmp busy f
        try fsverity enable f; try truncate -s 5 f; try fallocate -l 1M f
        try dd if=busy of=f conv=notrunc; try sh -c 'echo x >> f'
        try fsverity dump_metadata descriptor f
        try setpriv --reuid 65534 --clear-groups fsverity enable busy
        chmod 600 f; ln f link; mv f moved; setfattr -n user.x -v y moved
        lsattr moved | cut -d ' ' -f 1 | tr -d '-'; stat -c '%s %h %a' moved"#,
    );
    let told: Vec<&str> = said.lines().collect();
    let expected = [
        "Text file busy",
        "No data available",
        "equal",
        "equal",
        "File exists",
        "Operation not permitted",
        "Operation not permitted",
        "Operation not permitted",
        "Operation not permitted",
        "Inappropriate ioctl for device",
        "Permission denied",
        "eV",
        "588895 2 600",
    ];
    let ends = |line: &str, end: &str| line.ends_with(end);
    assert!(told.len() == expected.len(), "{said}");
    assert!(told.iter().zip(expected).all(|(line, end)| ends(line, end)), "{said}");
    mounted.umount();
    image.assert_clean();
    // With no_open, a write must be refused. Otherwise it would change pages in the kernel's cache,
    // and readers would see the change.
    let mounted = Mounted::new(&image, &["no_open"]);
    let said = tried(
        &mounted,
        r#"
        try dd if=busy of=g conv=notrunc; cmp g busy
        exec 5>>busy; try fsverity enable busy; exec 5>&-"#,
    );
    assert_eq!(said, "Operation not permitted\nText file busy\n");
    mounted.umount();
    let checked = run(std::process::Command::new(LANEFS).arg("check").arg(&image.path));
    assert!(checked.contains("clean"), "{checked}");

    // Changes a byte of the data. The kernel's page cache is empty after the unmount, so the next
    // read finds the change.
    let mut bytes = fs::read(&image.path).unwrap();
    let places = bytes.windows(12).enumerate().filter(|(_, found)| *found == b"\n1234\n1235\n1");
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    assert_eq!(places.len(), 4, "f, g, busy, signed");
    places.iter().for_each(|at| bytes[at + 1] = b'x');
    fs::write(&image.path, bytes).unwrap();
    let mounted = Mounted::new(&image, &[]);
    for name in ["moved", "g"] {
        let error = fs::read(mounted.path.join(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{name}: EIO");
    }
    assert!(fs::read(mounted.path.join("busy")).is_ok());
    shell(&mounted.path, "dd if=moved of=end bs=4096 skip=100 status=none; test -s end; rm -f g");
    mounted.umount();
    image.assert_clean();
}

/// While the tree is built, the file is opened for writing again and again. The first open that
/// fails must return "Text file busy", the error during the build. After the build, the error is
/// "Operation not permitted".
#[test]
#[ignore = "long: a real mount"]
fn a_file_that_becomes_a_verity_file_is_not_opened_for_writing() {
    let Some((image, mounted)) = mounted() else { return };
    let said = tried(
        &mounted,
        r#"
        truncate -s 1G big
        for n in $(seq 1000); do fsverity enable big 2>/dev/null && break; sleep 0.01; done &
        for n in $(seq 300); do error=$(sh -c 'exec 5>>big' 2>&1) || break; sleep 0.1; done
        echo "${error##*: }"
        try sh -c ': >big'
        try cmp -n 1M big /dev/zero
        wait
        try sh -c 'exec 5>>big'
        try fsverity measure big >/dev/null"#,
    );
    assert_eq!(said, "Text file busy\nText file busy\ndone\nOperation not permitted\n");
    mounted.umount();
    image.assert_clean();
}
