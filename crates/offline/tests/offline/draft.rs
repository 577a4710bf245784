//! Changes that become durable together: after a crash at any write, either all changes are present
//! or none.

use lanefs_device::Device;
use lanefs_ext4::{Atime, Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_offline::{Draft, Error, Published};
use lanefs_suites::cuts::{between, filled, in_memory, seen};
use lanefs_suites::fill::{Scale, change};
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::Tree;
use std::sync::Arc;

const OPTIONS: &str = "-b 1024 -J size=2 -N 2000 -g 2048";

/// Opens a draft, makes the changes of [`change`] in it, and publishes it.
fn edit(device: Arc<dyn Device>) -> Result<Published, Error> {
    let draft = Draft::open(device)?;
    let options = MountOptions { atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(draft.device(), options).expect("Lanefs mounts the draft");
    let mut library = Library::new(mount.fs());
    let mut scale = Scale::of_image(2, 1024);
    scale.depth = 6;
    for op in change(scale) {
        // If the changes are made a second time, some operations fail, since their effect is there
        // already.
        let _ = library.apply(&op);
    }
    drop(library);
    mount.close().expect("Lanefs unmounts the draft");
    draft.publish()
}

#[test]
fn a_draft_cut_at_every_write_is_there_as_a_whole_or_not_at_all() {
    let Some(image) = filled(OPTIONS, "14M", 2) else { return };
    let base = in_memory(&image);
    let before = seen(base.clone());
    let whole = in_memory(&image);
    let published = edit(whole.clone()).expect("the changes");
    assert!(published.new_blocks > 0 && published.logged_blocks > 0, "{published:?}");
    let mut after = seen(whole);
    assert!(!before.differences(&after).is_empty());
    // Times differ from run to run.
    let without = |listing: &mut lanefs_suites::listing::Listing| {
        for entry in listing.entries.values_mut() {
            (entry.atime, entry.mtime, entry.ctime) = (None, None, None);
        }
    };
    without(&mut after);
    let mut before = before;
    without(&mut before);
    let recording = |device| edit_once(device, &after);
    let checked = between(base, &recording, [&before, &after], &|_| {});
    println!("{published:?} {checked:?}");
}

/// Makes the changes unless they are present already.
fn edit_once(
    device: Arc<dyn Device>,
    after: &lanefs_suites::listing::Listing,
) -> Result<(), Error> {
    lanefs_offline::recover(&device)?;
    match after.differences(&seen(device.clone())).is_empty() {
        true => Ok(()),
        false => edit(device).map(|_| ()),
    }
}

#[test]
fn changes_without_a_journal_are_refused() {
    let Some(image) = filled("-b 1024 -O ^has_journal", "14M", 1) else { return };
    let refused = edit(in_memory(&image)).expect_err("a refusal").to_string();
    assert!(refused.contains("without a journal"), "{refused}");
}

#[test]
fn changes_of_blocks_larger_than_a_page_are_published() {
    for options in ["-b 8192 -J size=8", "-b 65536 -J size=64"] {
        let Some(image) = Image::make(options, "200M") else { return };
        let draft = Draft::open(image.device()).expect("a draft");
        let mount = Mount::open(draft.device(), MountOptions::default()).expect("a mount");
        let fs = mount.fs();
        let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
        let file = fs.create(&fs.root().expect("the root"), b"new", &new).expect("a file");
        fs.write_at(&file, 0, &[7; 300_000], Privilege::Root).expect("data");
        drop(file);
        mount.close().expect("an unmount");
        let published = draft.publish().expect("the changes");
        assert!(published.new_blocks > 0 && published.logged_blocks > 0, "{published:?}");
        image.assert_clean(options);
        let found = seen(image.device());
        assert_eq!(found.entries[&b"new"[..]].size, Some(300_000), "{options}");
    }
}
