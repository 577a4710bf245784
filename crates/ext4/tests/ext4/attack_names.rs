//! Tests with directory entries that no implementation of ext4 writes. Each of them causes an error
//! with a message that names the damage, and the damage is recorded.

use crate::image::{Image, directory, file};
use lanefs_ext4::{
    Access, Acted, DirId, Ends, Error, InodeRef, MountOptions, Named, Names, NewInode, OnError,
    Rename,
};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_ondisk::Group;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Superblock;
use std::process::Command;
use std::sync::Arc;

fn continuing() -> MountOptions {
    MountOptions { on_error: OnError::Continue, ..MountOptions::default() }
}

fn errors_recorded(image: &Image) -> String {
    let told = Command::new("dumpe2fs").arg("-h").arg(image.path()).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    told.lines().find(|line| line.starts_with("FS Error count")).unwrap_or("none").to_owned()
}

#[test]
fn an_entry_that_names_its_own_directory_is_not_moved_out_of_it() {
    let image = Image::made(&["-O", "^metadata_csum"], "8M");
    image.debugfs(&["mkdir a", "mkdir b", "ln a a/self", "ln b b/self"]);
    for how in [Rename::Replace, Rename::Exchange] {
        let mount = image.mount_with(Access::ReadWrite, continuing());
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let a = fs.find(&root, b"a").unwrap().unwrap();
        let b = fs.find(&root, b"b").unwrap().unwrap();
        let new: &[u8] = if how == Rename::Exchange { b"self" } else { b"other" };
        let moved = fs.rename(&a, b"self", &b, new, how);
        assert!(matches!(moved, Err(Error::Corruption(_))), "{moved:?}");
        let there = fs.find(&a, b"self").unwrap().unwrap();
        assert_eq!(there.ino(), a.ino(), "nothing was changed");
        drop((there, a, b, root));
        mount.close().unwrap();
    }
}

#[test]
fn a_name_that_leads_to_a_free_inode_is_damage_and_no_stale_handle() {
    let image = Image::made(&["-O", "^metadata_csum"], "8M");
    image.debugfs(&["mkdir d", "write /etc/hostname d/f"]);
    let found = image.debugfs(&["stat d/f"]);
    assert!(found.contains("Inode:"), "{found}");
    image.debugfs(&["sif d/f links_count 0", "sif d/f dtime 1"]);
    let mount = image.mount_with(Access::ReadWrite, continuing());
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.find(&root, b"d").unwrap().unwrap();
    let got = fs.find(&dir, b"f").map(|_| ());
    assert!(matches!(got, Err(Error::Corruption(_))), "{got:?}");
    assert!(!fs.is_read_only(), "errors=continue");
    drop((dir, root));
    mount.close().unwrap();
    assert!(errors_recorded(&image).ends_with(" 1"), "{}", errors_recorded(&image));
}

