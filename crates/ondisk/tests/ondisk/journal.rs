//! Tests with logs that the kernel and debugfs wrote.

use crate::image;

use crate::image::{Image, mount};
use lanefs_ondisk::jbd2::{
    self, BlockKind, Commit, Header, Image as LogImage, JournalSuperblock, LogChecksums, Revokes,
    TagFlags, Tags, TransactionChecksum, encode_descriptor, encode_revoke,
};
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Block, BlockSize};
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// Returns the block size, and the contents of the journal file as debugfs dumps them.
fn journal_file(image: &Image) -> (BlockSize, Vec<u8>) {
    let superblock = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path().join("image"), folder.path().join("journal"));
    fs::write(&path, &image.bytes).expect("the image");
    let dumped = Command::new("debugfs")
        .args(["-R", &format!("dump <8> {}", file.display())])
        .arg(&path)
        .output()
        .expect("debugfs");
    assert!(dumped.status.success());
    (superblock.geometry().block_size(), fs::read(file).expect("the journal"))
}

/// The program that wrote the log. Unlike the kernel, debugfs leaves garbage in the unused bytes of
/// tags, and marks no tag as last.
#[derive(PartialEq)]
enum Writer {
    Kernel,
    Debugfs,
}

struct Seen {
    descriptors: usize,
    copies: usize,
    revokes: usize,
    commits: usize,
    escaped: usize,
    format: jbd2::LogFormat,
}

/// Walks the log as recovery does, and encodes every block again from its decoded values.
fn walk(image: &Image, writer: Writer) -> Seen {
    let (size, log) = journal_file(image);
    let block = |at: u32| &log[at as usize * size.bytes()..][..size.bytes()];
    let blocks = (log.len() / size.bytes()) as u32;
    let journal = JournalSuperblock::decode(block(0), size, blocks).expect("journal superblock");
    journal.support().expect("support");
    assert_eq!(journal.encode(), block(0)[..1024], "{}", image.options);
    let format = journal.format();
    let mut seen = Seen { descriptors: 0, copies: 0, revokes: 0, commits: 0, escaped: 0, format };
    let mut at = journal.start().expect("a log to replay");
    let mut sequence = journal.sequence();
    let mut sum = TransactionChecksum::new();
    while let Some(header) = Header::decode(block(at)).filter(|h| h.sequence == sequence) {
        let log_block = block(at);
        at += 1;
        match header.kind {
            BlockKind::Descriptor => {
                sum.add(log_block);
                let plain_tags = |block: &[u8]| -> Vec<jbd2::Tag> {
                    let tags = Tags::decode(block, &format).expect("descriptor");
                    tags.map(|t| jbd2::Tag { flags: t.flags - TagFlags::LAST, ..t }).collect()
                };
                let mut images = Vec::new();
                for tag in Tags::decode(log_block, &format).expect("descriptor") {
                    let copy = block(at);
                    at += 1;
                    sum.add(copy);
                    tag.check(copy, sequence, &format).expect("copy");
                    let flags = tag.flags & TagFlags::ESCAPE;
                    seen.escaped += usize::from(!flags.is_empty());
                    images.push(LogImage { block: tag.block, copy, flags });
                }
                let uuid_at = 12 + tag_size(&format);
                let uuid = log_block[uuid_at..uuid_at + 16].try_into().expect("uuid");
                let made = encode_descriptor(&images, sequence, uuid, &format);
                match writer {
                    Writer::Kernel => assert_eq!(made, log_block),
                    Writer::Debugfs => assert_eq!(plain_tags(&made), plain_tags(log_block)),
                }
                seen.descriptors += 1;
                seen.copies += images.len();
            }
            BlockKind::Revoke => {
                let blocks: Vec<Block> =
                    Revokes::decode(log_block, &format).expect("revokes").collect();
                let made = encode_revoke(&blocks, sequence, &format);
                if writer == Writer::Kernel {
                    assert_eq!(made, log_block);
                }
                let again: Vec<Block> = Revokes::decode(&made, &format).expect("made").collect();
                assert_eq!(again, blocks);
                seen.revokes += blocks.len();
            }
            BlockKind::Commit => {
                let commit = Commit::decode(log_block, &format).expect("commit");
                if let Some(found) = commit.transaction {
                    assert_eq!(found, sum.value(), "checksum of {sequence}");
                }
                assert_eq!(commit.encode(&format), log_block);
                seen.commits += 1;
                sequence = sequence.next();
                sum = TransactionChecksum::new();
            }
            other => panic!("{other:?} in the log"),
        }
    }
    seen
}

