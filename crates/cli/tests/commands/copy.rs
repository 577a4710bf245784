//! Tests of `lanefs cp` and `mv`: copies in both directions keep all attributes; the kernel and
//! e2fsck check the results.

use crate::mkfs::as_user;
use crate::mounting;

use crate::mounting::{
    Image, KernelMounted, LANEFS, assert_clean, can_mount, needs, run, scratch, shell, try_run,
};
use crate::trees::{assert_same, fill, survey};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

#[test]
fn a_tree_that_the_kernel_wrote_is_copied_out_and_in_and_across_whole() {
    if !can_mount() {
        return;
    }
    let original = Image::new("300M");
    let other = Image::new("600M");
    let third = Image::with("300M", &["-b", "4096"]);
    let host = Image::new("300M");
    let expected = {
        let Some(kernel) = KernelMounted::new(&original.path, "kernel", "rw") else { return };
        fill(&kernel.path);
        survey(&kernel.path)
    };

    // Copies out to a directory of the kernel's ext4, since the file system of the host must
    // support all attributes.
    {
        let Some(out) = KernelMounted::new(&host.path, "host", "rw") else { return };
        lanefs(&["cp", "-a", &at(&original.path, "/."), out.path.to_str().unwrap()]);
        assert_same(&survey(&out.path), &expected);
        // Copies back into an image.
        let from = format!("{}/.", out.path.display());
        lanefs(&["cp", "-a", &from, &at(&other.path, "/")]);
    }
    assert_clean(&other.path);
    let kernel = KernelMounted::new(&other.path, "kernel", "ro").unwrap();
    assert_same(&survey(&kernel.path), &expected);
    drop(kernel);

    // Copies from image to image.
    lanefs(&["cp", "-a", &at(&original.path, "/."), &at(&third.path, "/")]);
    assert_clean(&third.path);
    assert_clean(&original.path);
    let kernel = KernelMounted::new(&third.path, "kernel", "ro").unwrap();
    assert_same(&survey(&kernel.path), &expected);
}

#[test]
fn a_copy_writes_to_devices_and_through_links_of_the_host_and_replaces_none() {
    if !can_mount() {
        return;
    }
    let image = Image::new("20M");
    let dir = image.path.parent().unwrap();
    shell(dir, "mknod null c 1 3; mknod disk b 7 250; ln -s target link; ln -s nothing dangling");
    shell(dir, "echo old > target; mkdir in; mknod in/f b 7 250; echo new > f");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    lanefs(&["cp", &path("f"), &at(&image.path, "/")]);
    let from = at(&image.path, "/f");
    let kinds = "stat -c %F null disk link in/f | tr '\n' ','";
    let before = shell(dir, kinds);
    for options in [&["cp"][..], &["cp", "-a"]] {
        let cp = |to: &str| {
            let (from, to) = (from.clone(), path(to));
            let (status, said) = try_run(Command::new(LANEFS).args(options).args([from, to]));
            if status.success() { Ok(said) } else { Err(said) }
        };
        cp("null").unwrap();
        cp("link").unwrap();
        assert_eq!(shell(dir, "cat target; echo old > target"), "new\n");
        let refused = [cp("disk").unwrap_err(), cp("in").unwrap_err()];
        assert!(refused.iter().all(|said| said.contains("is a device")), "{refused:?}");
        assert!(cp("dangling").is_err());
        assert_eq!(shell(dir, kinds), before, "{options:?}");
    }
    let piped = format!("{LANEFS} cp {from} /dev/stdout | cat");
    assert_eq!(shell(dir, &piped), "new\n");
    // Like mv(1), `lanefs mv` replaces a device file. It does not write to the device.
    lanefs(&["mv", &from, &path("null")]);
    assert_eq!(shell(dir, "cat null"), "new\n");
}

