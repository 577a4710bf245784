//! Repairs of directed damage. Afterwards both judges find the image clean, and all files have
//! their old contents.

use lanefs_check::repair::{Plan, Shared, plan, plan_around, plan_within};
use lanefs_check::{Error, Fault, Harm, Options, Report, Verdict};
use lanefs_device::Device;
use lanefs_ext4::{Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_offline::Repair;
use lanefs_ondisk::Ino;
use lanefs_ondisk::superblock::Superblock;
use lanefs_suites::changes::Verdicts;
use lanefs_suites::hostile::target::{Left, SUPER, Target};
use lanefs_suites::image::Image;
use std::sync::Arc;

/// The files of [`filled`] with their sizes.
const FILES: [(&str, usize); 6] =
    [("a", 5), ("b", 3000), ("c", 40_000), ("d/a", 100), ("d/b", 9000), ("d/e/f", 70_000)];

/// Damages an image.
type Damage<'a> = &'a dyn Fn(&Target);

/// Makes an image with files.
fn filled(options: &str) -> Option<Image> {
    let image = Image::make(options, "7M")?;
    image.debugfs("mkdir d");
    image.debugfs("mkdir d/e");
    for (n, (path, len)) in FILES.iter().enumerate() {
        let (name, source) = (format!("source{n}"), image.path().with_extension("source"));
        std::fs::write(&source, text(n, *len)).expect("a source");
        image.debugfs(&format!("write {} {name}", source.display()));
        image.debugfs(&format!("ln {name} {path}"));
        image.debugfs(&format!("unlink {name}"));
    }
    // This repair corrects the usage in the quota files, which debugfs does not update.
    image.repair();
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_lanefs() && verdicts.is_clean_for_e2fsck(), "{verdicts:?}");
    Some(image)
}

fn text(n: usize, len: usize) -> String {
    (0..len / 16 + 1).map(|line| format!("{n:4} {line:10}\n")).collect::<String>()[..len].into()
}

fn inode(image: &Image, path: &str) -> String {
    let said = image.debugfs(&format!("stat {path}"));
    let number = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    number.expect("an inode number").into()
}

fn copy_of(image: &Image) -> Image {
    let copy = Image::empty();
    std::fs::copy(image.path(), copy.path()).expect("a copy");
    copy
}

/// Repairs an image in place. Returns the actions of the repair.
fn repaired(image: &Image, what: &str) -> Vec<String> {
    let device = image.device();
    let plan = plan(device.clone(), Shared::Clone).unwrap_or_else(|why| panic!("{what}: {why}"));
    let actions = plan.actions.iter().map(ToString::to_string).collect();
    assert!(!plan.leaves_faults(), "{what}: {actions:?} {:?}", plan.after.findings);
    write(&plan, &*device);
    actions
}

fn write(plan: &Plan, device: &dyn Device) {
    let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
    let repair = Repair { recovery, blocks, block_size: plan.block_size() };
    repair.write_in_place(device).expect("it is written");
}

/// Repairs an image. Afterwards both judges must find the image clean, and all files of [`filled`]
/// must have their old contents. Returns the actions.
fn keeps_all(image: &Image, what: &str) -> Vec<String> {
    let before = Verdicts::of(image.path());
    assert!(!before.is_clean_for_lanefs(), "{what}: the check finds nothing");
    let actions = repaired(image, what);
    let after = Verdicts::of(image.path());
    assert!(after.is_clean_for_lanefs(), "{what}: {actions:?} {after:?}");
    assert!(after.is_clean_for_e2fsck(), "{what}: {actions:?} {}", after.text);
    for (n, (path, len)) in FILES.iter().enumerate() {
        let now = image.debugfs(&format!("cat {path}"));
        // For a file with inline data, debugfs also prints the zeros after the end of the file.
        assert!(
            now.trim_end_matches('\0') == text(n, *len),
            "{what}: {path} has {} bytes: {actions:?}",
            now.len()
        );
    }
    actions
}

#[test]
fn a_wrong_inode_number_in_the_superblock_costs_no_file() {
    for options in ["-O quota,project -I 256", "-t ext3 -b 1024"] {
        let Some(clean) = filled(options) else { return };
        let (file, directory) = (inode(&clean, "c"), inode(&clean, "d"));
        let mut fields = vec!["journal_inum"];
        if options.contains("quota") {
            let quotas = ["usr_quota_inum", "grp_quota_inum", "prj_quota_inum"];
            fields.extend(quotas.into_iter().chain(["orphan_file_inum"]));
        }
        for field in fields {
            for ino in [file.as_str(), directory.as_str(), "2", "7", "11", "0", "999999"] {
                if ino == "0" && (field.contains("quota") || field.contains("orphan")) {
                    continue;
                }
                let image = copy_of(&clean);
                image.debugfs(&format!("ssv {field} {ino}"));
                keeps_all(&image, &format!("{options}: {field} {ino}"));
                let features = image.debugfs("features");
                let keeps = features.contains("orphan_file") || !options.contains("quota");
                assert!(keeps, "{options}: {field} {ino}: the orphan file is not found");
            }
        }
        for damage in ["ssv first_ino 14", "ssv first_ino 40", "ssv first_ino 5", "ssv rev_level 0"]
        {
            let image = copy_of(&clean);
            image.debugfs(damage);
            keeps_all(&image, &format!("{options}: {damage}"));
        }
    }
}

/// The offset of the block field in an inode.
const BLOCK_FIELD: u64 = 0x28;
const BLOCK: u64 = 1024;

/// Writes a file with data in every second block. Returns its content.
fn write_pieces(image: &Image, name: &str, first: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..20 {
        bytes.extend([n + first; BLOCK as usize]);
        bytes.extend([0; BLOCK as usize]);
    }
    let source = image.path().with_extension("source");
    std::fs::write(&source, &bytes).expect("a source");
    image.debugfs(&format!("write {} {name}", source.display()));
    bytes
}

fn dumped(image: &Image, name: &str) -> Vec<u8> {
    let copy = image.path().with_extension("dump");
    image.debugfs(&format!("dump {name} {}", copy.display()));
    std::fs::read(&copy).expect("a dump")
}

#[test]
fn a_repair_does_not_write_into_an_extent_node_of_another_file() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    let _ = write_pieces(&image, "damaged", 1);
    let whole = write_pieces(&image, "whole", 100);
    image.assert_clean("filled");
    let [damaged, other] = ["damaged", "whole"].map(|name| image.inode_at(name, BLOCK));
    let device = image.device();
    let mut field = [0; 24];
    let (root, entry) = field.split_at_mut(12);
    device.read_at(damaged + BLOCK_FIELD, root).unwrap();
    device.read_at(other + BLOCK_FIELD + 12, entry).unwrap();
    assert_eq!((root[2], root[6]), (1, 1), "a root with one node");
    // The root of the damaged file has a wrong capacity, and a second entry, which refers to the
    // node of the other file.
    root[2..6].copy_from_slice(&[2, 0, 9, 0]);
    entry[..4].copy_from_slice(&1000u32.to_le_bytes());
    device.write_at(damaged + BLOCK_FIELD, root).unwrap();
    device.write_at(damaged + BLOCK_FIELD + 24, entry).unwrap();
    drop(device);
    keeps_all(&image, "an entry that refers to a node of another file");
    assert!(dumped(&image, "whole") == whole, "the other file has its old content");
}

#[test]
fn space_for_a_repair_is_not_taken_from_a_file_whose_mapping_is_damaged() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    let (one, _) = (write_pieces(&image, "one", 1), write_pieces(&image, "two", 1));
    image.assert_clean("filled");
    let device = image.device();
    for name in ["one", "two"] {
        // The capacity in the root is wrong, so the check reads nothing below the root.
        let at = image.inode_at(name, BLOCK) + BLOCK_FIELD + 4;
        device.write_at(at, &[9, 0]).unwrap();
    }
    drop(device);
    // The repair needs a block for the resize inode.
    image.debugfs("sif <7> block[DIND] 0");
    keeps_all(&image, "two damaged roots");
    assert!(dumped(&image, "one") == one && dumped(&image, "two") == one);
}

#[test]
fn a_full_image_gives_no_node_of_a_damaged_file_to_another_file() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    let (one, two) = (write_pieces(&image, "one", 1), write_pieces(&image, "two", 100));
    let source = image.path().with_extension("source");
    std::fs::write(&source, vec![7; 7 << 20]).expect("a source");
    image.debugfs(&format!("write {} filler", source.display()));
    image.repair();
    image.assert_clean("full");
    let places = ["one", "two"].map(|name| image.inode_at(name, BLOCK) + BLOCK_FIELD);
    let device = image.device();
    let mut fields = [[0; 60]; 2];
    places.iter().zip(&mut fields).for_each(|(at, field)| device.read_at(*at, field).unwrap());
    // The file with the lower inode number gets the node in the higher block. The check reads
    // nothing below the roots, because their capacities are wrong.
    for (at, mut field) in places.iter().zip(fields.into_iter().rev()) {
        field[4..6].copy_from_slice(&[9, 0]);
        device.write_at(*at, &field).unwrap();
    }
    drop(device);
    repaired_partly(&image);
    image.debugfs("rm filler");
    keeps_all(&image, "two damaged roots, and now there is space");
    assert!(dumped(&image, "one") == two && dumped(&image, "two") == one);
}

/// Repairs what can be repaired, and writes it in place.
fn repaired_partly(image: &Image) {
    let device = image.device();
    let plan = plan(device.clone(), Shared::Clone).expect("a plan");
    let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
    let repair = Repair { recovery, blocks, block_size: plan.block_size() };
    repair.write_in_place(&*device).expect("it is written");
}

#[test]
fn damaged_inodes_are_found_and_their_files_kept() {
    let Some(clean) = filled("-b 1024 -I 256 -O inline_data") else { return };
    clean.debugfs(&format!("symlink long {}", "x".repeat(200)));
    clean.assert_clean("filled");
    for damage in [
        "fallocate long 0 3",
        "sif <9> file_acl 900",
        "sif <1> block[5] 999999",
        "ssv reserved_gdt_blocks 200",
    ] {
        let image = copy_of(&clean);
        image.debugfs(damage);
        keeps_all(&image, damage);
    }
}

