//! Tests with members of arrays that Linux's md wrote.

use crate::archive;

use lanefs_ondisk::md::{self, Recovery, Role, Superblock, Uuid, bitmap, ppl};
use std::path::{Path, PathBuf};

/// Returns the path and the bytes of each member in `archive`, an archive in `raid5/testdata`.
fn unpack(archive: &str) -> Option<Vec<(PathBuf, Vec<u8>)>> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../raid5/testdata");
    let (_folder, paths) = archive::unpack(&testdata, archive)?;
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a member");
        (path, bytes)
    };
    Some(paths.into_iter().map(read).collect())
}

fn superblock(member: &[u8]) -> Superblock {
    let read = Superblock::decode(&member[4096..8192], member.len() as u64).expect("a superblock");
    read.support().expect("support");
    assert_eq!(read.encode()[..512], member[4096..4608], "made again");
    read
}

#[test]
fn superblocks_of_the_kernel_are_read_and_made_again_byte_for_byte() {
    let Some(members) = unpack("layouts") else { return };
    assert_eq!(members.len(), 30);
    for (at, (path, member)) in members.iter().enumerate() {
        let read = superblock(member);
        assert_eq!(read.layout() as usize, at / 5, "{path:?}");
        assert_eq!(read.role(), Role::Active((at % 5) as u16), "{path:?}");
        assert_eq!((read.members(), read.chunk()), (5, 128));
    }
}

#[test]
fn the_kernels_bitmap_is_read_and_made_again_byte_for_byte() {
    let Some(members) = unpack("bitmap") else { return };
    for (path, member) in &members {
        let read = superblock(member);
        assert_eq!(read.set(), Uuid::parse("11111111:22222222:33333333:4444b1b1").expect("uuid"));
        assert_eq!((read.events(), read.resync_from()), (21, None));
        assert_eq!(read.recovery(), Recovery::InSync);
        assert_eq!(read.roles()[3], Role::Spare, "the last member was a spare once");
        assert_eq!(read.roles()[4], Role::Active(3));
        let area = read.bitmap(member.len() as u64).expect("a bitmap");
        assert_eq!((area.offset, area.len), (8192, 4096));
        let expected =
            bitmap::Expected { set: read.set(), sync_size: read.size(), space: area.len };
        let header = bitmap::Header::decode(&member[8192..], &expected).expect("a bitmap");
        assert_eq!((header.events(), header.events_cleared()), (21, 18), "{path:?}");
        assert_eq!((header.bits(), header.chunk(), header.is_stale()), (352, 65536, false));
        assert_eq!(header.encode(), member[8192..8448]);
        let log = read.bad_block_log().expect("a log");
        let log = &member[log.offset as usize..][..log.len as usize];
        assert!(md::bad_blocks::decode(log, read.bad_block_shift()).expect("a log").is_empty());
    }
}

#[test]
fn the_kernels_partial_parity_logs_are_read_and_made_again_byte_for_byte() {
    let (mut headers, mut entries) = (0, 0);
    for archive in ["ppl", "dirty-ppl"] {
        let Some(members) = unpack(archive) else { return };
        for (path, member) in &members {
            let read = superblock(member);
            let area = read.ppl().expect("a log");
            let signature = ppl::signature(read.set());
            let mut at = area.offset as usize;
            while let Ok(header) = ppl::Header::decode(&member[at..], signature) {
                let mut made = [0; ppl::HEADER_SIZE];
                header.encode_into(&mut made);
                assert_eq!(made, member[at..at + ppl::HEADER_SIZE], "{path:?}");
                let mut parity = at + ppl::HEADER_SIZE;
                for entry in &header.entries {
                    let bytes = &member[parity..][..entry.pp_size as usize];
                    assert_eq!(ppl::checksum(bytes), entry.checksum, "{path:?}");
                    parity += bytes.len();
                    entries += 1;
                }
                headers += 1;
                at += header.span() as usize;
            }
        }
    }
    println!("{headers} headers, {entries} entries");
    assert!(headers > 40 && entries > 40);
}
