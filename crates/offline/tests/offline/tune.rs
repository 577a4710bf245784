//! Tests changes of settings. dumpe2fs and the kernel read the changed settings. In most tests, a
//! crash also interrupts the change at every write.

use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{
    FastCommitting, Mount, MountOptions, NewInode, NewKind, NewVerity, Privilege, SyncMode,
};
use lanefs_offline::{
    Error, FeatureChange, Image, JournalChange, JournalSize, OptionChange, Reserved, Settings, look,
};
use lanefs_ondisk::features::Features;
use lanefs_ondisk::superblock::{DefaultMountOptions, OnError};
use lanefs_suites::cuts::{at_every_cut, dumpe2fs, filled, in_memory, seen};
use lanefs_suites::listing::of_library;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const UUID: [u8; 16] = *b"\x0f\x0e\x0d\x0c\x0b\x0a\x49\x08\x87\x06\x05\x04\x03\x02\x01\x00";
const UUID_TEXT: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";
/// Several groups, so that a torn superblock has backups that confirm its values.
const OPTIONS: &str = "-b 1024 -J size=1 -N 2000 -g 2048";
const SIZE: &str = "14M";

fn tune(device: Arc<dyn Device>, settings: &Settings) -> Result<(), Error> {
    Image::open(device)?.tune(settings)
}

fn feature(name: &str) -> Features {
    Features::by_name(name).expect("a feature")
}

fn setting(name: &str) -> FeatureChange {
    FeatureChange { set: feature(name), ..FeatureChange::default() }
}

fn clearing(name: &str) -> FeatureChange {
    FeatureChange { clear: feature(name), ..FeatureChange::default() }
}

fn all() -> Settings {
    Settings {
        label: Some(b"label of 16 byte".to_vec()),
        uuid: Some(UUID),
        reserved: Some(Reserved::Percent(10.0)),
        reserved_uid: Some(7),
        reserved_gid: Some(8),
        on_error: Some(OnError::ReadOnly),
        mount_count: Some(5),
        max_mount_count: Some(Some(30)),
        check_interval: Some(86_400),
        last_checked: Some(1_000_000_000),
        last_mounted: Some(b"/srv".to_vec()),
        default_options: vec![
            OptionChange {
                options: DefaultMountOptions::DISCARD,
                mask: DefaultMountOptions::DISCARD,
            },
            OptionChange { options: DefaultMountOptions::empty(), mask: DefaultMountOptions::ACL },
        ],
        stride: Some(16),
        stripe_width: Some(64),
        hash: Some(2),
        ..Settings::default()
    }
}

#[test]
fn dumpe2fs_shows_every_setting_and_the_kernel_mounts_it() {
    let Some(image) = filled(OPTIONS, SIZE, 2) else { return };
    tune(image.device(), &all()).expect("the settings");
    image.assert_clean("tuned");
    let fields = dumpe2fs(&image);
    for (name, value) in [
        ("Filesystem volume name", "label of 16 byte"),
        ("Filesystem UUID", UUID_TEXT),
        ("Reserved block count", "1433"),
        ("Reserved blocks uid", "7 (user lp)"),
        ("Reserved blocks gid", "8 (group mail)"),
        ("Errors behavior", "Remount read-only"),
        ("Mount count", "5"),
        ("Maximum mount count", "30"),
        ("Check interval", "86400 (1 day)"),
        ("Last mounted on", "/srv"),
        ("Default mount options", "user_xattr discard"),
        ("RAID stride", "16"),
        ("RAID stripe width", "64"),
        ("Default directory hash", "tea"),
    ] {
        assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
    }
    if let Some(mount) = image.kernel_mount("") {
        mount.unmount();
    }
    image.assert_clean("tuned, and mounted by the kernel");
}

