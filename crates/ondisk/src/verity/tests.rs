use super::*;

fn blocks_of(bytes: u32) -> BlockSize {
    BlockSize::new(bytes).unwrap()
}

fn method(algorithm: Algorithm, bits: u8) -> Method {
    Method::new(algorithm, bits, b"salt", blocks_of(4096)).unwrap()
}

fn encoded(size: u64) -> Vec<u8> {
    let method = method(Algorithm::Sha256, 12);
    Descriptor::new(method, size, &[7; 32]).unwrap().encode().to_vec()
}

fn decode(bytes: &[u8], size: u64) -> Result<Descriptor, Cause> {
    Descriptor::decode(bytes, size, blocks_of(4096))
}

#[test]
fn a_descriptor_comes_back_and_its_signature_is_left_out() {
    let bytes = encoded(5000);
    let mut signed = [&bytes[..], b"signature"].concat();
    signed[4] = 9;
    let found = decode(&signed, 5000).unwrap();
    assert_eq!(found.encode(), bytes);
    assert_eq!((found.root_hash(), found.method().salt()), (&[7; 32][..], &b"salt"[..]));
    assert_eq!(found.tree().blocks_in(0), 2);
}

#[test]
fn every_wrong_field_of_a_descriptor_is_damage() {
    let changed = |at: usize, to: u8| {
        let mut bytes = encoded(5000);
        bytes[at] = to;
        decode(&bytes, 5000).unwrap_err()
    };
    assert_eq!(changed(0, 2), Cause::Version { version: 2 });
    assert_eq!(changed(1, 3), Cause::Algorithm { number: 3 });
    for bits in [0, 9, 13, 64, 255] {
        assert_eq!(changed(2, bits), Cause::BlockSize { bits });
    }
    assert_eq!(changed(3, 33), Cause::SaltSize { size: 33 });
    assert_eq!(changed(4, 1), Cause::SignatureSize { size: 1 });
    assert_eq!(changed(15, 1), Cause::DataSize { described: 5000 | 1 << 56, size: 5000 });
    assert_eq!(changed(255, 1), Cause::Reserved);
    let bytes = encoded(5000);
    assert_eq!(decode(&bytes[..255], 5000).unwrap_err(), Cause::DescriptorSize { size: 255 });
    assert_eq!(decode(&bytes, 5001).unwrap_err(), Cause::DataSize { described: 5000, size: 5001 });
}

#[test]
fn the_blocks_of_a_tree_are_counted_from_the_top() {
    // A block has 128 hashes, so the tree has 1 + 2 + 129 blocks.
    let tree = Tree::new(((129 << 7) - 5) << 12, &method(Algorithm::Sha256, 12)).unwrap();
    let counts: Vec<u64> = (0..=4).map(|level| tree.blocks_in(level)).collect();
    assert_eq!(counts, [(129 << 7) - 5, 129, 2, 1, 0]);
    assert_eq!((tree.levels(), tree.bytes()), (3, 132 << 12));
    let place = |parent, stored, offset| Some(Child { parent, stored, offset });
    assert_eq!(tree.child(0, 0), place(0, 3, 0));
    assert_eq!(tree.child(0, 129), place(1, 4, 32));
    assert_eq!(tree.child(1, 128), place(1, 2, 0));
    assert_eq!(tree.child(2, 1), place(0, 0, 32));
    assert_eq!(tree.child(3, 0), None);
}

#[test]
fn a_file_of_one_block_has_no_tree_and_too_many_levels_are_refused() {
    let levels =
        |size, algorithm, bits| Tree::new(size, &method(algorithm, bits)).map(|tree| tree.levels());
    assert_eq!(levels(0, Algorithm::Sha256, 12), Ok(0));
    assert_eq!(levels(4096, Algorithm::Sha256, 12), Ok(0));
    assert_eq!(levels(4097, Algorithm::Sha256, 12), Ok(1));
    // A block of 1 KiB has 16 hashes, so 8 levels are enough for 16^8 blocks, which are 2^42 bytes.
    assert_eq!(levels(1 << 42, Algorithm::Sha512, 10), Ok(8));
    assert_eq!(levels((1 << 42) + 1, Algorithm::Sha512, 10), Err(Cause::Levels));
    assert_eq!(levels(u64::MAX, Algorithm::Sha256, 10), Err(Cause::Levels));
}

#[test]
fn the_tail_is_found_where_it_was_put() {
    for (bytes, size) in [(1024, 1), (4096, 0), (4096, 65536), (65536, 65537)] {
        let block_size = blocks_of(bytes);
        let method = Method::new(Algorithm::Sha512, 10, b"", block_size).unwrap();
        let descriptor = Descriptor::new(method, size, &[1; 64]).unwrap();
        let tail = encode_tail(&descriptor, block_size);
        let tree = descriptor.tree().bytes().next_multiple_of(u64::from(bytes));
        let end = tree_start(size) + tree + tail.len() as u64;
        let at = size_place(size, end).unwrap();
        let place = descriptor_place(size, at, 256, block_size).unwrap();
        assert_eq!(place.start, tree_start(size) + tree, "{bytes}, {size}");
        assert_eq!(&tail[tail.len() - 4..], &256u32.to_le_bytes());
    }
}

#[test]
fn a_size_that_leads_out_of_the_tail_is_damage() {
    let place = |at, len| descriptor_place(5, at, len, blocks_of(4096));
    assert_eq!(place(69_628, 255), Err(Cause::DescriptorSize { size: 255 }));
    assert_eq!(place(200_000, 16385), Err(Cause::DescriptorSize { size: 16385 }));
    assert_eq!(place(100, 256), Err(Cause::DescriptorSize { size: 256 }));
    assert_eq!(place(69_628, 4093), Err(Cause::DescriptorPlace { at: 61440, tree: 65536 }));
    for end in [0, 3, 65536, 65539] {
        assert_eq!(size_place(5, end), Err(Cause::NoBlocks));
    }
    assert_eq!(size_place(u64::MAX, u64::MAX), Err(Cause::NoBlocks));
}
