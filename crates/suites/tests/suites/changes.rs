//! On images with one change of metadata, the checker and e2fsck must agree.

use lanefs_check::repair::{Shared, plan};
use lanefs_check::{Fault, Harm, Options, Report, Verdict};
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Mount, MountOptions, NewInode, NewKind, Primary, SyncMode, log};
use lanefs_offline::Repair;
use lanefs_ondisk::jbd2::MAGIC;
use lanefs_ondisk::{Ino, xattr};
use lanefs_suites::changes::{Corpus, Extent, Verdicts, check, cut, repair};
use lanefs_suites::image::Image;
use lanefs_suites::random::seeds;
use std::sync::Arc;

#[test]
fn the_checker_and_e2fsck_agree_on_a_few_changes() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = check(&Corpus::make(Extent::Sample), seed, 100);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
#[ignore = "long: every form of image"]
fn the_checker_and_e2fsck_agree_on_changes_of_every_format() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = check(&Corpus::make(Extent::Whole), seed, 800);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
fn repaired_images_are_clean_and_whole_files_are_as_before() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let repairs = repair(&Corpus::make(Extent::Sample), seed, 200);
        println!("{}", repairs.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
#[ignore = "long: every form of image"]
fn repaired_images_of_every_format_are_clean() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let repairs = repair(&Corpus::make(Extent::Whole), seed, 800);
        println!("{}", repairs.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
fn a_repair_that_is_cut_at_any_write_is_completed_or_taken_back() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let cuts = cut(&Corpus::make(Extent::Sample), seed, 4);
        let cuts = cuts.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{cuts}");
        assert!(cuts.logged.1 > 0 || cuts.undone.1 == 0);
    }
}

/// Sets the size of the file `a` to a size that no file can have without the feature `large_file`.
const LARGE: &str = "sif a size 0x80000000";

/// The offset of the generation field in an inode.
const GENERATION: u64 = 0x64;

#[test]
fn faults_outside_of_the_tree_are_found() {
    // The last element of each tuple contains words from e2fsck's message.
    let inode_fields = "-t ext4 -O ^orphan_file";
    for (options, commands, word) in [
        (inode_fields, vec!["write /etc/passwd a", "ssv orphan_file_inum 12"], "Orphan file inode"),
        (inode_fields, vec!["sif <1> uid 1"], "bad block inode looks invalid"),
        (inode_fields, vec!["sif <1> mode 0100600"], "bad block inode looks invalid"),
        ("-t ext3", vec!["ssv desc_size 65535"], "desc_size = 65535"),
        ("-t ext4", vec!["write /etc/passwd a", LARGE, "feature -large_file"], "lacks LARGE_FILE"),
    ] {
        let Some(image) = Image::make(options, "16M") else { return };
        commands.iter().for_each(|command| drop(image.debugfs(command)));
        let verdicts = Verdicts::of(image.path());
        assert!(verdicts.text.contains(word), "{commands:?}: {}", verdicts.text);
        assert!(!verdicts.is_clean_for_lanefs(), "{commands:?}");
    }
}

#[test]
fn an_empty_value_that_starts_beyond_its_block_is_found() {
    for damage in [
        // The name length becomes 0, so that the bytes of the name are read as the next entry,
        // whose own name has zero bytes.
        "-o 32 -l 1 -p 0",
        // The offset of the value becomes 0x6464.
        "-o 34 -l 2 -p 100",
    ] {
        let Some(image) = Image::make("-t ext3 -b 1024 -I 128", "16M") else { return };
        for command in ["write /etc/passwd a", "ea_set -f /dev/null a user.abcd"] {
            image.debugfs(command);
        }
        let stat = image.debugfs("stat a");
        let block = stat.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        image.debugfs(&format!("zap_block {damage} {}", block.expect("a block")));
        let verdicts = Verdicts::of(image.path());
        assert!(verdicts.text.contains("(invalid value)"), "{damage}: {}", verdicts.text);
        // The first change makes the hash wrong too. If the checker reported only the hash, a
        // repair would leave the other damage.
        let findings = report(&image, 256 << 20).findings;
        let is_found = |fault: &Fault| match damage.starts_with("-o 32") {
            true => matches!(fault, Fault::Attributes(xattr::Cause::NameByte { .. })),
            false => matches!(fault, Fault::Attributes(xattr::Cause::ValueRange { .. })),
        };
        assert!(findings.iter().any(|finding| is_found(&finding.fault)), "{damage}: {findings:?}");
    }
}

