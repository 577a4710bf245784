//! Tests with images that were made to cause harm. Each of them must cause an error, and nothing
//! worse.

use crate::image::{Image, file};
use lanefs_ext4::{Access, Error, MountOptions, Rename};
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
