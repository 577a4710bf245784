use super::*;
use crate::checksum::Seed;
use crate::types::{BlockSize, FileType, Ino};

fn format(block_size: u32) -> DirFormat {
    DirFormat {
        block_size: BlockSize::new(block_size).expect("a block size"),
        has_file_types: true,
        has_checksums: true,
        has_large_dirs: false,
        inodes: 5000,
        names: NameForm::Plain,
    }
}

fn packed(name: &[u8]) -> Packed<'_> {
    Packed {
        ino: Ino(77),
        file_type: Some(FileType::Symlink),
        name: Name::new(name).expect("a name"),
    }
}

fn names(format: &DirFormat, block: &[u8]) -> Vec<Vec<u8>> {
    let entries = entries(format, block).expect("sound").map(|entry| entry.expect("sound"));
    entries.filter(|entry| entry.ino.is_some()).map(|entry| entry.name.to_vec()).collect()
}

/// Returns a block with "one" at 0, "three" at 12, and free space after them.
fn sample() -> Vec<u8> {
    pack(&format(1024), &[packed(b"one"), packed(b"three")]).expect("it fits")
}

#[test]
fn a_new_directory_has_the_bytes_that_mke2fs_writes() {
    let block = new_directory(&format(1024), Ino(2), Ino(2));
    let dots =
        [2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, 2, 0, 0, 0, 0xe8, 3, 2, 2, b'.', b'.', 0, 0];
    assert_eq!(block[..24], dots);
    assert_eq!(block[1012..], [0, 0, 0, 0, 12, 0, 0, 0xde, 0, 0, 0, 0]);
    let (dot, dot_dot) = dots_of(&block);
    assert_eq!((dot.ino, dot_dot.ino, dot_dot.offset), (Some(Ino(2)), Some(Ino(2)), 12));
}

fn dots_of(block: &[u8]) -> (Entry<'_>, Entry<'_>) {
    dots(&format(1024), block).expect("sound")
}

#[test]
fn entries_go_into_slack_until_there_is_none() {
    for block_size in [1024, 4096, 65536] {
        let format = format(block_size);
        let mut block = vec![0; block_size as usize];
        clear(&format, &mut block);
        let mut count = 0;
        while insert(&format, &mut block, &packed(format!("{count:0>12}").as_bytes()))
            .expect("sound")
            .is_some()
        {
            count += 1;
        }
        assert_eq!(count, format.record_bytes() / 20);
        assert_eq!(names(&format, &block).len(), count);
        let found =
            find(&format, &block, Name::new(b"000000000007").expect("a name")).expect("sound");
        let found = found.expect("there");
        assert_eq!((found.ino, found.file_type), (Some(Ino(77)), Some(FileType::Symlink)));
    }
}

/// Returns the block without the entry at `offset`. The search for the previous record starts at
/// `from`.
fn removed(block: &[u8], from: usize, offset: usize) -> Vec<u8> {
    let mut block = block.to_vec();
    remove(&format(1024), &mut block, from, offset).expect("there");
    block
}

#[test]
fn an_entry_is_removed_although_another_was_added_just_before_it() {
    let format = format(1024);
    let mut block =
        pack(&format, &[b"one", b"two", b"six", b"ten"].map(|name| packed(name))).expect("it fits");
    remove(&format, &mut block, 12, 24).expect("there");
    let sought = find_or_room(&format, &block, packed(b"ten").name);
    let Ok(Sought::Entry { before, .. }) = sought else { panic!("{sought:?}") };
    assert_eq!(before, 12);
    assert_eq!(insert(&format, &mut block, &packed(b"new")), Ok(Some(24)));
    let removed = removed(&block, before, 36);
    assert_eq!(removed, self::removed(&block, 0, 36));
    assert_eq!(names(&format, &removed), [b"one", b"two", b"new"]);
}

#[test]
fn one_pass_finds_an_entry_or_the_first_room() {
    let format = format(1024);
    let mut block = sample();
    for n in 0..100 {
        let name = format!("{n:0>20}");
        let sought = find_or_room(&format, &block, packed(name.as_bytes()).name);
        let room = find_room(&format, &block, &packed(name.as_bytes())).expect("sound");
        assert_eq!(sought, Ok(Sought::Room(room)));
        let Some(room) = room else { return };
        insert_at(&format, &mut block, room, &packed(name.as_bytes()));
        for name in [&b"one"[..], b"three", name.as_bytes()] {
            let name = packed(name).name;
            let found = find(&format, &block, name).expect("sound").expect("it is there");
            let sought = find_or_room(&format, &block, name);
            let Ok(Sought::Entry { entry, before }) = sought else { panic!("{sought:?}") };
            assert_eq!(entry, found);
            assert_eq!(removed(&block, before, found.offset), removed(&block, 0, found.offset));
        }
    }
    panic!("a block of 1 KiB has no room for 100 names");
}