#[test]
fn one_file_goes_in_and_out_by_name_into_a_directory_and_by_streams() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    std::fs::write(dir.join("a"), "contents of a").unwrap();
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    lanefs(&["cp", &here("a"), &at(&image.path, "/b")]);
    lanefs(&["mkdir", &at(&image.path, "/d")]);
    lanefs(&["cp", &here("a"), &at(&image.path, "/b"), &at(&image.path, "/d")]);
    let mut child = Command::new(LANEFS)
        .args(["cp", "-", &at(&image.path, "/streamed")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[7; 3_000_000]).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(lanefs(&["ls", &at(&image.path, "/d")]), "a\nb\n");
    assert_eq!(lanefs(&["cat", &at(&image.path, "/d/a")]), "contents of a");
    assert_eq!(lanefs(&["cp", &at(&image.path, "/d/b"), "-"]), "contents of a");
    lanefs(&["cp", &at(&image.path, "/streamed"), &here("back")]);
    assert_eq!(std::fs::read(dir.join("back")).unwrap(), [7; 3_000_000]);
    // A shorter file replaces a longer one.
    lanefs(&["cp", &here("a"), &at(&image.path, "/streamed")]);
    assert_eq!(lanefs(&["cat", &at(&image.path, "/streamed")]), "contents of a");
    assert_clean(&image.path);
}

#[test]
fn files_that_cannot_be_copied_are_named_and_the_rest_is_copied() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    std::fs::write(dir.join("a"), "a").unwrap();
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (missing, present) = (here("missing"), here("a"));
    let (status, said) =
        try_run(Command::new(LANEFS).args(["cp", &missing, &present, &at(&image.path, "/")]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&format!("lanefs cp: {missing}: no such file or directory")), "{said}");
    assert_eq!(lanefs(&["cat", &at(&image.path, "/a")]), "a");

    let none = at(&image.path, "/none");
    let (status, said) = try_run(Command::new(LANEFS).args(["cp", &none, &here("x")]));
    assert_eq!(status.code(), Some(1));
    assert_eq!(said, format!("lanefs cp: {none}: no such file or directory\n"));

    let (status, said) = try_run(Command::new(LANEFS).args(["cp", &present, &here("y")]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("use cp(1)"), "{said}");
    assert_eq!(try_run(Command::new(LANEFS).arg("cp")).0.code(), Some(2));
    assert_clean(&image.path);
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let image = Image::new("16M");
    lanefs(&["mkdir", "-p", &at(&image.path, "/a/b/c")]);
    for target in ["/a", "/a/b", "/a/b/c", "/a/new"] {
        let line = ["cp", "-r", &at(&image.path, "/a"), &at(&image.path, target)];
        let (status, said) = try_run(Command::new(LANEFS).args(line));
        assert_eq!(status.code(), Some(1), "{target}");
        assert!(said.contains("into itself"), "{said}");
    }
    lanefs(&["cp", "-r", &at(&image.path, "/a/b"), &at(&image.path, "/b2")]);
    assert_eq!(lanefs(&["ls", &at(&image.path, "/b2")]), "c\n");
    assert_clean(&image.path);
}