#[test]
fn settings_cut_at_every_write_are_there_after_another_run() {
    let Some(image) = filled(OPTIONS, SIZE, 2) else { return };
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &all()), &|image| {
        let fields = dumpe2fs(image);
        assert_eq!(fields["Filesystem UUID"], UUID_TEXT);
        assert_eq!(fields["Filesystem volume name"], "label of 16 byte");
    });
    println!("{checked:?}");
}

#[test]
fn a_uuid_needs_a_seed_and_the_seed_may_be_set_with_it() {
    let options = format!("{OPTIONS} -O ^metadata_csum_seed");
    let Some(image) = filled(&options, SIZE, 2) else { return };
    let alone = Settings { uuid: Some(UUID), ..Settings::default() };
    let refused = tune(image.device(), &alone).expect_err("a refusal").to_string();
    assert!(refused.contains("metadata_csum_seed"), "{refused}");
    let both = Settings { features: setting("metadata_csum_seed"), ..alone };
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &both), &|image| {
        assert_eq!(dumpe2fs(image)["Filesystem UUID"], UUID_TEXT);
    });
    println!("{checked:?}");
    tune(image.device(), &both).expect("the settings");
    if let Some(mount) = image.kernel_mount("") {
        mount.unmount();
    }
    image.assert_clean("a new UUID");
    let back = Settings { features: clearing("metadata_csum_seed"), ..Settings::default() };
    let refused = tune(image.device(), &back).expect_err("a refusal").to_string();
    assert!(refused.contains("UUID has changed"), "{refused}");
}

#[test]
fn with_gdt_csum_a_uuid_changes_every_descriptor_in_one_transaction() {
    let options = format!("{OPTIONS} -O ^metadata_csum,^metadata_csum_seed,uninit_bg");
    let Some(image) = filled(&options, SIZE, 2) else { return };
    let settings = Settings { uuid: Some(UUID), ..Settings::default() };
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &settings), &|image| {
        assert_eq!(dumpe2fs(image)["Filesystem UUID"], UUID_TEXT);
    });
    println!("{checked:?}");
}

#[test]
fn changes_that_need_a_rewrite_are_refused_by_name() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    for name in ["metadata_csum", "64bit", "resize_inode", "flex_bg", "extent", "sparse_super"] {
        let settings = Settings { features: clearing(name), ..Settings::default() };
        let refused = tune(image.device(), &settings).expect_err("a refusal").to_string();
        assert!(refused.starts_with(&format!("{name} cannot be cleared")), "{refused}");
    }
    for name in ["quota", "casefold", "bigalloc", "inline_data"] {
        let settings = Settings { features: setting(name), ..Settings::default() };
        let refused = tune(image.device(), &settings).expect_err("a refusal").to_string();
        assert!(refused.starts_with(&format!("{name} cannot be set")), "{refused}");
    }
    let settings = Settings { label: Some(vec![b'x'; 17]), ..Settings::default() };
    assert!(tune(image.device(), &settings).is_err());
}

#[test]
fn the_uuid_that_hashes_of_attribute_values_depend_on_is_kept() {
    let without = format!("{OPTIONS} -O ea_inode,^metadata_csum,^metadata_csum_seed");
    let Some(image) = filled(&without, SIZE, 1) else { return };
    let settings = Settings { uuid: Some(UUID), ..Settings::default() };
    let refused = tune(image.device(), &settings).expect_err("a refusal").to_string();
    assert!(refused.contains("ea_inode"), "{refused}");
    let with = format!("{OPTIONS} -O ea_inode");
    let Some(image) = filled(&with, SIZE, 1) else { return };
    tune(image.device(), &settings).expect("the seed is stored apart");
    image.assert_clean("another UUID");
}

