//! Damaged quota files. The checker must agree with e2fsck, and a repair must keep the limits.

use lanefs_check::repair::{Shared, plan};
use lanefs_ext4::{Mount, MountOptions, SetXattr};
use lanefs_offline::Repair;
use lanefs_ondisk::quota::{Kind, Limits, Usage};
use lanefs_suites::changes::{Corpus, Extent, Verdicts, check, cut, repair};
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::{Kind as FileKind, Op, Tree, pattern};
use lanefs_suites::random::seeds;
use std::process::Command;

#[test]
fn damage_of_quota_files_is_found_repaired_and_repaired_again_after_a_cut() {
    let corpus = Corpus::make(Extent::Quotas);
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = check(&corpus, seed, 150);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
        let repairs = repair(&corpus, seed, 150);
        println!("{}", repairs.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
        let cuts = cut(&corpus, seed, 4);
        println!("{}", cuts.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

const USERS: u32 = 40;

fn limits(id: u32) -> Limits {
    Limits { kib_hard: 1000 + u64::from(id), inodes_soft: 9, ..Limits::default() }
}

/// Makes an image with limits for each user. Every second user owns a file.
fn limited(options: &str) -> Option<Image> {
    let image = Image::make(options, "16M")?;
    let mount = Mount::open(image.device(), MountOptions::default()).expect("it mounts");
    for id in 0..USERS {
        if id % 2 == 0 {
            let path = format!("{id}").into_bytes();
            let kind = FileKind::Regular;
            let op = Op::Create { path, kind, permissions: 0o644, uid: id * 1000, gid: id };
            Library::new(mount.fs()).apply(&op).expect("a file");
        }
        mount.fs().set_quota(Kind::User, id * 1000, limits(id)).expect("the limits are set");
    }
    mount.close().expect("it unmounts");
    image.assert_clean(options);
    Some(image)
}

/// Repairs an image in place. Returns the actions of the repair.
fn repaired(image: &Image) -> Vec<String> {
    let device = image.device();
    let plan = plan(device.clone(), Shared::Clone).expect("a plan");
    assert!(!plan.leaves_faults(), "{:?}", plan.after.findings);
    let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
    let repair = Repair { recovery, blocks, block_size: plan.block_size() };
    repair.write_in_place(&*device).expect("it is written");
    plan.actions.iter().map(ToString::to_string).collect()
}

/// Checks the usage of all users, and returns the number of users who still have their old limits.
fn kept(image: &Image, what: &str) -> u32 {
    let mount = Mount::open(image.device(), MountOptions::default());
    let mount = mount.unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = mount.fs().quotas().expect("the quota files are read");
    let users = report.iter().find(|file| file.kind == Kind::User).expect("users are counted");
    let found = |id: u32| users.entries.iter().find(|(at, _)| *at == id).map(|(_, quota)| *quota);
    let mut kept = 0;
    for id in 0..USERS {
        let quota = found(id * 1000).unwrap_or_default();
        kept += u32::from(quota.limits == limits(id));
        if id > 0 {
            let inodes = u64::from(id % 2 == 0);
            assert_eq!(quota.usage, Usage { bytes: 0, inodes }, "{what}: user {id}");
        }
    }
    mount.close().expect("it unmounts");
    kept
}

#[test]
fn a_repair_keeps_the_limits_that_can_be_read() {
    const OPTIONS: [&str; 2] = ["-t ext4 -b 1024 -I 256 -O quota,project", "-t ext2 -O quota"];
    // Each element has debugfs commands that damage the image, and the number of users whose limits
    // a repair keeps.
    let damages: [(&[&str], u32); 15] = [
        (&["mkdir uncounted"], USERS),
        (&["zap_block -f <3> -p 0 0"], USERS),
        (&["zap_block -f <3> -p 255 0"], USERS),
        (&["zap_block -f <3> -p 0 1"], USERS),
        (&["zap_block -f <3> -p 255 1"], USERS),
        (&["zap_block -f <3> -p 7 3"], USERS),
        (&["zap_block -f <3> -o 8 -l 4 -p 0 5"], USERS),
        (&["sif <3> links_count 0"], USERS),
        (&["sif <3> mode 040600"], USERS),
        (&["sif <3> size 1024"], USERS),
        (&["ssv usr_quota_inum 9999999"], USERS),
        (&["ssv usr_quota_inum 4"], USERS),
        (&["clri <3>"], 0),
        (&["ssv usr_quota_inum 3", "clri <3>", "clri <4>"], 0),
        (&["ssv prj_quota_inum 11"], USERS),
    ];
    for options in OPTIONS {
        let Some(clean) = limited(options) else { return };
        for (commands, expected) in &damages {
            let (image, what) = (Image::empty(), format!("{options}: {commands:?}"));
            std::fs::copy(clean.path(), image.path()).expect("a copy");
            commands.iter().for_each(|command| drop(image.debugfs(command)));
            let before = Verdicts::of(image.path());
            if what.contains("prj_quota") && !options.contains("project") {
                continue;
            }
            assert!(!before.is_clean_for_lanefs(), "{what}");
            let actions = repaired(&image);
            let after = Verdicts::of(image.path());
            assert!(after.is_clean_for_lanefs(), "{what}: {actions:?}");
            assert!(after.is_clean_for_e2fsck(), "{what}: {actions:?}\n{}", after.text);
            assert_eq!(kept(&image, &what), *expected, "{what}: {actions:?}");
            image.assert_clean(&what);
        }
    }
}

/// If an attribute value is in an inode of its own, tune2fs (1.47.0) counts it only once, for root.
/// So the image needs a repair after tune2fs enables quotas.
#[test]
fn values_in_inodes_of_their_own_are_counted_for_each_file_as_e2fsck_does() {
    let Some(image) = Image::make("-b 1024 -O ea_inode", "16M") else { return };
    let mount = Mount::open(image.device(), MountOptions::default()).expect("it mounts");
    let mut library = Library::new(mount.fs());
    for (n, uid) in [(0, 1000), (1, 1000), (2, 2000)] {
        let path = format!("{n}").into_bytes();
        let kind = FileKind::Regular;
        let create = Op::Create { path: path.clone(), kind, permissions: 0o644, uid, gid: 0 };
        library.apply(&create).expect("a file");
        for (name, value) in [("user.same", pattern(7, 5000)), ("user.own", pattern(n, 3000))] {
            let (path, name) = (path.clone(), name.as_bytes().to_vec());
            let set = Op::SetXattr { path, name, value, how: SetXattr::Any };
            library.apply(&set).expect("an attribute");
        }
    }
    drop(library);
    mount.close().expect("it unmounts");
    let tuned = Command::new("tune2fs").args(["-O", "quota"]).arg(image.path()).output();
    assert!(tuned.as_ref().is_ok_and(|tuned| tuned.status.success()), "{tuned:?}");
    assert_ne!(image.check().status, 0, "tune2fs counts as e2fsck does");
    let actions = repaired(&image);
    assert!(!actions.is_empty());
    image.assert_clean("repaired");
}
