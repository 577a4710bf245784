use super::*;
use crate::checksum::Seed;
use crate::dirent::{self, DirFormat, NameForm};
use crate::hash::HashVersion;
use crate::types::{BlockSize, FileBlock, Ino};

fn format() -> DirFormat {
    DirFormat {
        block_size: BlockSize::new(1024).expect("a block size"),
        has_file_types: true,
        has_checksums: true,
        has_large_dirs: false,
        inodes: 5000,
        names: NameForm::Plain,
    }
}

fn entries(count: u32) -> Vec<IndexEntry> {
    (0..count).map(|i| IndexEntry { hash: i * 1000, block: FileBlock(i + 1) }).collect()
}

fn sample() -> Vec<u8> {
    new_root(&format(), Ino(12), Ino(2), HashVersion::HalfMd4, 0, &entries(4)).expect("it fits")
}

#[test]
fn a_root_has_the_bytes_that_the_kernel_writes() {
    let block = sample();
    assert_eq!(block[12..24], [2, 0, 0, 0, 0xf4, 3, 2, 2, b'.', b'.', 0, 0]);
    assert_eq!(block[24..32], [0, 0, 0, 0, 1, 8, 0, 0]);
    assert_eq!(block[32..48], [123, 0, 4, 0, 1, 0, 0, 0, 0xe8, 3, 0, 0, 2, 0, 0, 0]);
    let root = root(&format(), &block).expect("sound");
    assert_eq!(
        (root.version, root.levels, root.ino, root.parent),
        (HashVersion::HalfMd4, 0, Ino(12), Ino(2))
    );
    assert_eq!(root.index.iter().collect::<Vec<_>>(), entries(4));
}

#[test]
fn limits_leave_room_for_the_tail() {
    assert_eq!((Kind::Root.limit(&format()), Kind::Node.limit(&format())), (123, 126));
    let plain = DirFormat { has_checksums: false, ..format() };
    assert_eq!((Kind::Root.limit(&plain), Kind::Node.limit(&plain)), (124, 127));
    assert!(new_node(&format(), &entries(126)).is_some());
    assert!(new_node(&format(), &entries(127)).is_none());
    assert!(new_node(&format(), &[]).is_none());
}

#[test]
fn a_search_finds_the_last_entry_that_is_not_above() {
    let block = new_node(&format(), &entries(5)).expect("it fits");
    let index = node(&format(), &block).expect("sound");
    let found = [0, 999, 1000, 1001, 3999, 4000, u32::MAX].map(|hash| index.search(hash));
    assert_eq!(found, [0, 0, 1, 1, 3, 4, 4]);
}

#[test]
fn every_broken_field_is_its_cause() {
    let cause = |at: usize, byte: u8| {
        let mut block = sample();
        block[at] = byte;
        root(&format(), &block).map(|_| ()).expect_err("broken")
    };
    assert_eq!(cause(0, 0), Cause::NotRoot);
    assert_eq!(cause(16, 0xf0), Cause::NotRoot);
    assert_eq!(cause(24, 1), Cause::NotRoot);
    assert_eq!(cause(28, 3), Cause::HashVersion { found: 3 });
    assert_eq!(cause(29, 9), Cause::InfoLength { found: 9 });
    assert_eq!(cause(30, 2), Cause::Levels { found: 2, allowed: 1 });
    assert_eq!(cause(31, 1), Cause::Flags { found: 1 });
    assert_eq!(cause(32, 124), Cause::Limit { expected: 123, found: 124 });
    assert_eq!(cause(34, 0), Cause::Count { count: 0, limit: 123 });
    assert_eq!(cause(34, 124), Cause::Count { count: 124, limit: 123 });
    assert_eq!(node(&format(), &sample()).map(|_| ()), Err(Cause::NotNode));
    let large = DirFormat { has_large_dirs: true, ..format() };
    let mut block = sample();
    block[31] = 0xfe;
    assert!(root(&format(), &block).is_ok(), "flags without a meaning");
    block[30] = 2;
    assert!(root(&large, &block).is_ok());
}

#[test]
fn roots_nodes_and_leaves_are_distinguished() {
    let node = new_node(&format(), &entries(3)).expect("it fits");
    assert_eq!(shape(&format(), &node), Some(Kind::Node));
    assert_eq!(shape(&format(), &sample()), Some(Kind::Root));
    assert_eq!(shape(&format(), &dirent::new_directory(&format(), Ino(12), Ino(2))), None);
    assert_eq!(shape(&format(), &dirent::pack(&format(), &[]).expect("empty")), None);
}

#[test]
fn a_checksum_covers_the_entries_in_use() {
    let seed = Seed::from_raw(9);
    for (kind, block) in
        [(Kind::Root, sample()), (Kind::Node, new_node(&format(), &entries(4)).expect("it fits"))]
    {
        let mut block = block;
        seal(&format(), kind, seed, &mut block).expect("sound");
        verify(&format(), kind, seed, &block).expect("sealed");
        assert!(verify(&format(), kind, Seed::from_raw(8), &block).is_err());
        for at in [0, 36, 39, 1016, 1020] {
            block[at] ^= 1;
            assert!(verify(&format(), kind, seed, &block).is_err(), "{kind:?} byte {at}");
            block[at] ^= 1;
        }
        block[1000] ^= 1;
        verify(&format(), kind, seed, &block).expect("what is not in use is not covered");
    }
}