#[test]
fn a_seed_of_checksums_without_checksums_is_removed() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    image.debugfs("feature metadata_csum_seed");
    keeps_all(&image, "metadata_csum_seed");
    assert!(!image.debugfs("features").contains("metadata_csum_seed"));
}

#[test]
fn an_empty_log_no_longer_asks_for_a_replay() {
    let Some(image) = filled("-b 1024") else { return };
    image.debugfs("feature needs_recovery");
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_lanefs());
    let notes = verdicts.report.expect("a report").findings;
    assert!(notes.iter().any(|note| note.to_string().contains("replay of 0 blocks")), "{notes:?}");
    repaired(&image, "needs_recovery");
    assert!(!image.debugfs("features").contains("needs_recovery"));
}

#[test]
fn an_image_that_e2fsck_was_checking_is_not_clean() {
    // e2fsck is not run, because it waits for other computers.
    let Some(image) = Image::make("-b 1024 -O mmp,^metadata_csum", "7M") else { return };
    let stats = image.debugfs("stats");
    let block = stats.split("MMP block number:").nth(1).expect("a block");
    let block: u64 = block.split_whitespace().next().expect("a number").parse().expect("a number");
    let in_check = 0xe24d_4d50_u32;
    image.device().write_at(block * BLOCK + 4, &in_check.to_le_bytes()).unwrap();
    assert_eq!(report(&image, 1, 1000).verdict(), Verdict::Damaged);
    repaired(&image, "mmp");
    assert_eq!(report(&image, 1, 1000).verdict(), Verdict::Clean);
}

/// Writes `word` at `offset` in the descriptor of `group`, and in all copies of this descriptor. An
/// image of [`DESCRIBED`] has copies in groups 1, 3 and 5.
fn describe(image: &Image, group: u64, offset: u64, word: u32) {
    let device = image.device();
    for copy in [0, 1, 3, 5] {
        let table = (1 + copy * 1024 + 1) * BLOCK;
        device.write_at(table + group * 64 + offset, &word.to_le_bytes()).unwrap();
    }
}

const DESCRIBED: &str = "-b 1024 -g 1024 -N 512 -O ^metadata_csum,^uninit_bg,^resize_inode";

#[test]
fn bitmaps_without_a_place_of_their_own_are_moved() {
    bitmaps_are_moved(DESCRIBED);
    // Without flex_bg, a bitmap must be in its own group.
    bitmaps_are_moved(&format!("{DESCRIBED},^flex_bg"));
}

fn bitmaps_are_moved(options: &str) {
    const INODE_BITMAP: u64 = 4;
    let Some(clean) = filled(options) else { return };
    let stats = clean.debugfs("stats");
    let tables = stats.split("inode table at ").skip(1);
    let tables: Vec<u32> =
        tables.map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap()).collect();
    for (group, offset, block) in [
        (0, 0, 999_999),
        (1, 0, 999_999),
        (1, INODE_BITMAP, 0),
        (0, 0, tables[1]),
        (0, INODE_BITMAP, tables[2] + 1),
        (3, 0, tables[0] + 2),
    ] {
        let image = copy_of(&clean);
        describe(&image, group, offset, block);
        keeps_all(&image, &format!("{options}: group {group}, offset {offset}: block {block}"));
    }
}

#[test]
fn with_bigalloc_an_inode_bitmap_is_not_written_into_an_inode_table() {
    let options = "-b 1024 -C 8192 -N 512 -O bigalloc,^metadata_csum,^uninit_bg,^resize_inode";
    let Some(image) = filled(options) else { return };
    let stats = image.debugfs("stats");
    let table = stats.split("inode table at ").nth(1).expect("a table");
    let table: u32 = table.split_whitespace().next().unwrap().parse().unwrap();
    image.debugfs(&format!("set_bg 0 inode_bitmap {}", table + 1));
    keeps_all(&image, "bigalloc");
}

/// Neither descriptors nor superblock have copies, from which a repair could restore them.
const WITHOUT_COPIES: &str = "-b 1024 -C 8192 -g 256 -N 512 -E num_backup_sb=0 \
     -O bigalloc,sparse_super2,^metadata_csum,^uninit_bg,^resize_inode";

fn finds_overlap(image: &Image, what: &str) {
    let found = report(image, 1, 1000).findings;
    let mut faults = found.iter().map(|finding| &finding.fault);
    let finds = faults.any(|fault| matches!(fault, Fault::DoublyClaimed { .. }));
    assert!(finds, "{what}: {found:?}");
}

#[test]
fn with_bigalloc_a_bitmap_is_not_written_over_descriptors() {
    let Some(clean) = filled(WITHOUT_COPIES) else { return };
    for (group, block) in [(0, 1), (0, 2), (1, 2)] {
        for bitmap in ["block_bitmap", "inode_bitmap"] {
            let image = copy_of(&clean);
            image.debugfs(&format!("set_bg {group} {bitmap} {block}"));
            let what = format!("{bitmap} of group {group}: {block}");
            finds_overlap(&image, &what);
            keeps_all(&image, &what);
        }
    }
}

#[test]
fn with_bigalloc_a_bitmap_is_not_written_over_the_block_of_mmp() {
    // Only mke2fs is run, because debugfs and e2fsck wait for other computers.
    let Some(image) = Image::make(&format!("{WITHOUT_COPIES},mmp"), "7M") else { return };
    let device = image.device();
    let mut superblock = [0; BLOCK as usize];
    device.read_at(BLOCK, &mut superblock).unwrap();
    let mmp = &superblock[0x168..0x16c];
    // Makes the mmp block the block bitmap of group 1.
    device.write_at(2 * BLOCK + 64, mmp).unwrap();
    drop(device);
    finds_overlap(&image, "mmp");
    repaired(&image, "mmp");
    assert_eq!(report(&image, 1, 1000).verdict(), Verdict::Clean);
}

#[test]
fn a_group_whose_inode_table_is_lost_loses_no_name() {
    let Some(image) = filled(DESCRIBED) else { return };
    describe(&image, 0, 8, 999_999);
    // Without the lost inodes, the repair does not know which blocks are free, so it finds no place
    // for this bitmap.
    describe(&image, 1, 0, 999_999);
    let before = std::fs::read(image.path()).unwrap();
    let plan = plan(image.device(), Shared::Clone).expect("a plan");
    assert!(plan.leaves_faults() && plan.repair().unwrap().is_empty(), "{:?}", plan.actions);
    assert!(std::fs::read(image.path()).unwrap() == before);
}

#[test]
fn descriptors_of_meta_groups_are_restored_from_the_copies_in_their_groups() {
    let options =
        "-b 1024 -g 1024 -N 512 -E num_backup_sb=0 -O meta_bg,sparse_super2,^resize_inode";
    let Some(image) = filled(options) else { return };
    image.device().write_at(2 * BLOCK, &[0xff; 1024]).unwrap();
    keeps_all(&image, "meta_bg");
}

/// Writes a file. Then writes three transactions to the log; each changes one of the file's first
/// three blocks. The log is not replayed.
fn with_log(options: &str) -> Option<Image> {
    let image = filled(options)?;
    let source = image.path().with_extension("source");
    std::fs::write(&source, vec![b'o'; 4096]).expect("a source");
    image.debugfs(&format!("write {} logged", source.display()));
    let blocks = image.debugfs("blocks logged");
    let mut requests = "jo -c -v 3\n".to_string();
    for (n, block) in (0..3).zip(blocks.split_whitespace()) {
        let data = image.path().with_extension(format!("data{n}"));
        std::fs::write(&data, vec![b'1' + n; BLOCK as usize]).expect("data");
        requests += &format!("jw -b {block} {}\n", data.display());
    }
    std::fs::write(&source, requests + "jc\n").expect("requests");
    let mut debugfs = std::process::Command::new("debugfs");
    let ran = debugfs.arg("-w").arg("-f").arg(&source).arg(image.path()).output();
    assert!(ran.expect("debugfs runs").status.success());
    Some(image)
}

/// Returns the offset in the image of the log block whose first bytes are `start`.
fn log_block(image: &Image, start: &[u8]) -> u64 {
    let blocks = image.debugfs("blocks <8>");
    let mut blocks = blocks.split_whitespace().map(|block| block.parse::<u64>().unwrap());
    let device = image.device();
    let found = blocks.find(|block| {
        let mut bytes = vec![0; start.len()];
        device.read_at(block * BLOCK, &mut bytes).unwrap();
        bytes == start
    });
    found.expect("a block") * BLOCK
}

#[test]
fn a_damaged_transaction_in_the_log_is_told_and_those_before_it_are_kept() {
    let Some(clean) = with_log("-b 1024") else { return };
    let first = log_block(&clean, b"1111");
    // Damage to a block's copy in the log costs only that copy. A damaged descriptor costs its
    // transaction and all later ones.
    let (copy, descriptor) = (log_block(&clean, b"2222"), log_block(&clean, b"2222") - BLOCK);
    assert!(first < descriptor);
    for (at, expected) in [(copy, "1o3"), (descriptor, "1oo")] {
        let image = copy_of(&clean);
        image.device().write_at(at + 100, &[0xee]).unwrap();
        let before = report(&image, 1, 1000);
        assert_eq!(before.verdict(), Verdict::Damaged, "{expected}: {:?}", before.findings);
        let actions = keeps_all(&image, expected);
        assert!(actions.iter().any(|told| told.contains("is damaged")), "{expected}: {actions:?}");
        let now = dumped(&image, "logged");
        let now: Vec<u8> = now.chunks(BLOCK as usize).map(|block| block[0]).collect();
        assert_eq!(now, [expected.as_bytes(), b"o"].concat(), "{actions:?}");
    }
}