#[test]
fn a_refused_change_of_several_settings_writes_nothing() {
    let options = format!("{OPTIONS} -O ^metadata_csum_seed,stable_inodes");
    let Some(image) = filled(&options, SIZE, 1) else { return };
    let before = std::fs::read(image.path()).expect("the image");
    let encrypt = Settings { features: setting("encrypt"), ..Settings::default() };
    let seed = Settings { features: setting("metadata_csum_seed"), ..Settings::default() };
    for settings in [
        Settings { uuid: Some(UUID), ..encrypt.clone() },
        Settings { uuid: Some(UUID), ..seed.clone() },
        Settings { journal: Some(resized(100)), ..encrypt },
        Settings { journal: Some(resized(8000)), ..seed },
    ] {
        let refused = tune(image.device(), &settings).expect_err("a refusal");
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        let after = std::fs::read(image.path()).expect("the image");
        assert!(before == after, "{refused}");
    }
}

#[test]
fn encrypt_is_set_as_tune2fs_sets_it() {
    let (Some(ours), Some(theirs)) = (filled(OPTIONS, SIZE, 1), filled(OPTIONS, SIZE, 1)) else {
        return;
    };
    let encrypt = Settings { features: setting("encrypt"), ..Settings::default() };
    let checked = at_every_cut(in_memory(&ours), &|device| tune(device, &encrypt), &|image| {
        assert!(dumpe2fs(image)["Filesystem features"].contains("encrypt"));
    });
    println!("{checked:?}");
    tune(ours.device(), &encrypt).expect("the feature");
    let mut command = Command::new("tune2fs");
    let done = command.args(["-O", "encrypt"]).arg(theirs.path()).output().expect("tune2fs runs");
    assert!(done.status.success(), "{done:?}");
    let algorithms = |image: &lanefs_suites::image::Image| {
        let mut bytes = [0; 4];
        image.device().read_at(1024 + 0x254, &mut bytes).expect("inside");
        bytes
    };
    assert_eq!(algorithms(&ours), algorithms(&theirs));
    ours.assert_clean("tuned");
}

#[test]
fn verity_is_set_as_tune2fs_sets_it() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    let theirs = filled(OPTIONS, SIZE, 1).expect("mke2fs");
    let verity = Settings { features: setting("verity"), ..Settings::default() };
    tune(image.device(), &verity).expect("the feature");
    image.assert_clean("tuned");
    let mut command = Command::new("tune2fs");
    let done = command.args(["-O", "verity"]).arg(theirs.path()).output().expect("tune2fs runs");
    assert!(done.status.success(), "{done:?}");
    let features = |image| dumpe2fs(image)["Filesystem features"].clone();
    assert_eq!(features(&image), features(&theirs));
    let mount = Mount::open(image.device(), MountOptions::default()).expect("mounted");
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
    let file = fs.create(&root, b"verity", &new).expect("a file");
    fs.enable_verity(&file, &NewVerity::default(), Privilege::Root).expect("a verity file");
    drop((root, file));
    mount.close().expect("closed");
    image.assert_clean("with a verity file");
    let clear = Settings { features: clearing("verity"), ..Settings::default() };
    assert!(tune(image.device(), &clear).is_err(), "as in tune2fs");
}

#[test]
fn mmp_is_added_with_a_block_and_removed_with_it() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    let before = dumpe2fs(&image)["Free blocks"].clone();
    let add = Settings { features: setting("mmp"), mmp_interval: Some(7), ..Settings::default() };
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &add), &|image| {
        let fields = dumpe2fs(image);
        assert!(fields["Filesystem features"].contains("mmp"));
        assert_eq!(fields["MMP update interval"], "7");
    });
    println!("{checked:?}");
    tune(image.device(), &add).expect("the feature");
    image.assert_clean("with mmp");
    if let Some(mount) = image.kernel_mount("") {
        mount.unmount();
    }
    let remove = Settings { features: clearing("mmp"), ..Settings::default() };
    tune(image.device(), &remove).expect("no feature");
    image.assert_clean("without mmp");
    let fields = dumpe2fs(&image);
    assert!(!fields["Filesystem features"].contains("mmp"));
    assert_eq!(fields["Free blocks"], before);
    let long = Settings { mmp_interval: Some(301), ..Settings::default() };
    assert!(matches!(tune(image.device(), &long), Err(Error::Refused(_))));
}