#[test]
fn damage_makes_the_mount_read_only_on_request_and_is_recorded() {
    let image = Image::made(&[], "8M");
    image.debugfs(&["mkdir d", "sif d generation 77"]);
    let options = MountOptions { on_error: OnError::ReadOnly, ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    // The block's checksum was computed with the old generation.
    let dir = fs.find(&root, b"d").unwrap().unwrap();
    assert_eq!(fs.find(&dir, b"f").map(|_| ()).unwrap_err().errno(), 117);
    assert!(fs.is_read_only());
    assert!(matches!(fs.create(&root, b"new", &file(0o644)), Err(Error::ReadOnly)));
    drop((dir, root));
    let _ = mount.close();
    assert!(errors_recorded(&image).ends_with(" 1"), "{}", errors_recorded(&image));
}

#[test]
fn a_wrong_number_of_unused_inodes_does_not_abort_the_journal() {
    // In group 0 the number of unused inodes is too large: the group uses inodes beyond the part of
    // its table that counts as initialised. In groups 1 and 2 the number is too small: a commit
    // must initialise their whole tables.
    let lazy = ["-E", "root_owner=0:0,lazy_itable_init=1"];
    let sizes = ["-b", "1024", "-g", "4096", "-N", "16384", "-J", "size=1"];
    let image = Image::made(&[&lazy[..], &sizes[..]].concat(), "16M");
    let mut bytes = std::fs::read(image.path()).unwrap();
    let superblock = Superblock::decode(&bytes[1024..2048]).unwrap();
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    for (group, unused) in [(Group(0), 4092), (Group(1), 0), (Group(2), 0)] {
        let (index, range) = geometry.desc_place(group).unwrap();
        let block = geometry.desc_block(index).unwrap().0 as usize * 1024;
        let record = &mut bytes[block + range.start..block + range.end];
        let mut desc = GroupDesc::decode(record, group, &geometry, checksums).unwrap();
        desc.itable_unused = unused;
        desc.encode_into(record, group, &geometry, checksums);
    }
    std::fs::write(image.path(), bytes).unwrap();
    let mount = image.mount_with(Access::ReadWrite, continuing());
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for n in 0..40 {
        let name = format!("{n}");
        match fs.create(&root, name.as_bytes(), &directory()) {
            Ok(dir) => drop(fs.create(&dir, b"f", &file(0o644))),
            Err(error) => assert_eq!(error.errno(), 117, "{error}"),
        }
    }
    let told = fs.sync();
    assert!(told.is_ok() && fs.failure().is_none(), "{told:?}");
    drop(root);
    mount.close().unwrap();
}

#[test]
fn without_dir_nlink_no_rename_makes_more_subdirectories_than_there_may_be() {
    let image = Image::made(&["-O", "^dir_nlink"], "8M");
    image.debugfs(&["mkdir full", "sif full links_count 65000"]);
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let full = fs.find(&root, b"full").unwrap().unwrap();
    fs.create(&root, b"d", &directory()).unwrap();
    fs.create(&full, b"f", &file(0o644)).unwrap();
    let moved = fs.rename(&root, b"d", &full, b"d", Rename::Replace);
    assert!(matches!(moved, Err(Error::TooManyLinks)), "{moved:?}");
    let exchanged = fs.rename(&root, b"d", &full, b"f", Rename::Exchange);
    assert!(matches!(exchanged, Err(Error::TooManyLinks)), "{exchanged:?}");
    let exchanged = fs.rename(&full, b"f", &root, b"d", Rename::Exchange);
    assert!(matches!(exchanged, Err(Error::TooManyLinks)), "{exchanged:?}");
    assert_eq!(full.attr().links, 65000);
    drop((full, root));
    mount.close().unwrap();
}

/// Records the published names.
#[derive(Default)]
struct Told(Mutex<Vec<Named>>);

impl Names for Told {
    fn publish_read(&self, _: DirId, _: &[u8], entry: Option<Named>, _: &dyn Fn() -> bool) {
        self.0.lock().unwrap().extend(entry);
    }
    fn forget(&self, _: DirId) {}
}

/// A reader of the name cache takes inodes from memory, where the file system's internal files are
/// too. So a name that refers to an internal file must not be published.
#[test]
fn a_name_of_an_internal_inode_is_not_shown() {
    let image = Image::made(&["-O", "^metadata_csum,orphan_file"], "8M");
    let found = image.debugfs(&["stats -h"]);
    let line = found.lines().find(|line| line.starts_with("Orphan file inode:")).unwrap();
    let own = line.split_whitespace().last().unwrap();
    image.debugfs(&[&format!("ln <{own}> evil"), "mkdir fine"]);
    let told = Arc::new(Told::default());
    let options = MountOptions { names: told.clone(), ..continuing() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for _ in 0..2 {
        let got = fs.find(&root, b"evil").map(|_| ());
        assert!(matches!(got, Err(Error::Corruption(_))), "{got:?}");
        assert!(fs.find(&root, b"fine").unwrap().is_some());
    }
    let told = told.0.lock().unwrap();
    assert!(!told.is_empty());
    let own: u32 = own.parse().unwrap();
    assert!(told.iter().all(|named| named.ino.0 != own), "{told:?}");
}

/// A name may change between the caller's check and the operation. Then the operation must not act
/// on the new inode, which the caller did not check.
#[test]
fn a_removal_leaves_an_inode_that_replaced_the_one_it_found() {
    let image = Image::made(&[], "8M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let replaced = |name: &[u8], new: &NewInode<'_>| {
        let before = fs.create(&root, name, new).unwrap();
        fs.rename(&root, name, &root, &[name, b" before"].concat(), Rename::Replace).unwrap();
        let now = fs.create(&root, name, new).unwrap().ino();
        (before, now)
    };
    let leads_to = |name: &[u8]| fs.lookup(&root, name).unwrap().map(|named| named.ino);
    let ends = |source: &InodeRef, target: &InodeRef| {
        let (from, to) = ((&root, &b"source"[..]), (&root, &b"target"[..]));
        Ends::new(from, to, source.clone(), Some(target.clone())).unwrap()
    };
    let (victim, file_now) = replaced(b"file", &file(0o644));
    assert_eq!(fs.unlink_found(&root, b"file", victim).unwrap(), Acted::NameChanged);
    assert_eq!(leads_to(b"file"), Some(file_now));
    let (victim, dir_now) = replaced(b"dir", &directory());
    assert_eq!(fs.rmdir_found(&root, b"dir", victim).unwrap(), Acted::NameChanged);
    assert_eq!(leads_to(b"dir"), Some(dir_now));

    let (source, source_now) = replaced(b"source", &file(0o644));
    let (target, target_now) = replaced(b"target", &file(0o644));
    let now = |ino| fs.get(ino, None).unwrap();
    for how in [Rename::Replace, Rename::Exchange] {
        for (source, target) in [(&source, &now(target_now)), (&now(source_now), &target)] {
            let done = fs.rename_found(ends(source, target), how).unwrap();
            assert_eq!(done, Acted::NameChanged);
        }
        assert_eq!(
            (leads_to(b"source"), leads_to(b"target")),
            (Some(source_now), Some(target_now))
        );
    }
    let done = fs.rename_found(ends(&now(source_now), &now(target_now)), Rename::Replace);
    assert_eq!(done.unwrap(), Acted::Done);
    assert_eq!(leads_to(b"target"), Some(source_now));
    drop((root, source, target));
    mount.close().unwrap();
}
