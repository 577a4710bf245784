//! Tests with images that were made to cause harm. Each of them must cause an error, and nothing
//! worse.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, DirEntry, Error, Fs, InodeRef, MountOptions, Rename};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_name_that_leads_to_the_journal_or_the_orphan_file_leads_nowhere() {
    let image = Image::made(&["-b", "4096", "-O", "orphan_file"], "32M");
    image.debugfs(&["ln <8> journal", "ln <7> resize", "ln <12> orphans"]);
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for name in [&b"journal"[..], b"resize", b"orphans"] {
        let found = fs.find(&root, name);
        assert!(matches!(found, Err(Error::Corruption(_))), "{:?}", found.map(|f| f.is_some()));
        assert!(matches!(fs.unlink(&root, name), Err(Error::Corruption(_))));
        let renamed = fs.rename(&root, name, &root, b"other", Rename::Replace);
        assert!(matches!(renamed, Err(Error::Corruption(_))));
    }
    fs.create(&root, b"file", &file(0o644)).unwrap();
    drop(root);
    mount.close().unwrap();
}

#[test]
fn an_orphan_that_is_the_journal_does_not_cost_the_journal() {
    let image = Image::made(&["-b", "4096", "-O", "^orphan_file"], "32M");
    let before = image.debugfs(&["bmap <8> 0"]);
    image.debugfs(&["sif <8> links_count 0", "ssv last_orphan 8"]);
    let mounted = image.try_mount(Access::ReadWrite, MountOptions::default());
    assert!(matches!(mounted, Err(Error::Corruption(_))));
    drop(mounted);
    assert_eq!(image.debugfs(&["bmap <8> 0"]), before);
}

#[test]
fn an_orphan_file_with_a_wrong_size_is_read_by_its_mappings() {
    let image = Image::made(&["-b", "4096", "-O", "orphan_file"], "32M");
    image.debugfs(&["sif <12> size 0xffffffd0000"]);
    let begun = Instant::now();
    let mount = image.mount(Access::ReadWrite);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let root = mount.fs().root().unwrap();
    mount.fs().create(&root, b"file", &file(0o644)).unwrap();
    mount.fs().unlink(&root, b"file").unwrap();
    drop(root);
    mount.close().unwrap();
}

#[test]
fn a_log_that_lies_on_an_inode_table_is_refused() {
    let image = Image::made(&["-b", "4096", "-J", "size=4"], "32M");
    // The journal's superblock is copied into the inode table, and the first extent of the
    // journal's inode is changed to refer to the copy.
    let place: u64 = image.debugfs(&["bmap <8> 0"]).trim().parse().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let head = bytes[place as usize * 4096..][..4096].to_vec();
    let mut changed = bytes;
    changed[200 * 4096..201 * 4096].copy_from_slice(&head);
    std::fs::write(image.path(), changed).unwrap();
    image.debugfs(&["sif <8> block[5] 200"]);
    let mounted = image.try_mount(Access::ReadWrite, MountOptions::default());
    let error = mounted.err();
    assert!(matches!(error, Some(Error::ClaimsMetadata { .. })), "{error:?}");
}

#[test]
fn an_orphan_with_a_block_map_is_deleted_with_its_blocks() {
    let image = Image::made(&["-b", "4096", "-O", "^64bit,^orphan_file"], "32M");
    let source = image.path().with_file_name("source");
    std::fs::write(&source, vec![7; 100_000]).unwrap();
    image.debugfs(&[
        "feature -extents",
        &format!("write {} old", source.display()),
        "feature extents",
        "sif old links_count 0",
        "ssv last_orphan 12",
        "unlink old",
    ]);
    let blocks = image.debugfs(&["blocks <12>"]);
    assert!(blocks.split_whitespace().count() > 20, "{blocks}");
    image.mount(Access::ReadWrite).close().unwrap();
    assert!(image.debugfs(&["testi <12>"]).contains("is not in use"));
    image.check();
}

/// Returns the names in `dir` except "." and "..", in batches of seven, and whether a fault was
/// met.
fn listed(fs: &Fs, dir: &InodeRef) -> (Vec<String>, bool) {
    let (mut names, mut cookie, mut is_faulty) = (Vec::new(), 0, false);
    loop {
        let (before, mut batch) = (cookie, 0);
        let read = fs.read_dir(dir, before, &mut |entry| {
            if batch == 7 {
                return ControlFlow::Break(());
            }
            batch += 1;
            cookie = entry.next;
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        });
        is_faulty |= read.is_err();
        if batch < 7 {
            names.retain(|name| name != "." && name != "..");
            names.sort_unstable();
            return (names, is_faulty);
        }
    }
}