#[test]
fn a_copy_that_follows_links_does_not_copy_its_own_copies() {
    let image = Image::new("16M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["mkdir", &place("/a"), &place("/a/t")]);
    lanefs(&["ln", "-s", "..", &place("/a/t/up")]);
    lanefs(&["ln", "-s", "/a/t", &place("/a/way")]);
    lanefs(&["ln", "-s", "/a", &place("/link")]);
    lanefs(&["mkdir", &place("/s"), &place("/t")]);
    lanefs(&["ln", "-s", "/t", &place("/s/way")]);
    for (source, target) in [("/link", "/a/t"), ("/s", "/t")] {
        let said = fails(&["cp", "-rL", &place(source), &place(target)]);
        assert!(said.contains("into itself"), "{said}");
    }
    assert_clean(&image.path);
}

#[test]
fn two_sources_of_one_name_are_not_mixed() {
    let image = Image::new("64M");
    let dir = image.dir.path();
    let place = |path: &str| at(&image.path, path);
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    shell(
        dir,
        "mkdir -p a/d b/d none/f empty/a/e empty/b/e
        for i in $(seq 24); do head -c 1500000 /dev/zero | tr '\\0' a >a/d/$i
        head -c 1500000 /dev/zero | tr '\\0' b >b/d/$i; done; echo new >b/f",
    );
    lanefs(&["mkdir", &place("/t")]);
    // As with cp(1), files below the later operand replace those of the earlier one.
    lanefs(&["cp", "-r", "-j", "8", &here("a/d"), &here("b/d"), &place("/t")]);
    lanefs(&["cp", "-r", &place("/t/d"), &here("copy")]);
    shell(dir, "diff -r copy b/d");

    // If a source cannot be copied, the next source of the same name may overwrite the existing
    // file.
    lanefs(&["cp", &here("a/d/1"), &place("/t/f")]);
    let said = fails(&["cp", &here("none/f"), &here("b/f"), &place("/t")]);
    assert!(!said.contains("another source"), "{said}");
    assert_eq!(lanefs(&["cat", &place("/t/f")]), "new\n");

    // A directory that was just moved is not replaced, even if it is empty.
    let said = fails(&["mv", &here("empty/a/e"), &here("empty/b/e"), &place("/t")]);
    assert!(said.contains("another source"), "{said}");
    assert!(dir.join("empty/b/e").is_dir());
    assert_clean(&image.path);
}

#[test]
fn links_in_an_image_do_not_lead_a_copy_out_of_its_directory() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    let outside = dir.join("outside");
    std::fs::create_dir(&outside).unwrap();
    lanefs(&["mkdir", &at(&image.path, "/evil")]);
    lanefs(&["ln", "-s", outside.to_str().unwrap(), &at(&image.path, "/evil/way")]);
    let out = dir.join("out");
    lanefs(&["cp", "-r", &at(&image.path, "/evil"), out.to_str().unwrap()]);
    // The first copy made the link `way` in `out`. In the source, `way` is now a directory. The
    // second copy must not write the contents of this directory through the link.
    lanefs(&["rm", &at(&image.path, "/evil/way")]);
    lanefs(&["mkdir", &at(&image.path, "/evil/way")]);
    std::fs::write(dir.join("f"), "f").unwrap();
    let file = dir.join("f");
    lanefs(&["cp", file.to_str().unwrap(), &at(&image.path, "/evil/way/f")]);
    let source = at(&image.path, "/evil/.");
    let (status, _) =
        try_run(Command::new(LANEFS).args(["cp", "-r", &source, out.to_str().unwrap()]));
    assert_eq!(status.code(), Some(1));
    assert_eq!(outside.read_dir().unwrap().count(), 0);
}

#[test]
fn a_copy_of_one_file_is_written_through_a_link_in_the_image() {
    let image = Image::new("64M");
    let place = |path: &str| at(&image.path, path);
    let new = image.mount_point().with_file_name("new");
    std::fs::write(&new, "new").unwrap();
    let new = new.to_str().unwrap();
    lanefs(&["mkdir", &place("/d"), &place("/e")]);
    lanefs(&["cp", "/dev/null", &place("/d/target")]);
    for (leads_to, link) in [("../d/target", "/e/l"), ("l", "/e/l2"), ("no", "/e/lost")] {
        lanefs(&["ln", "-s", leads_to, &place(link)]);
    }
    lanefs(&["cp", new, &place("/e/l2")]);
    assert_eq!(lanefs(&["cat", &place("/d/target")]), "new");
    // If the destination is a link to a missing file, writing through the link would create that
    // file. Like GNU cp, Lanefs refuses this.
    let (status, said) = try_run(Command::new(LANEFS).args(["cp", new, &place("/e/lost")]));
    assert!(!status.success() && said.contains("/e/lost"), "{said}");
    // A file that is moved replaces the link.
    lanefs(&["mv", &place("/d/target"), &place("/e/l")]);
    assert_eq!(lanefs(&["stat", "-c", "%F", &place("/e/l")]), "regular file\n");
    image.assert_clean();
}

#[test]
fn existing_files_are_overwritten_or_kept() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::write(dir.join("old"), "old").unwrap();
    std::fs::write(dir.join("new"), "new").unwrap();
    let target = at(&image.path, "/f");
    lanefs(&["cp", &here("old"), &target]);
    lanefs(&["cp", "-n", &here("new"), &target]);
    assert_eq!(lanefs(&["cat", &target]), "old");
    lanefs(&["cp", &here("new"), &target]);
    assert_eq!(lanefs(&["cat", &target]), "new");
    // If a copied tree has a file at the path where the target has a symbolic link, the file
    // replaces the link. The file's data is not written through the link.
    lanefs(&["ln", "-s", "f", &at(&image.path, "/l")]);
    std::fs::create_dir(dir.join("t")).unwrap();
    std::fs::write(dir.join("t/l"), "tree").unwrap();
    lanefs(&["cp", "-r", &format!("{}/.", here("t")), &at(&image.path, "/")]);
    assert_eq!(lanefs(&["cat", &target]), "new");
    assert_eq!(lanefs(&["cat", &at(&image.path, "/l")]), "tree");
    assert_clean(&image.path);
}

