//! Tests of tables of owners, modes, labels and files: mtree, fs_config and file_contexts, and
//! which table wins over which.

use crate::image;

use crate::image::{build, build_in, scratch, shell, try_build};
use lanefs_build::{Builder, MkfsOptions, OnLoss, Room, Source, Spare, Table};
use std::path::Path;

fn stat(dir: &Path, name: &str) -> String {
    shell(dir, &format!("debugfs -R 'stat {name}' a.img 2>/dev/null"))
}

fn attribute(dir: &Path, name: &str, attribute: &str) -> String {
    let value = format!("debugfs -R 'ea_get -x {name} {attribute}' a.img 2>/dev/null");
    shell(dir, &value).trim().rsplit(" = ").next().unwrap_or_default().replace(' ', "")
}

#[test]
fn fs_config_gives_owners_modes_and_capabilities() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/bin t/etc; echo x >t/bin/ping; echo y >t/bin/sh; ln -s sh t/bin/l",
    );
    let text = "# comment
        system 0 0 0755
        system/bin 0 2000 0751
        system/bin/* 0 2000 0755
        system/bin/ping 7 2000 0750 capabilities=0x3000
        system/etc 1 2 0700 capabilities=0";
    let table = Table::fs_config("fs_config", text, "/system").unwrap();
    let source = Source::directory(dir.path().join("t"));
    build(&dir.path().join("a.img"), Builder::new().source(source).table(table));
    let is = |name: &str, mode: &str, owner: [u32; 2]| {
        let stat = stat(dir.path(), name);
        let owner = format!("User: {:>5}   Group: {:>5}", owner[0], owner[1]);
        assert!(stat.contains(&format!("Mode:  {mode}")) && stat.contains(&owner), "{stat}");
    };
    is("/bin", "0751", [0, 2000]);
    is("/bin/sh", "0755", [0, 2000]);
    is("/bin/ping", "0750", [7, 2000]);
    is("/bin/l", "0777", [0, 2000]);
    is("/etc", "0700", [1, 2]);
    let capability = attribute(dir.path(), "/bin/ping", "security.capability");
    assert_eq!(capability, "0100000200300000000000000000000000000000");
    for (text, told) in [
        ("a 0 0", "fs_config: line 1: not PATH UID GID MODE"),
        ("\na 0 0 9", "fs_config: line 2: wrong mode"),
        ("a 0 0 644 selabel=x", "fs_config: line 1: 'selabel=x' is not capabilities=MASK"),
    ] {
        assert_eq!(Table::fs_config("fs_config", text, "/").unwrap_err().to_string(), told);
    }
}

#[test]
fn file_contexts_give_labels_and_the_right_line_wins() {
    let dir = scratch();
    shell(dir.path(), "mkdir -p t/bin t/lib64; echo x >t/bin/ping; echo y >t/bin/sh; mkfifo t/p");
    let text = r"
        /(.*)?                u:object_r:root:s0
        /bin(/.*)?            u:object_r:bin:s0
        /bin/sh               u:object_r:exact:s0
        /bin/s.*              u:object_r:later:s0
        /bin/.*       -d      u:object_r:directory:s0
        /lib(64)?(/.*)?       u:object_r:lib:s0
        /p            -p      <<none>>";
    let table = Table::file_contexts("contexts", text, "/").unwrap();
    let source = Source::directory(dir.path().join("t"));
    build(&dir.path().join("a.img"), Builder::new().source(source).table(table));
    let label = |name: &str| {
        let hex = attribute(dir.path(), name, "security.selinux");
        let bytes = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        String::from_utf8(bytes.collect()).unwrap()
    };
    for (name, expected) in [
        ("/", "root"),
        ("/bin", "bin"),
        ("/bin/ping", "bin"),
        ("/bin/sh", "exact"),
        ("/lib64", "lib"),
    ] {
        assert_eq!(label(name), format!("u:object_r:{expected}:s0\0"), "{name}");
    }
    assert_eq!(label("/p"), "");
    let wrong = Table::file_contexts("contexts", "/a(?=b) c\n", "/").unwrap_err().to_string();
    assert!(wrong.starts_with("contexts: line 1: '/a(?=b)' is not a regular"), "{wrong}");
}

#[test]
fn an_mtree_specification_makes_missing_files_and_changes_existing_ones() {
    let dir = scratch();
    shell(dir.path(), "mkdir -p t/etc; echo old >t/etc/motd; echo here >t/etc/kept; echo new >new");
    let new = dir.path().join("new");
    let text = format!(
        r"#mtree
        /set type=file uid=0 gid=0 mode=644
        . type=dir mode=0755
            etc type=dir mode=0750 uid=3 gid=4
                kept size=5 sha256digest=00 time=1000000000.123456789
                motd \
                    mode=600 contents={}
                a\040b type=link link=kept
            ..
            none optional
            dev type=dir
                console type=char device=native,5,1 mode=600
                fifo type=fifo uid=9
            ..
        ..
        /unset uid
        ./etc/kept mode=640",
        new.display()
    );
    let source = || Source::directory(dir.path().join("t"));
    let image = dir.path().join("a.img");
    let table = Table::mtree("spec", &text).unwrap();
    build(&image, Builder::new().source(source()).table(table));
    let cat = |name: &str| shell(dir.path(), &format!("debugfs -R 'cat {name}' a.img 2>/dev/null"));
    assert_eq!((cat("/etc/motd").as_str(), cat("/etc/kept").as_str()), ("new\n", "here\n"));
    let kept = stat(dir.path(), "/etc/kept");
    assert!(kept.contains("Mode:  0640") && kept.contains("mtime: 0x3b9aca00:1d6f3454"), "{kept}");
    assert!(stat(dir.path(), "/etc").contains("User:     3   Group:     4"));
    assert!(stat(dir.path(), "/etc/motd").contains("Mode:  0600"));
    assert!(stat(dir.path(), "\"/etc/a b\"").contains("Fast link dest: \"kept\""));
    assert!(stat(dir.path(), "/dev/console").contains("05:01"));
    assert!(stat(dir.path(), "/dev/fifo").contains("User:     9"));
    for (text, told) in [
        (". type=dir\n    gone", "spec: line 2: ./gone: the file is missing"),
        ("../evil type=dir", "spec: line 1: ../evil: the name leaves the tree by '..'"),
        ("l type=link", "spec: line 1: l: link= is missing"),
    ] {
        let table = Table::mtree("spec", text).unwrap();
        let error = try_build(&image, Builder::new().source(source()).table(table)).unwrap_err();
        assert_eq!(error.to_string(), told);
    }
    for (text, told) in [
        ("a typ=dir", "'typ' is not a property of mtree that Lanefs knows"),
        ("a type=door", "type=door is not a type of mtree"),
        (r"a\9 type=dir", r"'a\9' has a backslash without a meaning"),
        ("a mode=99", "mode=99 is not an octal mode"),
    ] {
        let error = Table::mtree("spec", text).unwrap_err();
        assert_eq!(error.to_string(), format!("spec: line 1: {told}"));
    }
}

/// Describes a tree with mtree(8). An image that is built from this description must have the same
/// tree.
#[test]
fn output_of_mtree_gives_the_same_tree() {
    let dir = scratch();
    let found = shell(dir.path(), "command -v mtree || true");
    if found.is_empty() || !image::can_mount() {
        println!("skipped: mtree (package mtree-netbsd) is missing, or no image can be mounted");
        return;
    }
    let tree = dir.path().join("t");
    shell(
        dir.path(),
        "mkdir -p t/d/e t/'a b'; ln -s ../x t/d/l; mkfifo t/d/p; mknod t/c c 5 1
        chmod 4711 t/d/e; chown -h 7:8 t/d t/d/l; find t -exec touch -h -d '2021-05-06 07:08:09.5' {} +
        mkdir empty; mtree -c -k type,mode,uid,gid,link,time,device -p t >spec",
    );
    let spec = std::fs::read_to_string(dir.path().join("spec")).unwrap();
    let table = Table::mtree("spec", &spec).unwrap();
    let source = Source::directory(dir.path().join("empty"));
    let image = dir.path().join("a.img");
    build(&image, Builder::new().source(source).table(table));
    image::assert_same(&image::survey_image(&image), &image::survey(&tree));
}

#[test]
fn if_several_tables_name_a_file_their_kind_decides() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; echo x >t/f; echo x >t/g; echo x >t/h; echo x >t/i");
    let mtree = ". type=dir\n f uid=1 mode=601\n g uid=1 mode=601\n h uid=1 mode=601";
    let devices = "/f f 602 2 0 - - - - -\n/g f 602 2 0 - - - - -";
    let builder = Builder::new()
        .source(Source::directory(dir.path().join("t")))
        .table(Table::fs_config("c", "f 3 0 603\ni 3 0 603", "/").unwrap())
        .table(Table::parse("d", devices).unwrap())
        .table(Table::mtree("m", mtree).unwrap())
        .table(Table::fs_config("c", "i 4 0 604", "/").unwrap());
    build(&dir.path().join("a.img"), builder);
    for (name, expected) in [("f", 3), ("g", 2), ("h", 1), ("i", 4)] {
        let stat = stat(dir.path(), name);
        let mode = format!("Mode:  060{expected}");
        assert!(stat.contains(&mode) && stat.contains(&format!("User:     {expected} ")), "{stat}");
    }
}

#[test]
fn a_value_that_ext4_cannot_store_is_an_error_or_a_named_loss() {
    let dir = scratch();
    // ext4 can store neither the attribute `btrfs.x`, which a pax header has, nor a time after
    // 2446.
    shell(
        dir.path(),
        "mkdir t; echo x >t/f; setfattr -n user.small -v 1 t/f
        touch -d '2600-01-01 00:00:00Z' t/f; echo y >t/g
        tar --pax-option=SCHILY.xattr.btrfs.x:=1 -H pax --xattrs -cf t.tar -C t f g",
    );
    let tar = || Builder::new().source(Source::tar(dir.path().join("t.tar")));
    let image = dir.path().join("a.img");
    let error = try_build(&image, tar()).unwrap_err().to_string();
    assert!(error.contains("/f: a time outside of the years"), "{error}");
    let options = MkfsOptions { on_loss: OnLoss::Report, ..MkfsOptions::default() };
    let built = build_in(&image, options, Room::Fitted(Spare::default()), tar()).unwrap();
    image::assert_clean(&image);
    let reason = "attribute btrfs.x: ext4 does not store attributes of this kind";
    assert_eq!(built.losses.len(), 3, "{:?}", built.losses);
    assert!(built.losses[0].starts_with("/f: a time outside"), "{:?}", built.losses);
    assert_eq!(built.losses[1..], [format!("/f: {reason}"), format!("/g: {reason}")]);
    assert_eq!(attribute(dir.path(), "/f", "user.small"), "31");
}

/// Builds images whose files have block maps, with and without indexes of directories, and with
/// holes at all levels of the maps.
#[test]
fn ext2_and_ext3_are_filled_by_block_maps() {
    use lanefs_mkfs::Kind;
    use lanefs_ondisk::features::Compat;
    if !image::can_mount() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("t");
    std::fs::create_dir(&tree).unwrap();
    image::fill(&tree);
    shell(
        &tree,
        "setfattr -x user.big a/data; truncate -s 100M a/deep; for at in 0 12 268 65803 65804 90000; do
        printf x | dd of=a/deep bs=1K seek=$at conv=notrunc status=none; done
        head -c 3M /dev/urandom >a/dense; touch -d '2001-02-03 04:05:06' a a/*",
    );
    for (kind, indexed, block) in [(Kind::Ext2, true, 1024), (Kind::Ext3, false, 4096)] {
        let mut features = kind.features();
        features.compat.set(Compat::DIR_INDEX, indexed);
        let block_size = lanefs_ondisk::BlockSize::new(block);
        let options =
            MkfsOptions { features, block_size, size: Some(200 << 20), ..MkfsOptions::default() };
        let builder = Builder::new().source(Source::directory(&tree));
        let image = dir.path().join("a.img");
        build_in(&image, options, Room::Given, builder).unwrap();
        image::assert_clean(&image);
        let mounted = image::Mounted::new(&image);
        image::assert_same(&image::survey(mounted.path()), &image::survey(&tree));
    }
}