/// Requests of debugfs that give the log's inode holes, or blocks beyond its size.
const LOGS: [(&str, &[&str]); 6] = [
    ("a hole", &["punch <8> 100 100"]),
    ("no first block", &["punch <8> 0 0"]),
    ("no last block", &["punch <8> 1023 1023"]),
    ("a hole and a block beyond the size", &["punch <8> 600 600", "fallocate <8> 1024 1024"]),
    ("a block beyond the size", &["fallocate <8> 1024 1024"]),
    ("a size that is too small", &["sif <8> size 1047552"]),
];

/// The kernel finds log blocks by their positions in the inode. A program that joins the extents of
/// a log with a hole writes transactions that the kernel does not find.
#[test]
fn a_log_with_a_hole_or_with_blocks_beyond_its_size_is_refused_found_and_mended() {
    for options in ["-b 1024 -J size=1", "-t ext3 -b 1024 -J size=1"] {
        let Some(clean) = filled(options) else { return };
        let is_ext3 = options.contains("ext3");
        // Without the copy of the mapping in the superblock, a log with holes is lost.
        for copy in [true, false] {
            for (name, requests) in LOGS {
                if is_ext3 && requests.iter().any(|request| request.contains("fallocate")) {
                    continue;
                }
                let what = format!("{options}: {name}, a copy: {copy}");
                let image = copy_of(&clean);
                requests.iter().for_each(|request| drop(image.debugfs(request)));
                if !copy {
                    image.debugfs("ssv jnl_backup_type 0");
                }
                let mounted = Mount::open(image.device(), MountOptions::default());
                let Err(why) = mounted.map(drop) else { panic!("{what}: mounted") };
                let why = why.to_string();
                assert!(why.contains("journal's inode has"), "{what}: {why}");
                assert!(lanefs_offline::Image::open(image.device()).is_err(), "{what}");
                let actions = keeps_all(&image, &what);
                let mount = Mount::open(image.device(), MountOptions::default());
                mount.expect("a mount").close().expect("an unmount");
                let has_log = image.debugfs("features").contains("has_journal");
                // The pointers of a block map lie in blocks of their own, except the first ones.
                let has_copy = copy && (!is_ext3 || name == "no first block");
                let is_mended = has_copy || !name.contains("hole") && !name.contains("no ");
                assert_eq!(has_log, is_mended, "{what}: {actions:?}");
            }
        }
    }
}

#[test]
fn transactions_are_kept_in_a_log_whose_inode_is_mended() {
    let Some(clean) = with_log("-b 1024 -J size=1") else { return };
    let lost: [(&str, &[&str]); 2] =
        [("no type", &["sif <8> mode 0"]), ("no inode", &["clri <8>"])];
    for (name, requests) in LOGS.iter().chain(&lost) {
        for copy in [true, false] {
            if !copy && ["no first block", "no type", "no inode"].contains(name) {
                continue;
            }
            let image = copy_of(&clean);
            requests.iter().for_each(|request| drop(image.debugfs(request)));
            if !copy {
                image.debugfs("ssv jnl_backup_type 0");
            }
            let actions = keeps_all(&image, name);
            let now = dumped(&image, "logged");
            let now: Vec<u8> = now.chunks(BLOCK as usize).map(|block| block[0]).collect();
            assert_eq!(now, b"123o", "{name}, a copy: {copy}: {actions:?}");
            // Nothing is left that a mount would replay over the repair.
            assert!(!image.debugfs("features").contains("needs_recovery"), "{name}: {actions:?}");
        }
    }
}

/// Makes an image that crashed, with this damage.
fn crashed(options: &str, damage: impl Fn(&Target)) -> Option<Image> {
    let has_fast_commits = options.contains("fast_commit");
    let left = if has_fast_commits { Left::FastCommits } else { Left::Crashed };
    let target = Target::make(options, 8, left)?;
    damage(&target);
    let image = Image::empty();
    target.device().to_file(image.path()).expect("a copy");
    Some(image)
}

#[test]
fn a_log_whose_first_block_is_wrong_is_replayed() {
    for first in [0, 2, u32::MAX] {
        let damage = |target: &Target| target.put(target.log()[0] + 0x14, &first.to_be_bytes());
        let Some(image) = crashed("-b 1024 -t ext3 -J size=1", damage) else { return };
        let actions = repaired(&image, "a wrong first block");
        image.assert_clean("repaired");
        assert!(image.debugfs("stat \"big/after 10\"").contains("regular"), "{first}: {actions:?}");
    }
}