#[test]
fn mv_renames_within_an_image_and_copies_across() {
    let image = Image::new("16M");
    let other = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "mkdir -p t/u; echo one > t/u/one; echo two > two");
    let tree = dir.join("t");
    lanefs(&["mv", tree.to_str().unwrap(), &at(&image.path, "/")]);
    assert!(!tree.exists());
    lanefs(&["mv", &at(&image.path, "/t/u"), &at(&image.path, "/v")]);
    lanefs(&["mv", &at(&image.path, "/v"), &at(&image.path, "/t")]);
    assert_eq!(lanefs(&["cat", &at(&image.path, "/t/v/one")]), "one\n");
    lanefs(&["mv", &at(&image.path, "/t"), &at(&other.path, "/moved")]);
    assert_eq!(lanefs(&["ls", "-A", &at(&image.path, "/")]), "lost+found\n");
    let out = dir.join("out");
    lanefs(&["mv", &at(&other.path, "/moved"), out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("v/one")).unwrap(), b"one\n");
    assert_clean(&image.path);
    assert_clean(&other.path);
}

#[test]
fn a_tree_is_given_to_one_owner() {
    let image = Image::new("16M");
    shell(image.dir.path(), "mkdir -p t/u; echo one > t/u/one; ln -s x t/l");
    let tree = image.dir.path().join("t");
    lanefs(&["cp", "-a", "--owner", "1000:70000", tree.to_str().unwrap(), &at(&image.path, "/")]);
    let places: Vec<String> =
        ["/t", "/t/u", "/t/u/one", "/t/l"].iter().map(|path| at(&image.path, path)).collect();
    for place in &places {
        assert_eq!(lanefs(&["stat", "-c", "%u:%g", place]), "1000:70000\n", "{place}");
    }
    assert_clean(&image.path);
}

#[test]
fn an_ordinary_user_fills_an_image_and_takes_files_out() {
    if !can_mount() {
        return;
    }
    let image = Image::new("16M");
    shell(image.dir.path(), "chmod 777 .; chown 65534 disk.img; mkdir o; chown 65534 o");
    shell(image.dir.path(), "mkdir t; echo s > t/s; chmod 4755 t/s; chown 0:0 t/s; chmod 4755 t/s");
    let tree = image.dir.path().join("t");
    let mut fill = mounting::as_nobody(LANEFS);
    run(fill.args(["cp", "-a", tree.to_str().unwrap(), &at(&image.path, "/")]));
    assert_eq!(lanefs(&["stat", "-c", "%a %u", &at(&image.path, "/t/s")]), "4755 0\n");
    let mut take = mounting::as_nobody(LANEFS);
    let out = image.dir.path().join("o/s");
    run(take.args(["cp", "-a", &at(&image.path, "/t/s"), out.to_str().unwrap()]));
    use std::os::unix::fs::MetadataExt;
    let metadata = out.metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (65534, 0o755));
    assert_clean(&image.path);
}

#[test]
fn a_destination_with_a_slash_is_a_directory() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "echo x >f; mkdir d; echo y >d/g; ln -s d l");
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let place = |path: &str| at(&image.path, path);
    lanefs(&["cp", &here("f"), &place("/f")]);
    let (none, none_here) = (place("/none/"), here("none/"));
    let (file, file_here) = (place("/f/"), here("f/"));
    for line in [
        ["cp", &here("f"), &none],
        ["cp", &place("/f"), &none],
        ["cp", &place("/f"), &none_here],
        ["cp", "-", &none],
        ["cp", &here("f"), &file],
        ["cp", &place("/f"), &file_here],
        ["mv", &place("/f"), &none],
        ["mv", &place("/f"), &none_here],
    ] {
        let (status, said) = try_run(Command::new(LANEFS).args(line));
        assert_eq!(status.code(), Some(1), "{line:?}: {said}");
        assert!(said.contains("not a directory"), "{line:?}: {said}");
    }
    assert_eq!(lanefs(&["ls", "-A", &place("/")]), "f\nlost+found\n");
    assert!(!dir.join("none").exists());
    // If a directory is copied or moved, the destination path may end in a slash, even if the
    // source is a link to a directory.
    lanefs(&["cp", "-r", &here("d"), &place("/new/")]);
    lanefs(&["cp", "-rL", &here("l"), &place("/linked/")]);
    lanefs(&["cp", "-r", &place("/new"), &here("out/")]);
    lanefs(&["mv", &place("/new"), &place("/moved/")]);
    assert_eq!(lanefs(&["ls", &place("/moved"), &place("/linked")]).matches("g\n").count(), 2);
    assert!(dir.join("out/g").exists());
    assert_clean(&image.path);
}

