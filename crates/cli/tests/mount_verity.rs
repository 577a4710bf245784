//! Tests of verity files on a mount. The program fsverity makes and measures them; writes to them
//! must fail.

mod mounting;

use mounting::*;
use std::fs;

#[test]
#[ignore = "long: a real mount"]
fn fsverity_makes_and_measures_files_on_a_mount() {
    if !can_mount() || !needs("fsverity") {
        return;
    }
    let image = Image::with("32M", &["-O", "verity", "-b", "4096"]);
    let mounted = Mounted::new(&image, &[]);
    let said = shell(
        &mounted.path,
        r#"
        seq 100000 > f; cp f g; cp f busy; cp f signed
        try() { if error=$("$@" 2>&1); then echo done; else echo "${error##*: }"; fi; }
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
    let said = shell(
        &mounted.path,
        r#"
        try() { if error=$("$@" 2>&1); then echo done; else echo "${error##*: }"; fi; }
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