/// Fast commits that cannot be replayed as the image is: the log's inode is lost, perhaps with the
/// superblock; a logged copy, the orphan file, or the directory of the new names is damaged.
#[test]
fn fast_commits_are_replayed_as_far_as_possible() {
    const PLAIN: &str = "-b 1024 -J size=2 -O fast_commit,^orphan_file -g 4096";
    const UNSUMMED: &str =
        "-b 1024 -J size=2 -O fast_commit,^orphan_file,^metadata_csum,^metadata_csum_seed";
    const ORPHANS: &str = "-b 1024 -J size=2 -O fast_commit,orphan_file -g 4096";
    let lost_log = |target: &Target| target.put(target.inode(Ino::JOURNAL), &vec![0; 256]);
    let lost_both = |target: &Target| {
        lost_log(target);
        target.put16(SUPER + 0x38, 0);
    };
    // The first copy of the last mount.
    let copy = |target: &Target| {
        let at = target.log()[target.log_start() + 1];
        target.put(at + 0x30, &[0xa5; 4]);
    };
    let index = |target: &Target| target.put32(target.blocks(target.inode_of("big"))[0], 0x2000);
    let orphans = |target: &Target| {
        let at = *target.blocks(target.inode(Ino(12))).last().expect("a block");
        target.put32(at + 1024 - 8, 0x2b);
    };
    // The new `lost+found` would take the first free inode and block, which are those of new files.
    let lost_and_found = |target: &Target| {
        index(target);
        target.put(target.inode(Ino(11)), &vec![0; 256]);
        let root = target.blocks(target.inode(Ino::ROOT))[0];
        target.put32(root + 24, 0);
    };
    let quiet = |target: &Target| {
        let features = target.get32(SUPER + 0x60);
        target.put32(SUPER + 0x60, features & !4);
    };
    let Some(whole) = crashed(PLAIN, |_| ()) else { return };
    assert!(lanefs_ext4::log::replace_fast_commits(&whole.device(), None).expect("fast commits"));
    let _ = repaired(&whole, "whole");
    let content = |image: &Image| image.debugfs("cat \"big/after 23\"");
    let all: [(&str, &str, Damage<'_>); 7] = [
        ("lost+found and a directory", PLAIN, &lost_and_found),
        ("no needs_recovery", UNSUMMED, &quiet),
        ("the log's inode", PLAIN, &lost_log),
        ("and the superblock", PLAIN, &lost_both),
        ("a copy", PLAIN, &copy),
        ("a directory", PLAIN, &index),
        ("the orphan file", ORPHANS, &orphans),
    ];
    for (what, options, damage) in all {
        let Some(image) = crashed(options, damage) else { return };
        let device = image.device();
        let replace = |device: &Arc<dyn Device>| {
            lanefs_ext4::log::replace_fast_commits(device, None).unwrap_or(false)
        };
        assert!(!replace(&device), "{what}");
        assert!(matches!(plan(device.clone(), Shared::Clone), Err(Error::FastCommits)), "{what}");
        let plan = plan_around(device.clone(), Shared::Clone, replace).expect("a plan");
        assert!(!plan.leaves_faults(), "{what}: {:?}", plan.after.findings);
        write(&plan, &*device);
        drop(device);
        image.assert_clean(what);
        let now = image.debugfs("stat \"big/after 23\"");
        let actions: Vec<_> = plan.actions.iter().map(ToString::to_string).collect();
        assert!(now.contains("regular"), "{what}: {actions:?}: {now}");
        assert!(content(&image) == content(&whole), "{what}: {actions:?}");
    }
}

/// The superblock of a crashed image asks for no replay, the log is said to be too short, or a copy
/// in it is said to be the superblock's.
#[test]
fn a_log_is_replayed_whatever_the_superblocks_say() {
    const OPTIONS: &str = "-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed";
    let quiet = |target: &Target| {
        let features = target.get32(SUPER + 0x60);
        target.put32(SUPER + 0x60, features & !4);
    };
    let short = |target: &Target| target.put(target.log()[0] + 0x10, &5u32.to_be_bytes());
    let over_superblock = |target: &Target| {
        let descriptor = target.log()[target.log_start()];
        // The second tag: the number of its block.
        let second = descriptor + 12 + 8 + 16;
        target.put(second, &1u32.to_be_bytes());
    };
    let all: [(&str, Damage<'_>, bool); 3] = [
        ("no needs_recovery", &quiet, true),
        ("s_maxlen", &short, true),
        ("a copy for the superblock", &over_superblock, false),
    ];
    for (what, damage, is_whole) in all {
        let Some(image) = crashed(OPTIONS, damage) else { return };
        let actions = repaired(&image, what);
        image.assert_clean(what);
        let now = image.debugfs("stat \"big/after 10\"");
        assert!(!is_whole || now.contains("regular"), "{what}: {actions:?}: {now}");
    }
}

/// The directory `d/e` gets a second name; its ".." tells which one is right.
#[test]
fn of_two_names_of_a_directory_the_one_of_its_parent_is_kept() {
    // One directory has a smaller number than `d`, and is read before it.
    for is_earlier in [false, true] {
        let Some(image) = Image::make("-b 1024 -O ^metadata_csum", "7M") else { return };
        let directories = if is_earlier { ["other", "d"] } else { ["d", "other"] };
        for name in directories {
            image.debugfs(&format!("mkdir {name}"));
        }
        image.debugfs("mkdir d/e");
        image.debugfs("mkdir d/e/below");
        image.assert_clean("filled");
        let target = inode(&image, "d/e");
        image.debugfs("link d/e other/e");
        let actions = repaired(&image, "two names");
        image.assert_clean("two names");
        assert_eq!(inode(&image, "d/e"), target, "{is_earlier}: {actions:?}");
        // A name below the directory itself is never the right one.
        image.debugfs("link d d/e/below/d");
        let below = inode(&image, "d/e/below").parse::<u32>().expect("a number");
        let block = image.debugfs("blocks d").trim().parse::<u64>().expect("a block");
        image.device().write_at(block * BLOCK + 12, &below.to_le_bytes()).expect("..");
        let actions = repaired(&image, "a ring");
        assert_eq!(inode(&image, "d/e"), target, "{is_earlier}: {actions:?}");
        image.assert_clean("a ring");
    }
}

#[test]
fn fields_that_e2fsck_mends_are_mended() {
    let Some(clean) = filled("-b 1024 -O quota") else { return };
    for (request, what) in [
        ("sif <10> blocks_hi 0xffff", "a reserved inode"),
        ("feature -has_journal", "an orphan file without a journal"),
    ] {
        let image = copy_of(&clean);
        image.debugfs(request);
        keeps_all(&image, what);
    }
}

#[test]
fn a_file_whose_type_became_a_link_is_kept() {
    let Some(image) = filled("-b 1024") else { return };
    image.debugfs("sif a mode 0120644");
    keeps_all(&image, "a link");
    assert!(image.debugfs("stat a").contains("regular"));
}

/// One extent of a file claims many blocks, of which other files have some: these files stay whole.
#[test]
fn a_long_claim_takes_nothing_from_other_files() {
    let Some(image) = filled("-b 1024") else { return };
    let length = image.debugfs("ex a");
    // The extent's length is in the lower half of i_block[4]. Now `a` has 4,000 of the 7,168 blocks,
    // with those of other files.
    image.debugfs("sif a block[4] 4000");
    let actions = repaired(&image, &length);
    for (n, (path, len)) in FILES.iter().enumerate().skip(1) {
        assert!(dumped(&image, path) == text(n, *len).into_bytes(), "{path}: {actions:?}");
    }
}

#[test]
fn a_file_of_a_user_that_looks_like_a_log_is_not_the_journal() {
    let Some(clean) = with_log("-b 1024") else { return };
    let log = clean.path().with_extension("log");
    clean.debugfs(&format!("dump <8> {}", log.display()));
    let content = std::fs::read(&log).expect("a dump");
    // The real log is replayed, but the copy in the file is not.
    clean.repair();
    clean.debugfs(&format!("write {} copy", log.display()));
    clean.repair();
    clean.assert_clean("with a file that looks like a log");
    let ino = inode(&clean, "copy");
    for more in [&[][..], &["clri <8>"], &["clri <8>", "ssv jnl_backup_type 0"]] {
        let image = copy_of(&clean);
        image.debugfs(&format!("ssv journal_inum {ino}"));
        image.debugfs("feature needs_recovery");
        more.iter().for_each(|request| drop(image.debugfs(request)));
        let actions = keeps_all(&image, &format!("{more:?}"));
        assert!(dumped(&image, "copy") == content, "{more:?}: {actions:?}");
    }
}

fn report(image: &Image, threads: usize, findings: usize) -> Report {
    let options = Options { threads, findings, ..Options::default() };
    lanefs_check::check(image.device(), &options, &|_| {}).expect("a superblock")
}

#[test]
fn the_findings_that_are_kept_do_not_depend_on_the_number_of_threads() {
    let Some(image) = filled("-b 1024 -g 1024 -N 512") else { return };
    // Files of several groups share blocks and have wrong fields.
    let block = image.debugfs("blocks c");
    let block = block.split_whitespace().next().expect("a block").to_string();
    for path in ["a", "b", "d/a", "d/b", "d/e/f"] {
        image.debugfs(&format!("sif {path} block[5] {block}"));
        image.debugfs(&format!("sif {path} faddr 7"));
        image.debugfs(&format!("sif {path} links_count 9"));
    }
    let all = report(&image, 1, 1000);
    assert!(all.findings.len() > 10 && all.left_out == 0);
    for findings in [0, 1, 5, all.findings.len() - 1] {
        let one = report(&image, 1, findings);
        assert_eq!(one.findings.len(), findings);
        for _ in 0..5 {
            let many = report(&image, 4, findings);
            assert_eq!((many.findings, many.left_out), (one.findings.clone(), one.left_out));
        }
    }
}

#[test]
fn a_damaged_resize_inode_only_prevents_growth() {
    let Some(image) = filled("-b 1024") else { return };
    image.debugfs("sif <7> block[DIND] 0");
    let found = report(&image, 1, 1000).findings;
    let harm = found.iter().find(|finding| matches!(finding.fault, Fault::Special { .. }));
    assert_eq!(harm.map(|finding| finding.harm()), Some(Harm::NoGrowth), "{found:?}");
}

#[test]
fn the_resize_inode_is_removed_beside_the_feature_that_excludes_it() {
    for first in ["0", "1"] {
        // A copy of the superblock would say that the other feature is the wrong one.
        let options = "-b 1024 -g 1024 -O sparse_super2 -E num_backup_sb=0";
        let Some(image) = filled(options) else { return };
        image.debugfs("feature meta_bg");
        image.debugfs(&format!("ssv first_meta_bg {first}"));
        let actions = keeps_all(&image, first);
        let features = image.debugfs("features");
        assert!(features.contains("meta_bg") && !features.contains("resize_inode"), "{actions:?}");
    }
}

#[test]
fn files_may_share_blocks_with_the_feature_shared_blocks() {
    let Some(image) = Image::make("-b 1024 -O ^metadata_csum,^has_journal,^orphan_file", "7M")
    else {
        return;
    };
    let source = image.path().with_extension("source");
    std::fs::write(&source, text(1, 40_000)).expect("a source");
    let [one, two] = ["one", "two"].map(|name| {
        image.debugfs(&format!("write {} {name}", source.display()));
        image.inode_at(name, BLOCK) + BLOCK_FIELD
    });
    let device = image.device();
    let mut field = [0; 60];
    device.read_at(one, &mut field).unwrap();
    device.write_at(two, &field).unwrap();
    drop(device);
    image.debugfs("feature shared_blocks");
    image.repair();
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_e2fsck() && verdicts.is_clean_for_lanefs(), "{verdicts:?}");
    assert_eq!(dumped(&image, "two"), dumped(&image, "one"));
    assert!(Verdicts::of(image.path()).is_clean_for_lanefs());
}

/// Makes an image whose directory `many` has 60 files in several blocks.
fn with_many(options: &str) -> Option<Image> {
    let image = filled(options)?;
    image.debugfs("mkdir many");
    let source = image.path().with_extension("source");
    std::fs::write(&source, "x").expect("a source");
    for n in 0..60 {
        image.debugfs(&format!("write {} many/{}_{n}", source.display(), "x".repeat(20)));
    }
    image.repair();
    image.assert_clean("filled");
    Some(image)
}

/// Returns the number of names in a directory.
fn names(image: &Image, path: &str) -> usize {
    let listed = image.debugfs(&format!("ls -l {path}"));
    listed.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Returns the blocks of a file or directory.
fn blocks(image: &Image, path: &str) -> Vec<u64> {
    let blocks = image.debugfs(&format!("blocks {path}"));
    blocks.split_whitespace().map(|block| block.parse().expect("a number")).collect()
}

#[test]
fn a_directory_with_the_mode_of_another_type_keeps_its_names() {
    for options in ["-b 1024", "-b 1024 -O ^extent,^64bit,^dir_index"] {
        let Some(clean) = with_many(options) else { return };
        let count = names(&clean, "many");
        for mode in ["0140755", "0120755", "010755", "060755", "0100755", "0"] {
            let image = copy_of(&clean);
            image.debugfs(&format!("sif many mode {mode}"));
            let actions = keeps_all(&image, mode);
            assert_eq!(names(&image, "many"), count, "{mode}: {actions:?}");
        }
        // The bits of users and of the sticky directory are no part of the type.
        clean.debugfs("sif many mode 0147755");
        let actions = keeps_all(&clean, "bits of users");
        let now = clean.debugfs("stat many");
        assert!(now.contains("Type: directory    Mode:  07755"), "{actions:?}: {now}");
    }
}

#[test]
fn the_readable_records_of_a_damaged_directory_block_are_kept() {
    for options in ["-b 1024 -O ^dir_index", "-b 1024 -O ^dir_index,^metadata_csum"] {
        let Some(clean) = with_many(options) else { return };
        let (count, places) = (names(&clean, "many"), blocks(&clean, "many"));
        // Each record has 32 bytes. The fourth one of the second block is damaged.
        let at = places[1] * BLOCK + 3 * 32;
        for (offset, bytes, lost) in [
            (4, &[0, 0][..], 0),
            (4, &[5, 0], 0),
            (4, &[255, 255], 0),
            (10, b"/", 0),
            (10, &[0], 0),
            (0, &[255; 20], 1),
            (6, &[255], 1),
        ] {
            let (image, what) = (copy_of(&clean), format!("{options}: {offset} {bytes:?}"));
            image.device().write_at(at + offset, bytes).unwrap();
            let actions = keeps_all(&image, &what);
            assert_eq!(names(&image, "many"), count - lost, "{what}: {actions:?}");
        }
        // A directory without its first block gets a new one; the blocks after it are full.
        let mut first = [0; BLOCK as usize];
        clean.device().read_at(places[0] * BLOCK, &mut first).unwrap();
        let first = first.windows(21).filter(|name| **name == *b"xxxxxxxxxxxxxxxxxxxx_").count();
        let image = copy_of(&clean);
        image.debugfs("punch many 0 0");
        let actions = keeps_all(&image, "no first block");
        assert_eq!(names(&image, "many"), count - first, "{options}: {actions:?}");
        let lost = image.debugfs("ls lost+found").matches('#').count();
        assert_eq!(lost, first, "{options}: {actions:?}");
    }
}

/// Returns the place of the first node below the root of a file's extent tree.
fn first_node(image: &Image, name: &str) -> u64 {
    let mut root = [0; 24];
    image.device().read_at(image.inode_at(name, BLOCK) + BLOCK_FIELD, &mut root).unwrap();
    u64::from(u32::from_le_bytes(root[16..20].try_into().unwrap())) * BLOCK
}

#[test]
fn the_extents_of_a_node_whose_start_is_wrong_are_kept() {
    let Some(clean) = filled("-b 1024 -O ^metadata_csum") else { return };
    let pieces = write_pieces(&clean, "pieces", 1);
    clean.assert_clean("filled");
    let image = copy_of(&clean);
    let root = image.inode_at("pieces", BLOCK) + BLOCK_FIELD;
    image.device().write_at(root + 12, &[9, 0, 0, 0]).unwrap();
    let actions = keeps_all(&image, "ei_block");
    assert!(dumped(&image, "pieces") == pieces, "{actions:?}");
    let image = copy_of(&clean);
    image.device().write_at(first_node(&clean, "pieces") + 6, &[1, 0]).unwrap();
    let actions = keeps_all(&image, "the depth of a leaf");
    assert!(dumped(&image, "pieces") == pieces, "{actions:?}");
}

#[test]
fn a_wrong_start_or_leaf_in_an_index_costs_no_other_leaf() {
    /// The extents of a leaf, as debugfs fills it.
    const LEAF: usize = 83;
    const COUNT: usize = 200;
    let Some(clean) = filled("-b 1024 -O ^metadata_csum") else { return };
    let source = clean.path().with_extension("source");
    let block = |n: usize| [(n + 1) as u8; BLOCK as usize];
    let gap = [0; BLOCK as usize];
    let bytes: Vec<u8> = (0..COUNT).flat_map(|n| [block(n), gap]).flatten().collect();
    std::fs::write(&source, &bytes).expect("a source");
    clean.debugfs(&format!("write {} pieces", source.display()));
    clean.assert_clean("filled");
    let root = clean.inode_at("pieces", BLOCK) + BLOCK_FIELD;
    let mut field = [0; 60];
    clean.device().read_at(root, &mut field).unwrap();
    assert_eq!((field[2], field[6]), (3, 1), "a root with three leaves");
    // The second leaf seems to begin inside the first one.
    let image = copy_of(&clean);
    image.device().write_at(root + 12 + 12, &[9, 0, 0, 0]).unwrap();
    let actions = keeps_all(&image, "ei_block");
    assert!(dumped(&image, "pieces") == bytes, "{actions:?}");
    // The first entry leads to another leaf.
    for leaf in 1..3 {
        let (image, entry) = (copy_of(&clean), 12 + leaf * 12 + 4);
        image.device().write_at(root + 12 + 4, &field[entry..entry + 4]).unwrap();
        let actions = keeps_all(&image, "ei_leaf");
        let is_kept = dumped(&image, "pieces")[2 * LEAF * BLOCK as usize..]
            == bytes[2 * LEAF * BLOCK as usize..];
        assert!(is_kept, "{leaf}: {actions:?}");
    }
}

#[test]
fn a_repair_that_does_not_fit_in_memory_is_refused() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    let [c, f] = ["c", "d/e/f"].map(|name| image.inode_at(name, BLOCK) + BLOCK_FIELD);
    let mut field = [0; 60];
    image.device().read_at(f, &mut field).unwrap();
    image.device().write_at(c, &field).unwrap();
    for most in (4..64).map(|n| n << 10) {
        match plan_within(image.device(), Shared::Clone, most) {
            Err(Error::TooManyChanges) => {}
            Err(error) => panic!("{most}: {error}"),
            Ok(plan) => assert!(!plan.leaves_faults(), "{most}: {:?}", plan.after.findings),
        }
    }
    assert!(plan_within(image.device(), Shared::Clone, 4 << 10).is_err());
    assert!(plan_within(image.device(), Shared::Clone, 1 << 20).is_ok());
}

#[test]
fn a_mapping_behind_the_end_is_cut_if_i_blocks_does_not_count_it() {
    for options in ["-b 1024 -O ^metadata_csum", "-b 1024 -C 4096 -O bigalloc,^metadata_csum"] {
        let Some(clean) = filled(options) else { return };
        let pieces = write_pieces(&clean, "pieces", 1);
        clean.assert_clean("filled");
        let last = first_node(&clean, "pieces") + 12 + 19 * 12;
        for len in [5, 90] {
            let image = copy_of(&clean);
            image.device().write_at(last + 4, &[len, 0]).unwrap();
            let actions = keeps_all(&image, &format!("{options}: length {len}"));
            // e2fsck keeps the size too, and loses the whole extent.
            assert!(dumped(&image, "pieces") == pieces, "{options}: length {len}: {actions:?}");
        }
        // If the size is too large, it is corrected; if it is too small, no block is lost.
        let image = copy_of(&clean);
        image.debugfs("sif pieces size 8796093388800");
        keeps_all(&image, &format!("{options}: a large size"));
        let image = copy_of(&clean);
        image.debugfs("sif pieces size 5000");
        let actions = keeps_all(&image, &format!("{options}: a wrong size"));
        let now = dumped(&image, "pieces");
        assert!(pieces.starts_with(&now), "{options}: {actions:?}");
        assert!(now.len() == 39 * BLOCK as usize, "{options}: {}: {actions:?}", now.len());
        // The same if i_blocks is wrong too, by less than these blocks.
        let image = copy_of(&clean);
        let (at, mut sectors) = (image.inode_at("pieces", BLOCK) + 28, [0; 4]);
        image.device().read_at(at, &mut sectors).unwrap();
        let sectors = u32::from_le_bytes(sectors) + 2;
        image.debugfs("sif pieces size 5000");
        image.debugfs(&format!("sif pieces blocks {sectors}"));
        let actions = keeps_all(&image, &format!("{options}: a wrong size and i_blocks"));
        assert!(dumped(&image, "pieces") == now, "{options}: {actions:?}");
    }
}

#[test]
fn a_journal_with_bad_indirect_blocks_is_found_and_mended() {
    let Some(clean) = filled("-t ext3 -b 1024 -J size=1") else { return };
    let mut damages = vec!["block[IND]".to_string(), "block[DIND]".into(), "block[0]".into()];
    damages.iter_mut().for_each(|damage| *damage += " 999999");
    damages.extend(["block[DIND] 5", "block[DIND] 0", "block[TIND] 700"].map(String::from));
    for damage in damages {
        let image = copy_of(&clean);
        image.debugfs(&format!("sif <8> {damage}"));
        keeps_all(&image, &damage);
    }
}

#[test]
fn attribute_blocks_are_kept_if_the_superblock_lacks_their_feature() {
    let Some(image) = filled("-b 1024 -I 128 -O ^metadata_csum,^resize_inode") else { return };
    image.debugfs("ea_set c user.name value");
    image.assert_clean("filled");
    image.debugfs("feature ^ext_attr");
    keeps_all(&image, "ext_attr");
    assert!(image.debugfs("ea_get c user.name").contains("value"));
}

#[test]
fn an_attribute_block_in_which_more_than_a_hash_is_wrong_is_removed() {
    let Some(clean) = filled("-b 1024 -I 128 -O ^metadata_csum") else { return };
    clean.debugfs("ea_set c user.aqxy value");
    clean.debugfs("ea_set c user.bqxy value");
    for (from, to) in [(b"aqxy", b"a\0xy"), (b"aqxy", b"dqxy"), (b"aqxy", b"aqyy")] {
        let image = copy_of(&clean);
        rename(&image, from, to);
        let (actions, kept) = (keeps_all(&image, "a name"), to == b"aqyy");
        assert_eq!(image.debugfs("ea_list c").contains("(5)"), kept, "{to:?}: {actions:?}");
        let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
        let root = mount.fs().root().expect("a root");
        let named = mount.fs().lookup(&root, b"c").expect("a look-up").expect("a name");
        let file = mount.fs().get(named.ino, None).expect("an inode");
        let listed = mount.fs().list_xattr(&file).expect("attributes");
        assert_eq!(listed.len(), if kept { 2 } else { 0 }, "{to:?}: {actions:?}");
    }
}

#[test]
fn a_context_in_an_inode_of_its_own_deletes_no_file() {
    let Some(image) = filled("-b 1024 -I 256 -O encrypt,^metadata_csum") else { return };
    let context = [&[1, 1, 4, 0][..], &[b'k'; 24]].concat();
    let place = image.inode_at("c", BLOCK);
    encrypt(&image, place, &context);
    image.device().write_at(place + 160 + 8, &[0, 0, 4, 0]).unwrap();
    let actions = keeps_all(&image, "e_value_inum");
    assert!(image.debugfs("stat c").contains("regular"), "{actions:?}");
}

#[test]
fn a_link_whose_target_is_in_a_block_is_long() {
    let Some(clean) = filled("-b 1024 -O ^metadata_csum") else { return };
    clean.debugfs(&format!("symlink long {}", "x".repeat(200)));
    clean.assert_clean("filled");
    let target = clean.debugfs("blocks long");
    let target: u64 = target.split_whitespace().last().unwrap().parse().expect("a block");
    for (len, size, is_kept) in [(200, 40, true), (40, 40, false), (40, 200, false)] {
        let image = copy_of(&clean);
        image.device().write_at(target * BLOCK + len, &[0]).unwrap();
        image.debugfs(&format!("sif long size {size}"));
        let actions = keeps_all(&image, &format!("a target of {len} bytes, size {size}"));
        let is_there = image.debugfs("stat long").contains("symlink");
        assert_eq!(is_there, is_kept, "{len}, {size}: {actions:?}");
    }
}

#[test]
fn with_bigalloc_a_block_that_is_not_at_its_place_in_the_cluster_is_kept() {
    let Some(clean) = filled("-b 1024 -C 8192 -O bigalloc,^metadata_csum") else { return };
    let pieces = write_pieces(&clean, "pieces", 1);
    clean.assert_clean("filled");
    let entry = first_node(&clean, "pieces") + 12 + 6 * 12;
    for (from, to) in [(12, 11), (12, 13)] {
        let image = copy_of(&clean);
        image.device().write_at(entry, &[to, 0, 0, 0]).unwrap();
        let actions = keeps_all(&image, "a block in its cluster");
        let mut expected = pieces.clone();
        let range = |n: u8| usize::from(n) * BLOCK as usize..usize::from(n + 1) * BLOCK as usize;
        expected.copy_within(range(from), range(to).start);
        expected[range(from)].fill(0);
        assert!(dumped(&image, "pieces") == expected, "{to}: {actions:?}");
    }
}

#[test]
fn flags_of_reserved_inodes_without_a_purpose_are_no_fault_unless_e2fsck_says_so() {
    for (features, flags, is_fault) in [
        ("^metadata_csum", "0xbff7efff", false),
        ("^metadata_csum", "0x10080000", true),
        ("^metadata_csum", "0x1000", true),
        ("^metadata_csum", "0x40000000", true),
        ("inline_data", "0xbff7efff", false),
        ("inline_data", "0x10080000", true),
    ] {
        let Some(image) = filled(&format!("-b 1024 -O {features}")) else { return };
        image.debugfs(&format!("sif <10> flags {flags}"));
        let verdicts = Verdicts::of(image.path());
        let clean = [verdicts.is_clean_for_e2fsck(), verdicts.is_clean_for_lanefs()];
        assert_eq!(clean, [!is_fault; 2], "{features} {flags}: {verdicts:?}");
        if is_fault {
            keeps_all(&image, flags);
        }
    }
}

#[test]
fn the_extents_beside_a_wrong_one_are_kept() {
    let Some(clean) = filled("-b 1024 -O ^metadata_csum") else { return };
    let pieces = write_pieces(&clean, "pieces", 1);
    clean.assert_clean("filled");
    let node = first_node(&clean, "pieces");
    // The position and the length of the fifth extent.
    for (offset, bytes) in [(0, &[255, 31, 0, 0][..]), (4, &[65, 0])] {
        let image = copy_of(&clean);
        image.device().write_at(node + 12 + 4 * 12 + offset, bytes).unwrap();
        let actions = keeps_all(&image, "an extent");
        let mut expected = pieces.clone();
        let mut found = dumped(&image, "pieces");
        let at = |n: usize| n * BLOCK as usize..(n + 1) * BLOCK as usize;
        match offset {
            0 => expected[at(8)].fill(0),
            // It ends where the next one begins.
            _ => found[at(9)].fill(0),
        }
        assert!(found == expected, "{bytes:?}: {actions:?}");
    }
}

#[test]
fn a_tree_that_is_too_deep_keeps_its_leaf() {
    let Some(image) = filled("-b 1024 -O ^metadata_csum") else { return };
    let at = image.inode_at("c", BLOCK) + BLOCK_FIELD;
    let free = image.debugfs("ffb 7");
    let free: Vec<u32> = free.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let device = image.device();
    let mut node = vec![0; 60];
    device.read_at(at, &mut node).unwrap();
    for (depth, block) in (1..).zip(&free) {
        node.resize(BLOCK as usize, 0);
        node[4] = 84;
        device.write_at(u64::from(*block) * BLOCK, &node).unwrap();
        node = [&[0x0a, 0xf3, 1, 0, 4, 0, depth, 0][..], &[0; 8], &block.to_le_bytes()].concat();
    }
    node.resize(60, 0);
    device.write_at(at, &node).unwrap();
    drop(device);
    keeps_all(&image, "a depth of 7");
}

#[test]
fn a_short_link_with_the_flag_of_extents_keeps_its_target() {
    let Some(image) = filled("-b 1024") else { return };
    image.debugfs("symlink ln target");
    image.debugfs("sif ln flags 0x80000");
    keeps_all(&image, "ln");
    assert!(image.debugfs("stat ln").contains("Fast link dest: \"target\""));
}

#[test]
fn inodes_that_seem_to_hold_their_data_are_told_apart() {
    let Some(clean) = with_many("-b 1024 -I 256 -O inline_data,^metadata_csum") else { return };
    clean.debugfs("mkdir in");
    clean.debugfs("ln a in/a");
    clean.repair();
    clean.assert_clean("filled");
    let place = clean.inode_at("in", BLOCK);
    for damage in [
        "sif c flags 0x10080000",
        "sif c flags 0x10000000",
        "sif many flags 0x10081000",
        "sif many flags 0x10000000",
        "sif in flags 0x10080000",
        "sif in size 128",
        "sif in extra_isize 252",
        "sif d/a extra_isize 252",
        "sif d/a extra_isize 124",
    ] {
        let image = copy_of(&clean);
        image.debugfs(damage);
        let actions = keeps_all(&image, damage);
        assert_eq!(names(&image, "many"), names(&clean, "many"), "{damage}: {actions:?}");
        assert_eq!(names(&image, "in"), 3, "{damage}: {actions:?}");
    }
    // `system.data` gets a value of 5 bytes, which is too short for a record; or it is lost.
    for (offset, bytes) in [(0xa6, &[0x54, 0, 0, 0, 0, 0, 5, 0][..]), (0xa2, &[0, 0])] {
        let image = copy_of(&clean);
        image.device().write_at(place + offset, bytes).unwrap();
        image.device().write_at(place + 4, &[65]).unwrap();
        let actions = keeps_all(&image, "a value");
        assert_eq!(names(&image, "in"), 3, "{actions:?}");
    }
}

#[test]
fn damaged_values_in_inodes_of_their_own_cost_no_other_attribute() {
    let Some(clean) = filled("-b 1024 -I 256 -O ea_inode") else { return };
    let value = clean.path().with_extension("value");
    std::fs::write(&value, [b'v'; 1000]).expect("a value");
    clean.debugfs(&format!("ea_set -f {} c user.large", value.display()));
    clean.debugfs("ea_set c user.small x");
    clean.repair();
    clean.assert_clean("filled");
    let ino = (12..200).find(|ino| clean.debugfs(&format!("stat <{ino}>")).contains("0x280000"));
    let ino = ino.expect("the inode of the value");
    for (damage, keeps) in [
        (format!("sif <{ino}> flags 0x80000"), true),
        (format!("sif <{ino}> mode 0040755"), false),
        (format!("clri <{ino}>"), false),
    ] {
        let image = copy_of(&clean);
        image.debugfs(&damage);
        let actions = keeps_all(&image, &damage);
        let listed = image.debugfs("ea_list c");
        assert!(listed.contains("user.small (1) = \"x\""), "{damage}: {actions:?}: {listed}");
        assert_eq!(listed.contains("user.large"), keeps, "{damage}: {actions:?}: {listed}");
    }
    // A file with a name is no value, even if an attribute names it.
    let (image, named) = (copy_of(&clean), inode(&clean, "a").parse::<u32>().expect("a number"));
    let (place, device) = (image.inode_at("c", BLOCK), image.device());
    let mut bytes = [0; 256];
    device.read_at(place, &mut bytes).expect("the inode");
    let attribute = (160..252).find(|at| bytes[*at..at + 4] == u32::to_le_bytes(ino));
    let attribute = place + attribute.expect("the attribute") as u64;
    device.write_at(attribute, &named.to_le_bytes()).expect("a write");
    drop(device);
    let actions = keeps_all(&image, "the value is a file");
    assert!(!image.debugfs("stat a").contains("0x280000"), "{actions:?}");
}

#[test]
fn the_wrong_flag_of_one_file_is_no_lost_feature() {
    for (options, flags) in [
        ("-b 1024 -O ^extent,^64bit,^metadata_csum", "0x80000"),
        ("-b 1024 -O ^metadata_csum", "0x10080000"),
        ("-b 1024 -O ^metadata_csum", "0x280000"),
    ] {
        let Some(image) = filled(options) else { return };
        image.debugfs(&format!("sif c flags {flags}"));
        let actions = keeps_all(&image, flags);
        assert!(!actions.iter().any(|action| action.contains("features")), "{actions:?}");
    }
}

/// Gives the inode at `place` the flag and the context of an encrypted inode.
fn encrypt(image: &Image, place: u64, context: &[u8]) {
    let device = image.device();
    let mut flags = [0; 4];
    device.read_at(place + 0x20, &mut flags).unwrap();
    flags[1] |= 8;
    device.write_at(place + 0x20, &flags).unwrap();
    let mut area = [0; 96];
    area[..8].copy_from_slice(&[0, 0, 2, 0xea, 1, 9, 92 - context.len() as u8, 0]);
    area[12] = context.len() as u8;
    area[20] = b'c';
    area[96 - context.len()..].copy_from_slice(context);
    device.write_at(place + 160, &area).unwrap();
}

#[test]
fn an_encrypted_lost_and_found_is_replaced_and_a_context_without_a_version_is_found() {
    let Some(clean) = filled("-b 1024 -I 256 -O encrypt,^metadata_csum") else { return };
    let context = [&[1, 1, 4, 0][..], &[b'k'; 24]].concat();
    let image = copy_of(&clean);
    encrypt(&image, image.inode_at("lost+found", BLOCK), &context);
    image.assert_clean("an encrypted directory without files");
    image.debugfs("mknod nameless p");
    image.debugfs("unlink nameless");
    let actions = keeps_all(&image, "an encrypted lost+found");
    assert!(actions.iter().any(|told| told.contains("made as lost+found")), "{actions:?}");
    let image = copy_of(&clean);
    image.debugfs("symlink link target");
    encrypt(&image, image.inode_at("link", BLOCK), &[&[0][..], &[b'k'; 27]].concat());
    assert!(!Verdicts::of(image.path()).is_clean_for_e2fsck());
    keeps_all(&image, "a context of version 0");
}

#[test]
fn the_length_of_the_name_of_a_context_is_corrected() {
    let Some(clean) = filled("-b 1024 -I 256 -O encrypt,^metadata_csum") else { return };
    clean.debugfs("mkdir secret");
    let (place, context) = (clean.inode_at("secret", BLOCK), [[1, 1, 4, 0], [b'k'; 4]].concat());
    encrypt(&clean, place, &[&context[..], &[b'k'; 20]].concat());
    clean.assert_clean("an encrypted directory without files");
    let read = |image: &Image| {
        let mut bytes = [0; 256];
        image.device().read_at(place, &mut bytes).unwrap();
        bytes
    };
    for len in 2..=5 {
        let image = copy_of(&clean);
        image.device().write_at(place + 164, &[len]).unwrap();
        let actions = keeps_all(&image, "a name with zero bytes");
        assert!(read(&image)[0x80..] == read(&clean)[0x80..], "{len}: {actions:?}");
    }
}

#[test]
fn an_inline_file_that_is_larger_than_its_room_reads_as_zeros_after_it() {
    let Some(image) = filled("-b 1024 -I 256 -O inline_data") else { return };
    image.debugfs("sif a size 102400");
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_lanefs() && verdicts.is_clean_for_e2fsck(), "{verdicts:?}");
    assert_eq!(repaired(&image, "a"), Vec::<String>::new());
    let read = |image: &Image, change: &[u8]| {
        let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
        let root = mount.fs().root().expect("a root");
        let named = mount.fs().lookup(&root, b"a").expect("a look-up").expect("a name");
        let file = mount.fs().get(named.ino, None).expect("an inode");
        let mut bytes = vec![1; 200_000];
        let len = mount.fs().read_at(&file, 0, &mut bytes).expect("a read");
        bytes.truncate(len);
        if !change.is_empty() {
            let by = Privilege::Root;
            mount.fs().write_at(&file, len as u64, change, by).expect("a write");
        }
        drop((file, root));
        mount.close().expect("an unmount");
        bytes
    };
    let mut expected = text(0, 5).into_bytes();
    expected.resize(102_400, 0);
    assert!(read(&image, b"more") == expected);
    expected.extend(b"more");
    assert!(read(&image, b"") == expected);
    image.assert_clean("after an append");
}

