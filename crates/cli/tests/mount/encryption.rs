//! Compares encrypted directories with the kernel's. Either Lanefs or the kernel writes each image,
//! and both read it, with and without the key.

use crate::mounting::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lists all names with types, sizes and targets, and the digests of the contents.
const DESCRIBE: &str = r#"
    find . -name lost+found -prune -o -type d -printf '%P d %m\n' -o \
        -printf '%P %y %m %n %s %l\n' | LC_ALL=C sort
    find . -name lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum"#;

/// Makes the same list without the digests, and tries operations on a directory whose key is
/// missing.
const WITHOUT_KEY: &str = r#"
    find . -name lost+found -prune -o -type d -printf '%P d %m\n' -o \
        -printf '%P %y %m %n %s %l\n' | LC_ALL=C sort
    try() { if error=$("$@" 2>&1); then echo done; else echo "${error##*: }"; fi; }
    cd d
    file=$(find . -maxdepth 1 -type f -size +1c | LC_ALL=C sort | head -1)
    long=$(find . -maxdepth 1 -type f -regextype posix-extended -regex '.{200,}' |
        LC_ALL=C sort | head -1)
    dir=$(find . -maxdepth 1 -type d -name '?*[A-Za-z0-9]*' | LC_ALL=C sort | head -1)
    sub=$(find $dir -mindepth 1 -type d | head -1)
    try cat "$file"; try cat plain; try cat "${file}A"; try truncate -s 1 "$file"
    try touch new; try mkdir new; try ln -s target new; try mkfifo new; try ln "$file" new
    try ln ../outside new; try ln "$file" ../new; try mv "$file" new; try mv "$file" ../new
    try mv ../outside new; try mv ../outside "$file"; try chmod 600 "$file"; try rmdir "$dir"
    try rm "$file"; try rm "$long"; try rm -r "$sub"; try test -e "$file"; try test -e "$long"
    find . -printf '%P %y %l\n' | LC_ALL=C sort"#;

/// Makes a tree; `d` is an encrypted directory.
const FILL: &str = r#"
    echo outside > outside; mkdir plain; mkfifo pipe; cd d
    echo hello > a; head -c 100000 /dev/zero | tr '\0' x > large; : > empty
    printf 'part' | dd of=sparse bs=1 seek=70001 conv=notrunc status=none
    cp large cut; truncate -s 5003 cut; truncate -s 9000 cut; printf end >> cut
    printf middle | dd of=cut bs=1 seek=4090 conv=notrunc status=none
    cp large punched; fallocate -p -o 1000 -l 20000 punched
    cp large zeroed; fallocate -z -o 3000 -l 10001 zeroed
    fallocate -l 30000 space; printf in | dd of=space bs=1 seek=12345 conv=notrunc status=none
    ln -s target short; ln -s "$(printf 'long/%.0s' $(seq 60))end" long; ln -s x one
    mkdir -p sub/inner; echo deep > sub/inner/file; ln a sub/linked; mkfifo pipe
    for n in 1 15 16 17 31 32 33 148 149 150 200 255; do
        name=$(head -c $n /dev/zero | tr '\0' n); echo $n > "$name"
    done
    mkdir many; for n in $(seq 400); do echo $n > many/a-name-of-some-length-$n; done
    for n in $(seq 1 3 400); do rm many/a-name-of-some-length-$n; done
    mv many/a-name-of-some-length-2 sub/moved; mv a renamed; mv -f large cut
    (cd many; mv a-name-of-some-length-3 a-name-of-some-length-5)
    sync"#;

const KEY: [u8; 64] = *b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

fn key_file(image: &Image) -> PathBuf {
    let path = image.path.parent().unwrap().join("key");
    fs::write(&path, KEY).unwrap();
    path
}

/// Gives the key to the kernel's file system, and returns the key's identifier.
fn add_key(mounted: &KernelMounted, key: &Path) -> String {
    let said = shell(&mounted.path, &format!("xfs_io -c add_enckey . < {}", key.display()));
    said.trim().rsplit(' ').next().unwrap().to_string()
}

fn encrypted_image(options: &[&str]) -> Image {
    let options = [&["-O", "encrypt"], options].concat();
    Image::with("64M", &options)
}

fn may_judge() -> bool {
    can_mount() && needs("xfs_io")
}

/// Describes the tree in the image as the kernel shows it after it got the key.
fn by_kernel(image: &Path, key: &Path) -> Option<String> {
    let mounted = KernelMounted::new(image, "kernel", "")?;
    add_key(&mounted, key);
    Some(shell(&mounted.path, DESCRIBE))
}

fn by_lanefs(image: &Image, key: &Path) -> String {
    let mounted = Mounted::new(image, &[&format!("key={}", key.display())]);
    let described = shell(&mounted.path, DESCRIBE);
    mounted.umount();
    described
}

/// Compares two texts line by line, and fails at the first difference.
fn assert_same(ours: &str, theirs: &str) {
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "ours and the kernel's");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}

/// Checks that a listing and operations without the key have the same results on the kernel's mount
/// and on Lanefs's. Each mount has its own copy of the image.
fn without_key(image: &Image, key: &Path) {
    let copy = image.copy("nokey.img");
    let theirs = {
        let Some(mounted) = KernelMounted::new(&copy, "kernel", "") else { return };
        shell(&mounted.path, WITHOUT_KEY)
    };
    let after_kernel = by_kernel(&copy, key);
    let copy = image.copy("nokey.img");
    let mount_point = copy.parent().unwrap().join("nokey");
    fs::create_dir_all(&mount_point).unwrap();
    let mounted = Mounted::at(&copy, &mount_point, &[]);
    let ours = shell(&mounted.path, WITHOUT_KEY);
    mounted.umount();
    assert_same(&ours, &theirs);
    assert_clean(&copy);
    assert_same(&by_kernel(&copy, key).unwrap(), &after_kernel.unwrap());
}