fn journal(change: JournalChange) -> Settings {
    Settings { journal: Some(change), ..Settings::default() }
}

fn resized(blocks: u32) -> JournalChange {
    JournalChange::Add(JournalSize { blocks: Some(blocks), ..JournalSize::default() })
}

#[test]
fn a_journal_is_removed_and_added_and_resized() {
    let Some(image) = filled(OPTIONS, SIZE, 2) else { return };
    tune(image.device(), &journal(JournalChange::Remove)).expect("the removal");
    image.assert_clean("no journal");
    let fields = dumpe2fs(&image);
    assert!(!fields["Filesystem features"].contains("has_journal"));
    assert!(!fields["Filesystem features"].contains("orphan_file"));
    if let Some(mount) = image.kernel_mount("") {
        mount.unmount();
    }
    tune(image.device(), &journal(resized(1500))).expect("the journal");
    image.assert_clean("a journal");
    assert_eq!(dumpe2fs(&image)["Total journal blocks"], "1500");
    if let Some(mount) = image.kernel_mount("") {
        std::fs::write(mount.path().join("by-the-kernel"), b"text").expect("a file");
        mount.unmount();
    }
    image.assert_clean("used by the kernel");
    tune(image.device(), &journal(resized(1100))).expect("a smaller journal");
    image.assert_clean("a smaller journal");
    assert_eq!(dumpe2fs(&image)["Total journal blocks"], "1100");
    let refused = tune(image.device(), &journal(resized(100)));
    assert!(refused.is_err());
}

/// tune2fs makes the same changes in the same order.
#[test]
fn fast_commit_is_set_as_tune2fs_sets_it() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    let theirs = filled(OPTIONS, SIZE, 1).expect("mke2fs");
    let journal_of = |image: &_| {
        let fields = dumpe2fs(image);
        let has_feature = fields["Filesystem features"].contains("fast_commit");
        let lengths = ["Total journal blocks", "Fast commit length"];
        (has_feature, lengths.map(|name| fields.get(name).cloned()))
    };
    let sized = |blocks, fast_commit_blocks| {
        JournalChange::Add(JournalSize { blocks: Some(blocks), fast_commit_blocks })
    };
    let features = |features| Settings { features, ..Settings::default() };
    let set = setting("fast_commit");
    for (settings, arguments) in [
        (features(set), "-O fast_commit"),
        (features(clearing("fast_commit")), "-O ^fast_commit"),
        (features(clearing("has_journal")), "-O ^has_journal"),
        (Settings { features: set, ..journal(sized(2048, None)) }, "-O fast_commit -J size=2"),
        (features(clearing("has_journal")), "-O ^has_journal"),
        (journal(sized(1024, Some(300))), "-J size=1,fast_commit_size=300"),
    ] {
        tune(image.device(), &settings).expect("the settings");
        image.assert_clean(arguments);
        let tuned = Command::new("tune2fs").args(arguments.split(' ')).arg(theirs.path()).output();
        assert!(tuned.as_ref().is_ok_and(|tuned| tuned.status.success()), "{tuned:?}");
        assert_eq!(journal_of(&image), journal_of(&theirs), "{arguments}");
    }
    let longer = journal(JournalChange::Add(JournalSize {
        fast_commit_blocks: Some(500),
        ..JournalSize::default()
    }));
    tune(image.device(), &longer).expect("more blocks for fast commits");
    image.assert_clean("more blocks for fast commits");
    let lengths = ["1524", "500"].map(|blocks| Some(blocks.to_owned()));
    assert_eq!(journal_of(&image), (true, lengths));
    if let Some(mount) = image.kernel_mount("") {
        std::fs::write(mount.path().join("by-the-kernel"), b"text").expect("a file");
        mount.unmount();
    }
    image.assert_clean("used by the kernel");
    let refused = tune(image.device(), &Settings { features: clearing("fast_commit"), ..longer });
    assert!(refused.expect_err("a refusal").to_string().contains("needs the feature fast_commit"));
}

