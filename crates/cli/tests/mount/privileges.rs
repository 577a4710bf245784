//! If another user writes to a program, the program loses its set-user-ID bit at once, so the
//! written code never runs with the owner's rights.

use crate::mounting::*;
use rustix::process::{Gid, Uid};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Ways to change the program `f`, as lines of shell.
const WAYS: &[(&str, &str)] = &[
    ("buffered", "cat /usr/bin/id | dd of=f conv=notrunc status=none"),
    ("append", "echo >>f"),
    ("direct", "dd if=/usr/bin/id of=f bs=4096 count=1 oflag=direct conv=notrunc status=none"),
    ("synchronous", "dd if=/usr/bin/id of=f bs=4096 count=1 oflag=sync conv=notrunc status=none"),
    ("truncate", "truncate -s +1 f"),
    ("replace", "cat /usr/bin/id >f"),
    ("allocate", "fallocate -l 1M f"),
    ("allocate inside", "fallocate -z -o 100000 -l 4096 f"),
];

/// Makes a program that belongs to root and has the set-user-ID and set-group-ID bits, on the file
/// system at `dir`. Changes the program in each way, in most cases once by another user and once by
/// root. Returns for each change its name, the program's mode after the change, and the effective
/// user and group that the program has when user nobody runs it after the change.
fn after_each_way(dir: &Path) -> Vec<(String, u32, String)> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let file = dir.join("f");
    let program = || {
        shell(dir, "rm -f f; cp /usr/bin/id f; chmod 6777 f; sync f; ./f >/dev/null");
    };
    let mut seen = Vec::new();
    let mut look = |way: &str| {
        // The program is run before anything requests its mode, so the bits must be gone without
        // such a request.
        let user = run(as_nobody("./f").arg("-u").current_dir(dir));
        let group = run(as_nobody("./f").arg("-g").current_dir(dir));
        let mode = fs::metadata(&file).unwrap().mode() & 0o7777;
        seen.push((way.to_owned(), mode, format!("{} {}", user.trim(), group.trim())));
    };
    for (way, line) in WAYS {
        program();
        run(as_nobody("sh").args(["-euc", line]).current_dir(dir));
        look(way);
        program();
        shell(dir, line);
        look(&format!("{way}, by root"));
    }
    program();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fs::copy("/usr/bin/id", dir.join("from")).unwrap();
            let inside = File::open(dir.join("from")).unwrap();
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_gid(
                Gid::from_raw(65534),
                Gid::from_raw(65534),
                Gid::from_raw(65534),
            )
            .unwrap();
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let to = File::options().write(true).open(&file).unwrap();
            rustix::fs::copy_file_range(&inside, Some(&mut 0), &to, Some(&mut 0), 4096).unwrap();
        });
    });
    look("copy_file_range");
    seen
}

#[test]
#[ignore = "long: a real mount"]
fn a_user_who_changes_a_program_of_root_does_not_become_root() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    let ours = after_each_way(&mounted.path);
    mounted.umount();
    for (way, mode, who) in &ours {
        let (expected, owner) =
            if way.ends_with("root") { (0o6777, "0 0") } else { (0o777, "65534 65534") };
        assert_eq!((*mode, who.as_str()), (expected, owner), "{way}");
    }
    image.assert_clean();
    if let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") {
        assert_eq!(ours, after_each_way(&kernel.path));
    }
}