#[test]
fn a_host_path_given_by_mistake_is_explained() {
    let image = Image::new("16M");
    shell(image.dir.path(), "echo x >f");
    let mut command = Command::new(LANEFS);
    let (status, said) =
        try_run(command.args(["cp", "f", "./disk.img:/y"]).current_dir(image.dir.path()));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("./disk.img:/y: with ./ in front it is a host path"), "{said}");
    let mut command = Command::new(LANEFS);
    let (status, said) = try_run(command.args(["mv", "-", &at(&image.path, "/y")]));
    assert_eq!((status.code(), said.contains("cannot be moved")), (Some(1), true), "{said}");
}

/// Runs lanefs, which fails, and returns what it says.
fn fails(arguments: &[&str]) -> String {
    let (status, said) = try_run(Command::new(LANEFS).args(arguments));
    assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
    said
}

#[test]
fn mv_leaves_files_that_it_must_not_overwrite() {
    let image = Image::new("16M");
    let other = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "mkdir -p a b t/u; echo old >old; echo new >new; echo a >a/f; echo b >b/f");
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let place = |path: &str| at(&image.path, path);
    let elsewhere = at(&other.path, "/f");
    lanefs(&["cp", &here("old"), &place("/f")]);
    lanefs(&["cp", &here("new"), &place("/g")]);
    lanefs(&["cp", &here("old"), &elsewhere]);
    for (from, to) in [
        (place("/g"), here("old")),
        (here("new"), place("/f")),
        (place("/g"), place("/f")),
        (place("/g"), elsewhere.clone()),
    ] {
        assert!(fails(&["mv", "-n", &from, &to]).contains("exists"), "{from} {to}");
    }
    assert_eq!(shell(dir, "cat old new"), "old\nnew\n");
    assert_eq!(lanefs(&["cat", &place("/f"), &place("/g"), &elsewhere]), "old\nnew\nold\n");

    // A directory is not copied into itself, even if its path does not end in its name.
    lanefs(&["mkdir", &place("/within")]);
    for whole in [place("/"), place("/."), place("/within/.")] {
        assert!(fails(&["cp", "-a", &whole, &place("/within")]).contains("into itself"), "{whole}");
    }
    lanefs(&["rm", "-r", &place("/within")]);

    // Not even root can open this file for reading.
    for command in ["cp", "mv"] {
        fails(&[command, "/proc/sys/vm/drop_caches", &place("/f")]);
        assert_eq!(lanefs(&["cat", &place("/f")]), "old\n");
    }

    // As with rename(2), a moved directory replaces an empty directory, but no other.
    lanefs(&["mkdir", &place("/t"), &place("/t/x")]);
    shell(dir, "echo one >t/u/one");
    assert!(fails(&["mv", &here("t"), &place("/")]).contains("not empty"));
    assert!(fails(&["mv", "-n", &here("t"), &place("/")]).contains("exists"));
    assert_eq!(lanefs(&["ls", &place("/t")]), "x\n");
    lanefs(&["mv", "-T", &here("t"), &place("/t/x")]);
    assert_eq!(lanefs(&["cat", &place("/t/x/u/one")]), "one\n");
    assert!(fails(&["mv", &place("/t/."), &here("new-dir")]).contains("does not end in a name"));

    // If two sources have the same name, the second does not replace the copy of the first.
    for command in ["cp", "mv"] {
        lanefs(&["mkdir", &place("/d")]);
        let said = fails(&[command, &here("a/f"), &here("b/f"), &place("/d")]);
        assert!(said.contains("another source"), "{said}");
        assert_eq!(lanefs(&["cat", &place("/d/f")]), "a\n");
        lanefs(&["rm", "-r", &place("/d")]);
    }
    lanefs(&["mkdir", &place("/d"), &place("/e")]);
    lanefs(&["cp", &here("b/f"), &place("/e/g")]);
    assert!(fails(&["mv", &place("/g"), &place("/e/g"), &place("/d")]).contains("another source"));
    assert_eq!(lanefs(&["cat", &place("/d/g"), &place("/e/g")]), "new\nb\n");
    assert_clean(&image.path);
}