#[test]
fn a_removed_entry_leaves_slack_and_no_trace() {
    let format = format(1024);
    let mut block = sample();
    remove(&format, &mut block, 0, 12).expect("there");
    assert_eq!(names(&format, &block), [b"one"]);
    assert!(!block.windows(5).any(|bytes| bytes == b"three"));
    remove(&format, &mut block, 0, 0).expect("there");
    assert_eq!(names(&format, &block), [b""; 0]);
    assert_eq!(remove(&format, &mut block, 0, 0), Err(Cause::NoRecord { offset: 0 }));
    assert!(insert(&format, &mut block, &packed(b"again")).expect("sound").is_some());
    assert_eq!(names(&format, &block), [b"again"]);
}

#[test]
fn an_entry_can_name_another_inode() {
    let mut block = sample();
    replace(&format(1024), &mut block, 12, Ino(9), FileType::Fifo).expect("there");
    let entry = entry_at(&format(1024), &block, 12).expect("sound");
    assert_eq!(
        (entry.ino, entry.file_type, entry.name),
        (Some(Ino(9)), Some(FileType::Fifo), &b"three"[..])
    );
}

#[test]
fn a_record_that_fills_64_kib_has_a_length_of_its_own() {
    let mut format = format(65536);
    format.has_checksums = false;
    let mut block = vec![0; 65536];
    clear(&format, &mut block);
    assert_eq!(block[4..6], [0xff, 0xff]);
    let entry = entry_at(&format, &block, 0).expect("sound");
    assert_eq!((entry.rec_len, entry.ino), (65536, None));
    block[4..6].fill(0);
    assert_eq!(entry_at(&format, &block, 0).expect("sound").rec_len, 65536);
}

#[test]
fn every_broken_field_is_its_cause() {
    let cause = |at: usize, bytes: &[u8]| {
        let mut block = sample();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let walk = entries(&format(1024), &block)
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(|_| ())));
        walk.expect_err("broken")
    };
    assert_eq!(cause(4, &[8]), Cause::RecordTooShort { offset: 0, rec_len: 8 });
    assert_eq!(cause(6, &[5]), Cause::RecordTooShort { offset: 0, rec_len: 12 });
    assert_eq!(cause(4, &[14]), Cause::RecordUnaligned { offset: 0, rec_len: 14 });
    assert_eq!(cause(16, &[0, 8]), Cause::RecordPastEnd { offset: 12, rec_len: 2048, end: 1012 });
    assert_eq!(cause(16, &[0xe0, 3]), Cause::RecordNearEnd { offset: 12 });
    assert_eq!(cause(12, &[0x89, 0x13]), Cause::InodeRange { offset: 12, ino: 5001, inodes: 5000 });
    assert_eq!(cause(18, &[0]), Cause::NameEmpty { offset: 12 });
    assert_eq!(cause(20, b"t/"), Cause::NameByte { offset: 12 });
    assert_eq!(cause(20, b"t\0"), Cause::NameByte { offset: 12 });
    assert_eq!(cause(1019, &[0]), Cause::NoTail);
    let short = entries(&format(1024), &[0; 100]).expect_err("broken");
    assert_eq!(short, Cause::Length { expected: 1024, found: 100 });
    assert_eq!(dots(&format(1024), &sample()), Err(Cause::NoDots));
}

#[test]
fn a_checksum_is_of_one_inode_and_every_byte() {
    let format = format(1024);
    let seed = Seed::from_raw(3).of_inode(Ino(12), 1);
    let mut block = sample();
    seal(&format, seed, &mut block);
    verify(&format, seed, &block).expect("sealed");
    assert!(verify(&format, Seed::from_raw(3).of_inode(Ino(13), 1), &block).is_err());
    for at in [0, 5, 600, 1011, 1023] {
        block[at] ^= 0x10;
        assert!(verify(&format, seed, &block).is_err());
        block[at] ^= 0x10;
    }
}

#[test]
fn arbitrary_bytes_end_every_walk() {
    let mut state = 7u64;
    for round in 0..20_000usize {
        let mut block = sample();
        for _ in 0..1 + round % 5 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 40) as usize % if round % 2 == 0 { 32 } else { 1024 };
            block[at] = (state >> 32) as u8;
        }
        let format = format(1024);
        if let Ok(walk) = entries(&format, &block) {
            assert!(walk.count() <= 1024 / MIN_RECORD);
        }
        let _ = dots(&format, &block);
        let offset = (state >> 20) as usize % 1100;
        let _ = insert(&format, &mut block.clone(), &packed(b"new"));
        let _ = remove(&format, &mut block.clone(), 0, offset);
        let _ = replace(&format, &mut block, offset, Ino(3), FileType::Regular);
    }
}