fn tag_size(format: &jbd2::LogFormat) -> usize {
    match (format.checksums, format.numbers) {
        (LogChecksums::V3(_), _) => 16,
        (LogChecksums::V2(_), jbd2::BlockNumbers::Bits64) => 14,
        (LogChecksums::V2(_), jbd2::BlockNumbers::Bits32) => 10,
        (_, jbd2::BlockNumbers::Bits64) => 12,
        (_, jbd2::BlockNumbers::Bits32) => 8,
    }
}

/// Changes metadata in many blocks, and frees blocks after they were journaled.
fn busy(root: &Path) -> io::Result<()> {
    let sync = || Command::new("sync").arg("-f").arg(root).status().map(|_| ());
    let folder = root.join("busy");
    fs::create_dir(&folder)?;
    for i in 0..600 {
        fs::write(folder.join(format!("a name that fills the directory {i}")), "x")?;
    }
    sync()?;
    fs::remove_dir_all(&folder)?;
    sync()?;
    // With data=journal, the log also has the contents of this file, which look like log blocks.
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1].repeat(1024);
    fs::write(root.join("magic"), magic)?;
    sync()
}

#[test]
fn logs_of_the_kernel_read_back_and_are_made_again_byte_for_byte() {
    type Check = fn(LogChecksums) -> bool;
    let v3: Check = |c| matches!(c, LogChecksums::V3(_));
    let none: Check = |c| c == LogChecksums::None;
    let transaction: Check = |c| c == LogChecksums::Transaction;
    for (options, size, mount_options, right) in [
        ("-t ext4", "60M", ",data=journal", v3),
        ("-t ext4", "60M", "", v3),
        ("-t ext4 -b 4096 -O ^64bit", "60M", "", v3),
        ("-t ext4 -b 4096 -O ^metadata_csum", "60M", ",data=journal", none),
        ("-t ext4 -O ^metadata_csum,^64bit", "60M", ",journal_checksum", transaction),
        ("-t ext3", "60M", "", none),
    ] {
        let Some(image) = image::make(options, size) else { return };
        let Some(image) = mount::with_log(image, mount_options, busy) else { return };
        let seen = walk(&image, Writer::Kernel);
        let counts = (seen.descriptors, seen.copies, seen.revokes, seen.commits, seen.escaped);
        println!("{options}: {counts:?}");
        assert!(right(seen.format.checksums), "{options}: {:?}", seen.format);
        assert!(seen.copies > 20 && seen.commits >= 2, "{options}");
        // With data=journal, the kernel writes no revokes for the blocks that `busy` frees.
        if mount_options == ",data=journal" {
            assert!(seen.escaped > 0, "{options}");
        } else {
            assert!(seen.revokes > 0, "{options}");
        }
    }
}

#[test]
fn logs_of_debugfs_read_back_and_are_made_again_byte_for_byte() {
    for (options, journal_options) in [
        ("-t ext4 -b 1024", "-c -v 2"),
        ("-t ext4 -b 4096", "-c -v 3"),
        // The block size is not 1 KiB: with 1 KiB, debugfs ends a descriptor block while one more
        // tag would fit, and marks no tag as last. Even debugfs itself misreads such a block during
        // recovery.
        ("-t ext4 -b 4096 -O ^64bit", "-c -v 2"),
        ("-t ext4 -b 4096 -O ^64bit,^metadata_csum", ""),
    ] {
        let Some(image) = image::make(options, "60M") else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let (content, script) = (folder.path().join("content"), folder.path().join("script"));
        let size = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
        let size = size.geometry().block_size().bytes();
        // The second block starts with the magic number, so its copy has to be escaped.
        let mut blocks = vec![7; size * 200];
        blocks[size..size + 4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
        fs::write(&content, blocks).expect("content");
        fs::write(
            &script,
            format!(
                "jo {journal_options}\njw -b 5000-5199 {0}\njw -r 5003,5005-5300\njc\n",
                content.display()
            ),
        )
        .expect("script");
        fs::write(&path, &image.bytes).expect("the image");
        let output = Command::new("debugfs").args(["-w", "-f"]).args([&script, &path]).output();
        let output = output.expect("debugfs");
        let image = Image { options: options.into(), bytes: fs::read(&path).expect("image") };
        let seen = walk(&image, Writer::Debugfs);
        let counts = (seen.copies, seen.revokes, seen.commits, seen.escaped);
        assert_eq!(counts, (200, 297, 2, 1), "{options} {:?}: {output:?}", seen.format);
    }
}

#[test]
fn the_journal_of_mke2fs_is_the_one_made_here() {
    for image in image::all() {
        let superblock = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
        if superblock.journal().is_none() {
            continue;
        }
        let (size, log) = journal_file(&image);
        let blocks = (log.len() / size.bytes()) as u32;
        let made = JournalSuperblock::new(size, blocks, superblock.uuid());
        assert_eq!(made.encode(), log[..1024], "{}", image.options);
    }
}
