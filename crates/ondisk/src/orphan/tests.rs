use super::*;
use crate::types::BlockSize;

fn seed() -> OrphanSeed {
    OrphanSeed::new(Checksums::All { seed: Seed::from_raw(7) }, Ino(12), 3)
}

fn block() -> OrphanBlock {
    let mut block = OrphanBlock::empty(BlockSize::new(1024).unwrap());
    block.slots[3] = 99;
    block
}

#[test]
fn a_block_reads_back() {
    let bytes = block().encode(Block(5), seed());
    assert_eq!(bytes.len(), 1024);
    let read = OrphanBlock::decode(&bytes, Block(5), seed()).unwrap();
    assert_eq!(read, block());
    assert_eq!(read.orphans().collect::<Vec<_>>(), [(3, Ino(99))]);
    assert_eq!(read.slots.len(), 254);
}

#[test]
fn a_block_of_another_place_is_corruption() {
    let bytes = block().encode(Block(5), seed());
    let error = OrphanBlock::decode(&bytes, Block(6), seed()).unwrap_err();
    assert!(matches!(error, Cause::Checksum { .. }));
}

#[test]
fn a_block_of_another_file_is_corruption() {
    let bytes = block().encode(Block(5), seed());
    let other = OrphanSeed::new(Checksums::All { seed: Seed::from_raw(7) }, Ino(12), 4);
    let error = OrphanBlock::decode(&bytes, Block(5), other).unwrap_err();
    assert!(matches!(error, Cause::Checksum { .. }));
}

#[test]
fn a_block_without_magic_is_corruption() {
    let mut bytes = block().encode(Block(5), seed());
    bytes[1016] ^= 1;
    let error = OrphanBlock::decode(&bytes, Block(5), seed()).unwrap_err();
    assert!(matches!(error, Cause::Magic { .. }));
    let error = OrphanBlock::decode(&bytes[..7], Block(5), seed()).unwrap_err();
    assert_eq!(error, Cause::Length { len: 7 });
}

#[test]
fn without_checksums_only_the_magic_counts() {
    let seed = OrphanSeed::new(Checksums::None, Ino(12), 3);
    let bytes = block().encode(Block(5), seed);
    assert_eq!(OrphanBlock::decode(&bytes, Block(99), seed), Ok(block()));
}

#[test]
fn a_block_changed_as_bytes_is_the_block_changed_as_slots() {
    let size = BlockSize::new(1024).unwrap();
    let mut block = OrphanBlock::empty(size);
    let mut bytes = block.encode(Block(7), seed());
    assert_eq!(free_slot(&bytes), Some(0));
    set_slot(&mut bytes, 0, Some(Ino(12)));
    set_slot(&mut bytes, 1, Some(Ino(13)));
    set_slot(&mut bytes, 0, None);
    set_slot(&mut bytes, 1 << 40, Some(Ino(14)));
    seal(&mut bytes, Block(7), seed());
    block.slots[1] = 13;
    assert_eq!(bytes, block.encode(Block(7), seed()));
    assert_eq!(free_slot(&bytes), Some(0));
}