#[test]
fn the_orphans_of_a_crash_are_in_use_until_they_are_deleted() {
    for options in ["-b 1024 -O ^orphan_file", "-b 1024 -O ^orphan_file,quota"] {
        let Some(image) = filled(options) else { return };
        let [one, two, cut] = ["c", "d/e/f", "d/b"].map(|path| inode(&image, path));
        for path in ["c", "d/e/f"] {
            image.debugfs(&format!("unlink {path}"));
        }
        // The first two are deleted; the third one is to be cut to 3,000 bytes.
        for (ino, next) in [(&one, &two), (&two, &cut)] {
            image.debugfs(&format!("sif <{ino}> links_count 0"));
            image.debugfs(&format!("sif <{ino}> dtime {next}"));
        }
        image.debugfs(&format!("sif <{cut}> size 3000"));
        image.debugfs(&format!("ssv last_orphan {one}"));
        let found = report(&image, 1, 1000).findings;
        let is_it = |fault: &Fault| matches!(fault, Fault::OrphansPending { orphans: 3, .. });
        let faults: Vec<_> = found.iter().filter(|one| one.harm() != Harm::Note).collect();
        assert!(faults.len() == 1 && is_it(&faults[0].fault), "{options}: {faults:?}");
        image.debugfs("feature needs_recovery");
        assert_eq!(report(&image, 1, 1000).verdict(), Verdict::Clean);
        repaired(&image, options);
        image.assert_clean(options);
        assert!(image.debugfs(&format!("stat <{one}>")).contains("Links: 0"));
        assert!(dumped(&image, &format!("<{cut}>")).len() == 3000);
    }
}

