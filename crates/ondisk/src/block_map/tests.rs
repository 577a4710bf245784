use super::*;

fn size(bytes: u32) -> BlockSize {
    BlockSize::new(bytes).expect("a block size")
}

#[test]
fn the_pointers_of_an_inode_follow_each_other() {
    let places: Vec<_> = (10..15).map(|index| root_place(size(1024), index)).collect();
    assert_eq!(places, [(0, 10), (0, 11), (1, 12), (2, 12 + 256), (3, 12 + 256 + 65536)]);
    assert_eq!(mappable(size(1024)), 12 + 256 + 65536 + (1 << 24));
    assert_eq!(mappable(size(65536)), u64::from(END));
}

#[test]
fn the_largest_sizes_are_those_of_the_kernel() {
    let counted =
        |bytes: u32, sectors: u64| max_file_size(size(bytes), sectors * 512 / u64::from(bytes));
    let narrow = u32::MAX.into();
    assert_eq!(counted(1024, narrow), 17_247_252_480);
    assert_eq!(counted(2048, narrow), 275_415_851_008);
    assert_eq!(counted(4096, narrow), 2_196_873_666_560);
    let wide = (1 << 48) - 1;
    assert_eq!(counted(1024, wide), 17_247_252_480);
    assert_eq!(counted(4096, wide), 4_402_345_721_856);
}

fn root_with(index: usize, pointer: u32) -> [u8; ROOT_BYTES] {
    let mut bytes = [0; ROOT_BYTES];
    bytes[index * 4..][..4].copy_from_slice(&pointer.to_le_bytes());
    bytes
}

#[test]
fn every_check_has_its_cause() {
    let space = 1..100;
    let root = |index, pointer| {
        Pointers::decode_root(&root_with(index, pointer), size(1024), &space).unwrap_err()
    };
    let target = |start, block| Cause::Target { start: FileBlock(start), block: Block(block) };
    assert_eq!(root(3, 100), target(3, 100));
    assert_eq!(root(13, u32::MAX), target(268, u32::MAX.into()));
    let expected = Expected { start: 268, depth: 1, space: space.clone() };
    let mut bytes = vec![0; 1024];
    let decode = |bytes: &[u8], expected: &Expected| {
        Pointers::decode(bytes, size(1024), expected).unwrap_err()
    };
    assert_eq!(decode(&bytes[1..], &expected), Cause::Length { len: 1023 });
    bytes[8] = 100;
    assert_eq!(decode(&bytes, &expected), target(268 + 512, 100));
    bytes[8] = 99;
    let beyond = Expected { start: u64::from(END) - 512, ..expected };
    assert_eq!(decode(&bytes, &beyond), Cause::Range { start: END.into() });
}

#[test]
fn pointers_are_decoded_as_they_were_encoded() {
    let mut pointers = Pointers(vec![None; ROOT_POINTERS]);
    pointers.0[2] = Some(Block(7));
    pointers.0[14] = Some(Block(u32::MAX.into()));
    let mut bytes = [1; ROOT_BYTES];
    pointers.encode_into(&mut bytes);
    let again = Pointers::decode_root(&bytes, size(4096), &(1..BLOCKS_END));
    assert_eq!(again, Ok(pointers));
}