#[test]
fn a_copy_that_keeps_the_mode_gets_no_other_access_lists() {
    if !can_mount() {
        return;
    }
    let (image, host) = (Image::new("16M"), Image::new("16M"));
    let place = |path: &str| at(&image.path, path);
    let Some(kernel) = KernelMounted::new(&host.path, "host", "rw") else { return };
    let here = |path: &str| kernel.path.join(path).to_str().unwrap().to_owned();
    shell(
        &kernel.path,
        "mkdir -m 750 s t; echo new >s/f; chmod 640 s/f; touch t/old
        setfacl -m u:7:rw t/old; setfacl -m d:u:7:rwx t",
    );
    lanefs(&["cp", "-a", &here("."), &place("/")]);

    let listed = |text: String| text.contains("user:7");
    let ours = |path: &str| listed(lanefs(&["getfacl", "-n", &place(path)]));
    let theirs = |path: &str| listed(shell(&kernel.path, &format!("getfacl -n {path}")));
    assert!(ours("/t") && ours("/t/old") && theirs("t") && theirs("t/old"));
    for (from, to) in [(here("s"), place("/t")), (place("/s"), here("t"))] {
        let file = format!("{from}/f");
        lanefs(&["cp", "-p", &file, &format!("{to}/old")]);
        lanefs(&["cp", "-p", &file, &to]);
        lanefs(&["cp", "-rp", &from, &to]);
        // A copy with a mode of its own inherits the list.
        lanefs(&["cp", &file, &format!("{to}/plain")]);
    }
    for path in ["old", "f", "s", "s/f"] {
        assert!(!ours(&format!("/t/{path}")) && !theirs(&format!("t/{path}")), "{path}");
    }
    assert!(ours("/t/plain") && theirs("t/plain"));
    drop(kernel);
    assert_clean(&image.path);
}

#[test]
fn names_that_differ_in_case_are_not_lost_in_a_move() {
    let image = Image::with("16M", &["-O", "casefold"]);
    let dir = image.dir.path();
    shell(dir, "mkdir t; echo one >t/a; ln t/a t/b; echo two >t/B");
    let (tree, folded) = (dir.join("t"), at(&image.path, "/d"));
    lanefs(&["mkdir", &folded]);
    shell(dir, "debugfs -w -R 'set_inode_field /d flags 0x40080000' disk.img 2>&1");
    assert!(fails(&["mv", tree.to_str().unwrap(), &folded]).contains("exists"));
    assert_eq!(shell(dir, "cat t/a t/b t/B"), "one\none\ntwo\n");

    // Two names of one file become one name.
    shell(dir, "mkdir u; echo text >u/a; ln u/a u/A");
    lanefs(&["cp", "-a", dir.join("u").to_str().unwrap(), &folded]);
    // The new directory inherits the flag.
    assert_eq!(lanefs(&["cat", &at(&image.path, "/d/u/a")]), "text\n");
    assert_eq!(lanefs(&["stat", "-c", "%h", &at(&image.path, "/d/u/A")]), "1\n");
    assert_clean(&image.path);
}

#[test]
fn a_special_file_or_link_of_the_host_is_moved_itself() {
    if !can_mount() {
        return;
    }
    let image = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "ln -s /dev/null link; mknod null c 1 3; mkfifo fifo; cp -a link link2");
    let place = |path: &str| at(&image.path, path);
    for name in ["link", "null", "fifo"] {
        let from = dir.join(name);
        lanefs(&["mv", from.to_str().unwrap(), &place("/")]);
        assert!(from.symlink_metadata().is_err(), "{name}");
    }
    lanefs(&["cp", "-a", dir.join("link2").to_str().unwrap(), &place("/")]);
    let places = ["/link", "/null", "/fifo", "/link2"].map(place);
    let kinds = ["stat", "-c", "%F"].into_iter().chain(places.iter().map(String::as_str));
    assert_eq!(
        lanefs(&kinds.collect::<Vec<_>>()),
        "symbolic link\ncharacter special file\nfifo\nsymbolic link\n"
    );
    assert_clean(&image.path);
}

