//! Repairs of directed damage. Afterwards both judges find the image clean, and all files have
//! their old contents.

use lanefs_check::repair::{Shared, plan};
use lanefs_check::{Fault, Harm, Options, Report, Verdict};
use lanefs_offline::Repair;
use lanefs_suites::changes::Verdicts;
use lanefs_suites::image::Image;

/// The files of [`filled`] with their sizes.
const FILES: [(&str, usize); 6] =
    [("a", 5), ("b", 3000), ("c", 40_000), ("d/a", 100), ("d/b", 9000), ("d/e/f", 70_000)];

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
    // The usage in quota files is counted again.
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
    let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
    let repair = Repair { recovery, blocks, block_size: plan.block_size() };
    repair.write_in_place(&*device).expect("it is written");
    actions
}

/// Repairs an image, and compares it with its state before the damage. Returns the actions.
fn keeps_all(image: &Image, what: &str) -> Vec<String> {
    let before = Verdicts::of(image.path());
    assert!(!before.is_clean_for_lanefs(), "{what}: the check finds nothing");
    let actions = repaired(image, what);
    let after = Verdicts::of(image.path());
    assert!(after.is_clean_for_lanefs(), "{what}: {actions:?} {after:?}");
    assert!(after.is_clean_for_e2fsck(), "{what}: {actions:?} {}", after.text);
    for (n, (path, len)) in FILES.iter().enumerate() {
        let now = image.debugfs(&format!("cat {path}"));
        // debugfs prints all the room for data in an inode.
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
            for ino in [file.as_str(), directory.as_str(), "2", "7", "11", "0"] {
                if ino == "0" && (field.contains("quota") || field.contains("orphan")) {
                    continue;
                }
                let image = copy_of(&clean);
                image.debugfs(&format!("ssv {field} {ino}"));
                keeps_all(&image, &format!("{options}: {field} {ino}"));
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

fn report(image: &Image, threads: usize, findings: usize) -> Report {
    let options = Options { threads, findings, ..Options::default() };
    lanefs_check::check(image.device(), &options, &|_| {}).expect("a superblock")
}