/// Makes a directory `d` of 200 names, damages the image with `damage`, and returns the names that
/// are listed then. All of them must be found too.
fn listed_after(options: &[&str], damage: impl FnOnce(&Image)) -> (Vec<String>, bool) {
    let image = Image::made(options, "64M");
    let mount = image.mount(Access::ReadWrite);
    let (fs, root) = (mount.fs(), mount.fs().root().unwrap());
    let dir = fs.create(&root, b"d", &directory()).unwrap();
    for n in 0..200 {
        fs.create(&dir, format!("name-{n:0>3}").as_bytes(), &file(0o644)).unwrap();
    }
    drop((root, dir));
    mount.close().unwrap();
    damage(&image);
    let mount = image.mount(Access::ReadOnly);
    let fs = mount.fs();
    let dir = fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap();
    let (names, is_faulty) = listed(fs, &dir);
    for name in &names {
        assert!(fs.find(&dir, name.as_bytes()).unwrap().is_some(), "{name} is listed");
    }
    assert!(!matches!(fs.find(&dir, b"not there"), Ok(Some(_))));
    drop(dir);
    mount.close().unwrap();
    (names, is_faulty)
}

/// Replaces all occurrences of `old` in an image.
fn replace(image: &Image, old: &[u8], new: &[u8]) {
    let mut bytes = std::fs::read(image.path()).unwrap();
    let places: Vec<_> = memchr(&bytes, old);
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    std::fs::write(image.path(), bytes).unwrap();
}

fn memchr(bytes: &[u8], sought: &[u8]) -> Vec<usize> {
    (0..bytes.len() - sought.len()).filter(|at| bytes[*at..].starts_with(sought)).collect()
}

const WITHOUT_CHECKSUMS: &str = "^metadata_csum";

#[test]
fn one_bad_name_hides_no_other_name() {
    for options in
        [&["-O", WITHOUT_CHECKSUMS][..], &["-O", "^metadata_csum,^dir_index", "-b", "1024"]]
    {
        let (names, is_faulty) =
            listed_after(options, |image| replace(image, b"name-123", b"name/123"));
        let others = (0..200).filter(|n| *n != 123).map(|n| format!("name-{n:0>3}"));
        assert!(names.iter().eq(others.collect::<Vec<_>>().iter()), "{options:?}: {names:?}");
        assert!(is_faulty, "{options:?}: the fault is told");
    }
}

#[test]
fn a_directory_with_a_bad_index_is_listed_in_the_order_of_its_blocks() {
    // Half MD4, 8 bytes of information, no level below: the bytes behind the dots of the root.
    let [root, unknown] = [[0, 0, 0, 0, 1, 8, 0, 0], [0, 0, 0, 0, 77, 8, 0, 0]];
    let options = ["-O", WITHOUT_CHECKSUMS, "-b", "1024"];
    let (names, is_faulty) = listed_after(&options, |image| {
        let bytes = std::fs::read(image.path()).unwrap();
        let is_root = |at: &usize| at % 1024 == 0x18 && bytes[at - 4..].starts_with(b"..");
        let mut changed = bytes.clone();
        for at in memchr(&bytes, &root).into_iter().filter(is_root) {
            changed[at..at + 8].copy_from_slice(&unknown);
        }
        assert_ne!(bytes, changed, "a root of an index");
        std::fs::write(image.path(), changed).unwrap();
    });
    assert!(names.iter().eq((0..200).map(|n| format!("name-{n:0>3}")).collect::<Vec<_>>().iter()));
    assert!(is_faulty, "the fault is told");
}

#[test]
fn removing_all_names_takes_as_long_without_an_index() {
    let mut took = Vec::new();
    for is_indexed in [true, false] {
        let image = Image::made(&["-N", "32768"], "256M");
        let mount = image.mount(Access::ReadWrite);
        let root = mount.fs().root().unwrap();
        let dir = mount.fs().create(&root, b"d", &directory()).unwrap();
        for n in 0..20_000 {
            mount.fs().create(&dir, n.to_string().as_bytes(), &file(0o644)).unwrap();
        }
        drop((root, dir));
        mount.close().unwrap();
        if !is_indexed {
            let path = image.path();
            let done = Command::new("tune2fs").args(["-O", "^dir_index"]).arg(path).output();
            assert!(done.unwrap().status.success());
        }
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let dir = fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap();
        let start = Instant::now();
        let (names, _) = listed(fs, &dir);
        assert_eq!(names.len(), 20_000);
        let in_order = {
            let mut names = Vec::new();
            let each = &mut |entry: &DirEntry<'_>| {
                names.push(entry.name.to_vec());
                ControlFlow::Continue(())
            };
            fs.read_dir(&dir, 0, each).unwrap();
            names
        };
        for name in in_order.iter().skip(2) {
            drop(fs.find(&dir, name).unwrap().unwrap());
            fs.unlink(&dir, name).unwrap();
        }
        took.push(start.elapsed());
        drop(dir);
        mount.close().unwrap();
        image.check();
    }
    println!("with an index {:?}, without {:?}", took[0], took[1]);
    assert!(took[1] < 4 * took[0], "{took:?}");
}