#[test]
fn an_image_is_not_copied_into_itself_or_overwritten_by_its_own_file() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "echo x >f; ln disk.img also; ln -s disk.img link");
    let here = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let place = |path: &str| at(&image.path, path);
    lanefs(&["cp", &here("f"), &place("/f")]);
    for target in ["disk.img", "also", "link"] {
        let said = fails(&["cp", &place("/f"), &here(target)]);
        assert!(said.contains("holds an image that this command has open"), "{said}");
    }
    for command in [
        ["mv", &place("/f"), &here("disk.img")],
        ["tar", &place("/"), &format!("-f{}", here("also"))],
        ["edit", &here("disk.img"), &format!("-cget /f {}", here("link"))],
    ] {
        let said = fails(&command);
        assert!(said.contains("holds an image that this command has open"), "{said}");
    }
    fails(&["mv", &here("disk.img"), &place("/")]);
    fails(&["mv", dir.to_str().unwrap(), &place("/")]);
    assert_eq!(lanefs(&["cat", &place("/f")]), "x\n");
    assert_clean(&image.path);
}

#[test]
fn a_stream_obeys_the_options_for_the_copy() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    let cp = |options: &str| shell(dir, &format!("echo {options} | {LANEFS} cp {options}"));
    cp("--owner 5:6 - disk.img:/f");
    cp("-n - disk.img:/f");
    let f = at(&image.path, "/f");
    assert_eq!(lanefs(&["stat", "-c", "%u:%g", &f]), "5:6\n");
    assert_eq!(lanefs(&["cat", &f]), "--owner 5:6 - disk.img:/f\n");
    // A read from `/dev/fuse` fails unless a file system has been mounted through the same open
    // file.
    if can_mount() {
        let said = fails(&["cp", "/dev/fuse", &f]);
        assert!(said.starts_with("lanefs cp: /dev/fuse: "), "{said}");
    }
    assert_clean(&image.path);
}

#[test]
fn a_link_does_not_replace_the_file_to_which_it_leads() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    let place = |path: &str| at(&image.path, path);
    shell(dir, "echo x >f");
    lanefs(&["cp", dir.join("f").to_str().unwrap(), &place("/f")]);
    lanefs(&["ln", "-s", "f", &place("/l")]);
    for command in [&["cp", "-P"][..], &["cp", "-a"], &["mv"]] {
        let said = fails(&[command, &[&place("/l"), &place("/f")]].concat());
        assert!(said.contains("same file"), "{said}");
    }
    assert_eq!(lanefs(&["cat", &place("/f")]), "x\n");
    // A link may replace another link to the same file.
    lanefs(&["ln", "-s", "f", &place("/m")]);
    lanefs(&["cp", "-a", &place("/l"), &place("/m")]);
    lanefs(&["mv", &place("/l"), &place("/m")]);
    assert_eq!(lanefs(&["cat", &place("/m")]), "x\n");
    assert_clean(&image.path);
}

#[test]
fn a_file_of_the_host_is_copied_up_to_its_end_whatever_its_size_says() {
    let image = Image::new("16M");
    for name in ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        if Path::new(name).exists() {
            let to = at(&image.path, "/f");
            lanefs(&["cp", name, &to]);
            assert_eq!(lanefs(&["cat", &to]), std::fs::read_to_string(name).unwrap());
        }
    }
    assert_clean(&image.path);
}

#[test]
fn a_copy_that_follows_links_ends_although_they_form_a_circle() {
    let dir = scratch();
    let dir = dir.path();
    shell(
        dir,
        "mkdir -p t/a t/b out; echo x >t/f; ln -s . t/dot; ln -s ../b t/a/b; ln -s ../a t/b/a",
    );
    shell(dir, &format!("{LANEFS} mkfs -q a.img 16M; {LANEFS} mkfs -q links.img 16M --from t"));
    for (from, to) in [("t", "a.img:/"), ("links.img:/.", "out")] {
        let (status, errors) =
            try_run(Command::new(LANEFS).args(["cp", "-rL", from, to]).current_dir(dir));
        assert_eq!(status.code(), Some(1), "{errors}");
        assert_eq!(errors.matches("leads back to this directory").count(), 3, "{errors}");
    }
    let tree = shell(dir, &format!("{LANEFS} find a.img; (cd out; find . | sort)"));
    assert!(tree.contains("a.img:/t/a/b\n") && tree.contains("./b/a\n"), "{tree}");
    assert_clean(&dir.join("a.img"));
}