#[test]
#[ignore = "long: real mounts"]
fn files_encrypted_by_the_kernel_are_the_same_on_a_mount() {
    if !may_judge() {
        return;
    }
    let sets: [(&[&str], u8); 4] = [
        (&["-b", "4096"], 3),
        (&["-b", "1024", "-I", "128", "-O", "^metadata_csum"], 0),
        (&["-b", "4096", "-O", "^dir_index"], 1),
        (&["-b", "4096", "-O", "inline_data"], 2),
    ];
    for (options, padding) in sets {
        let image = encrypted_image(options);
        let key = key_file(&image);
        {
            let Some(mounted) = KernelMounted::new(&image.path, "kernel", "") else { return };
            let id = add_key(&mounted, &key);
            let set = format!("mkdir d; xfs_io -c 'set_encpolicy -v 2 -f {padding} {id}' d");
            shell(&mounted.path, &format!("{set}\n{FILL}"));
        }
        assert_same(&by_lanefs(&image, &key), &by_kernel(&image.path, &key).unwrap());
        without_key(&image, &key);
    }
}

/// Changes the padding of names in the encryption context of a file in the encrypted directory `d`.
/// The file then has another policy with the same key. The image has no checksums.
fn give_another_policy(image: &Image, key: &Path, name: &str) {
    let place = format!("{}:/d/{name}", image.path.display());
    let ino = run(Command::new(LANEFS).args(["stat", "-c", "%i", "--key"]).arg(key).arg(place));
    let request = format!("imap <{}>", ino.trim());
    let said = run(Command::new("debugfs").args(["-R", &request]).arg(&image.path));
    // The output contains, for example, "located at block 39, offset 0x0c00".
    let (_, place) = said.split_once("located at block ").unwrap();
    let (block, rest) = place.split_once(", offset 0x").unwrap();
    let offset = rest.split_whitespace().next().unwrap();
    let at = block.parse::<usize>().unwrap() * 4096 + usize::from_str_radix(offset, 16).unwrap();
    let mut bytes = fs::read(&image.path).unwrap();
    let inode = &mut bytes[at..at + 256];
    let context = inode.windows(8).position(|bytes| bytes == [2, 1, 4, 3, 0, 0, 0, 0]).unwrap();
    inode[context + 3] = 2;
    fs::write(&image.path, bytes).unwrap();
}

#[test]
#[ignore = "long: real mounts"]
fn files_with_another_policy_than_their_directory_give_eperm() {
    const TRY: &str = r#"
        try() { if error=$("$@" 2>&1); then echo done; else echo "${error##*: }"; fi; }
        cd d; try stat dir; try ls dir; try stat link; try cat file
        try truncate -s 1 file; try stat file; try cat kept; ls | tr '\n' ' '"#;
    if !may_judge() {
        return;
    }
    let image = encrypted_image(&["-b", "4096", "-O", "^metadata_csum"]);
    let key = key_file(&image);
    let mut edit = Command::new(LANEFS);
    edit.args(["edit", "--key"]).arg(&key).arg(&image.path).args(["-c", "mkdir /d"]);
    for line in ["encrypt /d", "mkdir /d/dir", "ln -s file /d/link", "write /d/file text"] {
        edit.args(["-c", line]);
    }
    run(edit.args(["-c", "write /d/kept text"]));
    ["dir", "link", "file"].iter().for_each(|name| give_another_policy(&image, &key, name));
    let mounted = Mounted::new(&image, &[&format!("key={}", key.display())]);
    let ours = shell(&mounted.path, TRY);
    mounted.umount();
    assert!(ours.starts_with(&"Operation not permitted\n".repeat(5)), "{ours}");
    assert!(ours.ends_with("done\ndone\ndir file kept link "), "{ours}");
    let Some(mounted) = KernelMounted::new(&image.path, "kernel", "") else { return };
    add_key(&mounted, &key);
    assert_same(&ours, &shell(&mounted.path, TRY));
}

#[test]
#[ignore = "long: real mounts"]
fn files_encrypted_on_a_mount_are_the_same_by_the_kernel() {
    if !may_judge() {
        return;
    }
    let sets: [&[&str]; 3] =
        [&["-b", "4096"], &["-b", "1024", "-I", "128"], &["-b", "2048", "-O", "inline_data"]];
    for options in sets {
        let image = encrypted_image(options);
        let key = key_file(&image);
        run(Command::new(LANEFS).args(["edit", "--key"]).arg(&key).arg(&image.path).args([
            "-c",
            "mkdir /d",
            "-c",
            "encrypt /d",
        ]));
        let mounted = Mounted::new(&image, &[&format!("key={}", key.display())]);
        shell(&mounted.path, FILL);
        let described = shell(&mounted.path, DESCRIBE);
        mounted.umount();
        image.assert_clean();
        let checked = run(Command::new(LANEFS).arg("check").arg(&image.path));
        assert!(checked.contains("clean"), "{checked}");
        assert_same(&described, &by_kernel(&image.path, &key).unwrap());
        without_key(&image, &key);
    }
}