#[test]
fn a_name_that_is_in_two_blocks_after_damage_is_changed_in_one() {
    let Some(image) = with_many("-b 1024 -O ^metadata_csum,dir_index") else { return };
    image.e2fsck("-fyD");
    let places = blocks(&image, "many");
    assert!(places.len() > 2, "{places:?}");
    // The first name of the last leaf becomes equal to one of the leaf before.
    let mut leaf = [0; BLOCK as usize];
    let last = places.len() - 1;
    image.device().read_at(places[last - 1] * BLOCK, &mut leaf).unwrap();
    image.device().write_at(places[last] * BLOCK + 6, &[leaf[6]]).unwrap();
    image.device().write_at(places[last] * BLOCK + 8, &leaf[8..8 + usize::from(leaf[6])]).unwrap();
    let count = names(&image, "many");
    let actions = keeps_all(&image, "a name");
    let listed = image.debugfs("ls -p many");
    let mut all: Vec<&str> = listed.lines().filter_map(|line| line.split('/').nth(5)).collect();
    all.sort_unstable();
    let total = all.len();
    all.dedup();
    assert_eq!((all.len(), names(&image, "many")), (total, count), "{actions:?}");
}

/// Changes the only name `from` in a directory block or an inode table to `to`.
fn rename(image: &Image, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(image.path()).expect("an image");
    let mut places = bytes.windows(from.len()).enumerate().filter(|(_, part)| *part == from);
    let (at, None) = (places.next().expect("a name").0, places.next()) else {
        panic!("{} is there twice", from.escape_ascii())
    };
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(image.path(), bytes).expect("an image");
}