#[test]
fn names_of_one_file_stay_one_file_across_operands() {
    if !can_mount() {
        return;
    }
    let image = Image::new("16M");
    let plain = Image::with("16M", &["-O", "^ext_attr"]);
    let place = |path: &str| at(&image.path, path);
    let there = |path: &str| at(&plain.path, path);
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    // An attribute that needs a block of its own.
    shell(
        &kernel.path,
        "mkdir a b; echo one >f; ln f g; echo two >a/x; ln a/x b/y; ln a/x z; echo three >b/g
        setfattr -n user.big -v \"$(printf '%0900d' 1)\" f",
    );
    drop(kernel);
    let dir = image.dir.path();
    let here = |path: &str| dir.join(path).to_str().unwrap().to_owned();
    let sources = ["/f", "/g", "/a", "/b", "/z"].map(place);
    let with_target = |command: &[&str], target: &str| {
        let mut words: Vec<&str> = command.to_vec();
        words.extend(sources.iter().map(String::as_str));
        words.push(target);
        lanefs(&words);
    };
    let links = "stat -c '%n %h' f g a/x b/y z; cat g b/y b/g";
    let expected = "f 2\ng 2\na/x 3\nb/y 3\nz 3\none\ntwo\nthree\n";
    std::fs::create_dir(dir.join("out")).unwrap();
    std::fs::create_dir(dir.join("moved")).unwrap();
    with_target(&["cp", "-a"], &here("out"));
    assert_eq!(shell(&dir.join("out"), links), expected);
    lanefs(&["cp", "-a", &here("out/f"), &here("out/g"), &there("/")]);
    with_target(&["cp", "-a"], &there("/"));
    lanefs(&["mkdir", &place("/again"), &there("/again")]);
    with_target(&["cp", "-a"], &place("/again"));
    // A later operand does not replace an earlier copy, not even by a further name.
    let said = fails(&["cp", "-a", &place("/f"), &place("/g"), &place("/b/g"), &there("/again")]);
    assert!(said.contains("another source"), "{said}");
    // A move removes names before it copies the next ones.
    with_target(&["mv"], &here("moved"));
    assert_eq!(shell(&dir.join("moved"), links), expected);
    for image in [&image, &plain] {
        assert_clean(&image.path);
    }
    let Some(kernel) = KernelMounted::new(&plain.path, "kernel", "ro") else { return };
    assert_eq!(shell(&kernel.path, links), expected);
    assert_eq!(
        shell(&kernel.path, "cat again/g; getfattr --only-values -n user.big g | wc -c"),
        "one\n900\n"
    );
}

#[test]
fn of_two_sources_the_last_gives_a_directory_its_mode() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    shell(dir, "mkdir -p base/root over/root; chmod 755 base/root; chmod 700 over/root");
    let copied = format!("{LANEFS} cp -a base/. over/. {}:/", image.path.display());
    let listed = format!("{LANEFS} stat -c %a {}:/root", image.path.display());
    assert_eq!(shell(dir, &format!("{copied}; {listed}")), "700\n");
    assert_clean(&image.path);
}

#[test]
fn a_directory_gets_its_mode_after_what_is_in_it() {
    let image = Image::new("16M");
    if !can_mount() || !needs("setpriv") {
        return;
    }
    let disk = image.path.display().to_string();
    for command in ["mkdir -p @/d/e/f", "touch -d @1000 @/d/e/f @/d/e", "chmod 0 @/d/e @/d"] {
        run(Command::new(LANEFS).args(command.replace("@/", &format!("{disk}:/")).split(' ')));
    }
    let dir = image.dir.path();
    let (status, said) = as_user(dir, &format!("{LANEFS} cp -a {disk}:/d out"));
    assert!(status.success(), "{said}");
    let found = shell(dir, "stat -c '%a %Y' out/e out/e/f; stat -c %a out");
    assert_eq!(found, "0 1000\n755 1000\n0\n");
}