#[test]
fn the_checksum_of_a_deleted_inode_is_checked() {
    let Some(image) = Image::make("-t ext4 -b 1024", "16M") else { return };
    for command in ["write /etc/passwd a", "write /etc/passwd b"] {
        image.debugfs(command);
    }
    let at = image.inode_at("a", 1024) + GENERATION;
    image.debugfs("rm a");
    assert!(Verdicts::of(image.path()).is_clean_for_lanefs());
    image.device().write_at(at, &[1]).unwrap();
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.text.contains("checksum does not match"), "{}", verdicts.text);
    assert!(!verdicts.is_clean_for_lanefs());
}

fn report(image: &Image, memory: u64) -> Report {
    let options = Options { memory, ..Options::default() };
    lanefs_check::check(image.device(), &options, &|_| {}).expect("a superblock")
}

#[test]
fn a_check_in_several_passes_finds_the_same_as_in_one() {
    // If descriptors have no checksums, the bitmaps of every group are on disk.
    let Some(image) = Image::make("-O ^metadata_csum,^uninit_bg", "64M") else { return };
    let (whole, parts) = (report(&image, 256 << 20), report(&image, 4096));
    assert_eq!(whole.verdict(), Verdict::Clean, "{:?}", whole.findings);
    assert_eq!((parts.verdict(), parts.totals), (Verdict::Clean, whole.totals));
    // Clears the block bitmaps of the groups in which the metadata and the journal lie.
    for group in [0, 2] {
        clear_block_bitmap(&*image.device(), group);
    }
    let (whole, parts) = (report(&image, 256 << 20), report(&image, 4096));
    assert_eq!(whole.verdict(), Verdict::Damaged);
    assert!(whole.findings.iter().any(|finding| finding.harm() == Harm::Overwritten));
    assert_eq!(parts.findings, whole.findings);
}

/// Clears the block bitmap of a group, but leaves the checksum of the bitmap as it is. The image
/// must have blocks of 1 KiB.
fn clear_block_bitmap(device: &dyn Device, group: u64) {
    let mut word = [0; 4];
    device.read_at(2 * 1024 + group * 64, &mut word).expect("a descriptor");
    let at = u64::from(u32::from_le_bytes(word)) * 1024;
    device.write_at(at, &[0; 1024]).expect("the bitmap");
}

/// Returns the transaction number in the header of each log block, with the block's byte offset on
/// the device. Also returns the transaction number in the log's superblock, at which the log starts
/// or continues.
fn log_numbers(device: &dyn Device) -> (Vec<(u32, u64)>, u32) {
    let superblock = Primary::read(device).expect("a superblock").superblock;
    let log = log::find(device, &superblock, Ino::JOURNAL).expect("a log");
    let place = |n| log.map.place(n).expect("a log block").0.0 * 1024;
    let number = |at: u64| {
        let mut head = [0; 12];
        device.read_at(at, &mut head).expect("a log block");
        let (magic, rest) = head.split_at(4);
        let number = rest.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        (magic == MAGIC.to_be_bytes()).then_some((number, at))
    };
    let found = (1..log.map.len()).map(place).filter_map(number).collect();
    (found, log.superblock.sequence().0)
}

#[test]
fn after_a_repair_emptied_a_log_no_number_in_it_is_used_again() {
    let Some(image) = Image::make("-b 1024 -J size=1", "16M") else { return };
    let device = Arc::new(RamDevice::copy_of(&image.device()).expect("memory"));
    let mount = Mount::open(device.clone(), MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    for n in 0..12 {
        let name = format!("{n}");
        let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
        let root = fs.root().expect("the root");
        let file = fs.create(&root, name.as_bytes(), &new).expect("a file");
        fs.fsync(&file, SyncMode::Full).expect("durable");
    }
    let used = RamDevice::copy_of(&*device).expect("memory");
    drop(mount);
    let (found, first) = log_numbers(&used);
    let newest = found.iter().map(|(number, _)| *number).max().expect("transactions");
    assert!(newest > first + 8, "transactions {first} to {newest}");
    let (_, second) = found.iter().find(|(number, _)| *number == first + 1).expect("a block");
    let superblock = Primary::read(&used).expect("a superblock").superblock;
    let log = log::find(&used, &superblock, Ino::JOURNAL).expect("a log");
    let head = log.map.place(0).expect("a log block").0.0 * 1024;
    // The damage ends the replay after the first transaction, or makes a replay impossible.
    for at in [second + 12, head] {
        let device: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&used).expect("memory"));
        device.write_at(at, &[0xff; 20]).expect("damage");
        let plan = plan(device.clone(), Shared::Clone).expect("a plan");
        let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
        let repair = Repair { recovery, blocks, block_size: plan.block_size() };
        repair.write_in_place(&*device).expect("it is written");
        let (_, begins) = log_numbers(&*device);
        assert!(begins > newest, "the log continues with {begins}, and has {newest}");
    }
}