#[test]
fn removing_a_journal_can_be_cut_at_every_write() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    let remove = journal(JournalChange::Remove);
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &remove), &|image| {
        assert!(!dumpe2fs(image)["Filesystem features"].contains("has_journal"));
    });
    println!("{checked:?}");
}

#[test]
fn adding_a_journal_can_be_cut_at_every_write() {
    for options in ["-b 1024 -N 2000 -g 2048 -O ^has_journal", "-t ext2 -b 1024 -N 2000 -g 2048"] {
        let Some(image) = filled(options, SIZE, 1) else { return };
        let add = journal(resized(1200));
        let checked = at_every_cut(in_memory(&image), &|device| tune(device, &add), &|image| {
            assert_eq!(dumpe2fs(image)["Total journal blocks"], "1200");
        });
        println!("{options}: {checked:?}");
    }
}

#[test]
fn resizing_a_journal_can_be_cut_at_every_write() {
    let Some(image) = filled(OPTIONS, SIZE, 1) else { return };
    let resize = journal(resized(1300));
    let checked = at_every_cut(in_memory(&image), &|device| tune(device, &resize), &|image| {
        assert_eq!(dumpe2fs(image)["Total journal blocks"], "1300");
    });
    println!("{checked:?}");
    tune(image.device(), &resize).expect("the journal");
    assert!(dumpe2fs(&image)["Filesystem features"].contains("orphan_file"));
}

/// Returns an image as a crash leaves it: with fast commits in the log, and with a file that was
/// deleted while it was open.
fn with_fast_commits() -> Option<Arc<dyn Device>> {
    let image = filled(&format!("{OPTIONS} -O fast_commit"), SIZE, 1)?;
    let device = in_memory(&image);
    let options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        fast_commits: FastCommitting::IfPossible,
        ..MountOptions::default()
    };
    let mount = Mount::open(device.clone(), options).expect("Lanefs mounts it");
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let new = NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
    let create = |name: &str| {
        let file = fs.create(&root, name.as_bytes(), &new).expect("a file");
        fs.write_at(&file, 0, &[7; 3000], Privilege::Root).expect("a write");
        file
    };
    let _open = create("deleted while open");
    fs.unlink(&root, b"deleted while open").expect("a removal");
    fs.sync().expect("a commit");
    for name in ["in one fast commit", "in another"] {
        fs.fsync(&create(name), SyncMode::Full).expect("fsync");
    }
    let crashed: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&device).expect("memory"));
    let live = of_library(fs).expect("the tree");
    // Fast commits do not contain the times of directories.
    live.content().assert_same(&seen(crashed.clone()).content(), "live / after the crash");
    let found = look(&crashed).expect("a look");
    assert!(found.fast_commits == 2 && found.orphans == 1, "{found:?}");
    Some(crashed)
}

#[test]
fn a_journal_with_fast_commits_is_replaced_or_removed_with_a_cut_at_every_write() {
    let Some(base) = with_fast_commits() else { return };
    let shorter = JournalSize { blocks: Some(1100), fast_commit_blocks: Some(80) };
    for (change, length) in
        [(JournalChange::Add(shorter), Some(["1180", "80"])), (JournalChange::Remove, None)]
    {
        let settings = journal(change);
        let checked = at_every_cut(base.clone(), &|device| tune(device, &settings), &|image| {
            let fields = dumpe2fs(image);
            let names = ["Total journal blocks", "Fast commit length"];
            let found = names.map(|name| fields.get(name).map(String::as_str));
            assert_eq!(found, length.map_or([None; 2], |length| length.map(Some)));
        });
        println!("{change:?}: {checked:?}");
    }
}