fn listed(image: &Image, path: &str) -> Vec<String> {
    let listed = image.debugfs(&format!("ls -p {path}"));
    let mut all: Vec<_> = listed.lines().filter_map(|line| line.split('/').nth(5)).collect();
    all.sort_unstable();
    all.into_iter().map(String::from).collect()
}

#[test]
fn a_new_name_is_not_that_of_another_entry_in_the_directory() {
    let Some(clean) = filled("-b 1024 -O ^metadata_csum,^dir_index") else { return };
    clean.debugfs("mkdir many");
    let mut names = vec!["aaaa".to_string(), "ab@b".into(), "a@cd".into()];
    names.extend((0..5).map(|n| n.to_string().repeat(200)));
    names.extend(["5".repeat(120), "aa~0".into(), "a.cd".into()]);
    let source = clean.path().with_extension("source");
    std::fs::write(&source, "x").expect("a source");
    for name in &names {
        clean.debugfs(&format!("write {} many/{name}", source.display()));
    }
    clean.repair();
    clean.assert_clean("filled");
    assert_eq!(blocks(&clean, "many").len(), 2);
    let image = copy_of(&clean);
    rename(&image, b"ab@b", b"aaaa");
    rename(&image, b"a@cd", b"a/cd");
    let actions = keeps_all(&image, "names in two blocks");
    let now = listed(&image, "many");
    let expected = [".", "..", "a.cd", "a.~0", "aaaa", "aa~0", "aa~1"].map(String::from);
    let short: Vec<_> = now.into_iter().filter(|name| name.len() < 9).collect();
    assert_eq!(short, expected, "{actions:?}");
}

#[test]
fn a_new_name_is_not_that_of_an_entry_in_the_other_part_of_an_inline_directory() {
    let Some(clean) = filled("-b 1024 -I 256 -O inline_data,^metadata_csum") else { return };
    let source = clean.path().with_extension("source");
    std::fs::write(&source, "x").expect("a source");
    clean.debugfs("mkdir dir");
    for name in ["dir/aaaa", "dir/a@cd", "dir/acac", "last"] {
        clean.debugfs(&format!("write {} {name}", source.display()));
    }
    // The entry that is the second part: of the inode of `last`, 12 bytes, 4 of them the name.
    let ino: u32 = inode(&clean, "last").parse().expect("a number");
    std::fs::write(&source, [&ino.to_le_bytes()[..], &[12, 0, 4, 1], b"a.cd"].concat()).unwrap();
    clean.debugfs(&format!("ea_set -f {} dir system.data", source.display()));
    clean.debugfs("sif dir size 72");
    clean.debugfs("unlink last");
    clean.assert_clean("filled");
    assert!(clean.debugfs("stat dir").contains("Flags: 0x10000000"), "an inline directory");
    rename(&clean, b"a@cd", b"a/cd");
    let actions = keeps_all(&clean, "an inline directory");
    let expected = [".", "..", "a.cd", "a.~0", "aaaa", "acac"].map(String::from);
    assert_eq!(listed(&clean, "dir"), expected, "{actions:?}");
}

#[test]
fn equal_names_in_an_inline_directory_are_found() {
    let Some(clean) = filled("-b 1024 -I 256 -O inline_data,^metadata_csum") else { return };
    clean.debugfs("mkdir dir");
    let source = clean.path().with_extension("source");
    std::fs::write(&source, "x").expect("a source");
    clean.debugfs(&format!("write {} dir/qwe1", source.display()));
    clean.debugfs(&format!("write {} dir/qwe2", source.display()));
    clean.assert_clean("filled");
    rename(&clean, b"qwe2", b"qwe1");
    let actions = keeps_all(&clean, "equal names");
    assert_eq!(listed(&clean, "dir"), [".", "..", "qwe1", "qw~0"], "{actions:?}");
}

#[test]
fn an_orphan_file_beyond_the_used_part_of_its_table_is_found() {
    let Some(image) = Image::make("-b 1024", "8M") else { return };
    let said = image.debugfs("stats");
    let inodes =
        said.split("Inodes per group:").nth(1).and_then(|rest| rest.split_whitespace().next());
    let inodes: u32 = inodes.and_then(|number| number.parse().ok()).expect("a number");
    image.debugfs(&format!("set_bg 0 itable_unused {}", inodes - 11));
    image.debugfs("set_bg 0 checksum calc");
    let before = Verdicts::of(image.path());
    assert!(!before.is_clean_for_e2fsck() && !before.is_clean_for_lanefs(), "{before:?}");
    let actions = repaired(&image, "an orphan file beyond the used part");
    image.assert_clean("repaired");
    assert!(image.debugfs("features").contains("orphan_file"), "{actions:?}");
}

#[test]
fn the_device_of_a_journal_is_no_fault_without_a_journal() {
    let Some(image) = filled("-b 1024 -t ext2") else { return };
    image.debugfs("ssv journal_dev 5");
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_lanefs() && verdicts.is_clean_for_e2fsck(), "{verdicts:?}");
}

#[test]
#[ignore = "long: 65,001 directories"]
fn a_directory_with_more_links_than_can_be_counted_needs_a_feature() {
    let Some(image) = Image::make("-b 1024 -N 70000 -O ^has_journal,^orphan_file", "160M") else {
        return;
    };
    let Some(mount) = image.kernel_mount("") else { return };
    for n in 0..65_001 {
        std::fs::create_dir(mount.path().join(n.to_string())).expect("a directory");
    }
    mount.unmount();
    image.debugfs("feature ^dir_nlink");
    let before = Verdicts::of(image.path());
    assert!(!before.is_clean_for_lanefs() && !before.is_clean_for_e2fsck(), "{before:?}");
    repaired(&image, "dir_nlink");
    image.assert_clean("dir_nlink");
    assert!(image.debugfs("features").contains("dir_nlink"));
}

#[test]
fn inodes_per_group_that_are_no_multiple_of_8_are_mounted_and_kept() {
    for options in [
        "-b 1024 -O ^metadata_csum,^uninit_bg,^64bit",
        "-b 1024 -g 1024 -N 2048 -O ^metadata_csum,uninit_bg,sparse_super2,^orphan_file \
         -E num_backup_sb=0",
        "-b 1024 -g 1024 -N 2048 -O metadata_csum,sparse_super2,^orphan_file -E num_backup_sb=0",
    ] {
        inodes_are_mounted_and_kept(options);
    }
}

/// Takes two inodes of each group away, as in images of make_ext4fs, which the kernel mounts.
/// e2fsck 1.47.0 compares only the whole bytes of their bitmaps, so it is no judge here.
fn inodes_are_mounted_and_kept(options: &str) {
    const DROPPED: u32 = 2;
    let Some(image) = Image::make(options, "7M") else { return };
    let get = |at: u64| {
        let mut word = [0; 4];
        image.device().read_at(at, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    let put = |at: u64, word: u32| image.device().write_at(at, &word.to_le_bytes()).unwrap();
    let (sb, desc) = (1024, 2 * BLOCK);
    let number = get(sb + 0x28) - DROPPED;
    let groups = get(sb) / get(sb + 0x28);
    for (at, count) in [(sb, groups), (sb + 0x10, groups), (sb + 0x28, 1)] {
        put(at, get(at) - DROPPED * count);
    }
    let mut bytes = [0; 1024];
    image.device().read_at(sb, &mut bytes).unwrap();
    let superblock = Superblock::decode_torn(&bytes).expect("a superblock");
    image.device().write_at(sb, &superblock.encode()).unwrap();
    // The repair corrects the counts and bitmaps.
    repaired(&image, options);
    let bits = u64::from(get(desc + 4)) * BLOCK + u64::from(number / 32) * 4;
    let number_of = || get(sb + 0x28);
    let expect_clean = |what: &str| {
        let found = report(&image, 1, 1000);
        assert_eq!(found.verdict(), Verdict::Clean, "{options}: {what}: {:?}", found.findings);
        assert_eq!(number_of(), number, "{options}: {what}");
    };
    expect_clean("made");
    assert_eq!(groups > 1, options.contains("-g"), "{groups}");
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let root = mount.fs().root().expect("a root");
    let kind = NewKind::Regular;
    let new = NewInode { kind, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
    // All inodes are used.
    let mut count = 0;
    let why = loop {
        match mount.fs().create(&root, format!("new {count}").as_bytes(), &new) {
            Ok(file) => drop(file),
            Err(why) => break why,
        }
        count += 1;
    };
    assert!(count > 1000, "{options}: {count}: {why}");
    drop(root);
    mount.close().expect("an unmount");
    expect_clean("written");
    assert_eq!(get(sb + 0x10), 0, "free inodes");
    if options.contains("^metadata_csum") {
        // Else no superblock is valid, and there is no copy.
        put(sb + 0x10, 5);
    }
    put(desc + 0xc, get(desc + 0xc) ^ 0xff << 16);
    put(bits, 0);
    assert_eq!(report(&image, 1, 1000).verdict(), Verdict::Damaged);
    repaired(&image, "wrong counts");
    expect_clean("repaired");
}

#[test]
fn a_second_entry_with_another_name_is_the_one_of_the_parent() {
    let Some(clean) = filled("-b 1024 -O ^metadata_csum") else { return };
    let at = blocks(&clean, "d/e")[0] * BLOCK;
    for name in [[2, 2, b'.', b'n'], [2, 2, b'n', b'.'], [1, 2, b'n', 0]] {
        let image = copy_of(&clean);
        image.device().write_at(at + 18, &name).unwrap();
        let actions = keeps_all(&image, &name.escape_ascii().to_string());
        assert_eq!(listed(&image, "d/e"), [".", "..", "f"], "{actions:?}");
        assert!(!image.debugfs("ls lost+found").contains('#'), "{actions:?}");
    }
}

/// e2fsck does not look at the rest of such an inode.
#[test]
fn an_inode_whose_first_half_is_zero_was_not_deleted() {
    let Some(image) = filled("-b 1024 -I 256") else { return };
    let place = image.inode_at("<60>", BLOCK);
    image.device().write_at(place, &[0; 256]).unwrap();
    image.device().write_at(place + 128, &[32, 0, 0, 0, 7]).unwrap();
    let verdicts = Verdicts::of(image.path());
    assert!(verdicts.is_clean_for_lanefs() && verdicts.is_clean_for_e2fsck(), "{verdicts:?}");
}

#[test]
fn a_full_root_takes_a_new_lost_and_found_and_keeps_its_names() {
    for options in ["-b 1024", "-b 1024 -O ^extent,^64bit,^dir_index"] {
        let Some(image) = filled(options) else { return };
        let source = image.path().with_extension("source");
        std::fs::write(&source, "lost").expect("a source");
        image.debugfs(&format!("write {} orphan", source.display()));
        image.debugfs("rmdir lost+found");
        // debugfs adds no block to the directory.
        for n in 0..100 {
            image.debugfs(&format!("ln a x{n:03}"));
        }
        assert!(names(&image, "/") < 100, "{options}: the root is not full");
        image.debugfs("unlink orphan");
        let count = names(&image, "/");
        let actions = keeps_all(&image, options);
        assert_eq!(names(&image, "/"), count + 1, "{actions:?}");
        assert_eq!(names(&image, "lost+found"), 3, "{actions:?}");
    }
}

#[test]
fn blocks_of_a_file_behind_a_hole_are_kept_if_its_map_is_written_anew() {
    let Some(image) = filled("-b 1024 -O ^extent,^64bit") else { return };
    let source = image.path().with_extension("source");
    let file = std::fs::File::create(&source).expect("a source");
    // The first block of each tree of pointers is a hole.
    for at in [0, 15 << 10, (12 + 256 + 9) << 10] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[b'd'; 1024], at).expect("a write");
    }
    image.debugfs(&format!("write {} sparse", source.display()));
    image.repair();
    let before = dumped(&image, "sparse");
    // The last pointer of the inode leads nowhere.
    image.debugfs("sif sparse block[TIND] 7777777");
    let actions = keeps_all(&image, "a pointer to nowhere");
    assert!(dumped(&image, "sparse") == before, "{actions:?}");
}

#[test]
fn a_file_system_with_a_feature_that_is_not_known_is_not_repaired() {
    for at in [0x5c, 0x60, 0x64] {
        let Some(image) = Image::make("-b 1024 -O ^metadata_csum", "10M") else { return };
        let device = image.device();
        let mut word = [0; 4];
        device.read_at(1024 + at, &mut word).expect("a read");
        let word = u32::from_le_bytes(word) | 1 << 27;
        device.write_at(1024 + at, &word.to_le_bytes()).expect("a write");
        device.write_at(1024 + 0xc, &[1, 0, 0, 0]).expect("wrong counts");
        let planned = plan(device, Shared::Clone).map(|plan| plan.actions);
        assert!(matches!(planned, Err(Error::Unsupported(_))), "{at:#x}: {planned:?}");
    }
}

#[test]
fn a_superblock_without_a_copy_gets_the_features_that_its_files_use() {
    for options in ["inline_data,ea_inode,^metadata_csum", "^filetype,^metadata_csum"] {
        features_are_restored(&format!("-b 1024 -I 256 -O {options}"));
    }
}

fn features_are_restored(options: &str) {
    let Some(clean) = filled(options) else { return };
    let device = clean.device();
    let mut word = [0; 4];
    device.read_at(SUPER + 0x60, &mut word).expect("a read");
    let word = u32::from_le_bytes(word);
    drop(device);
    // Extents, types in names, inline data: each of them, and all at once.
    for lost in [0x40, 0x2, 0x8000, 0x8042].into_iter().filter(|lost| word & lost != 0) {
        let image = copy_of(&clean);
        let left = (word & !lost).to_le_bytes();
        image.device().write_at(SUPER + 0x60, &left).expect("a write");
        let actions = keeps_all(&image, &format!("without {lost:#x}"));
        let said = "superblock: has the features again that its files use";
        assert_eq!(actions[0], said, "{actions:?}");
    }
}

#[test]
fn pointers_of_the_resize_inode_beside_its_tree_are_cleared() {
    let Some(image) = filled("-b 1024") else { return };
    for block in blocks(&image, "<7>").into_iter().take(3) {
        image.debugfs(&format!("sif <7> block[2] {block}"));
        keeps_all(&image, "a pointer to a reserved block");
    }
}

#[test]
fn an_orphan_file_that_ends_within_a_block_is_found() {
    let Some(image) = filled("-b 1024 -O orphan_file") else { return };
    let orphans = image.debugfs("stats -h");
    let orphans = orphans.lines().find(|line| line.starts_with("Orphan file inode"));
    let ino =
        orphans.and_then(|line| line.split_whitespace().last()).expect("the inode").to_owned();
    image.debugfs(&format!("sif <{ino}> size 32769"));
    keeps_all(&image, "the size of the orphan file");
}
