use super::*;
use proptest::prelude::*;

const BYTES: usize = 1024;

fn expected(depth: u16) -> Expected {
    Expected { position: NodePosition::Depth(depth), range: 10..1000, space: 2..5000 }
}

fn extent(start: u32, len: u32, block: u64, state: State) -> Extent {
    Extent { start: FileBlock(start), len, block: Block(block), state }
}

fn leaf() -> Node {
    let extents = vec![
        extent(10, 5, 100, State::Written),
        extent(15, 1, 2, State::Unwritten),
        extent(900, 100, 4900, State::Written),
    ];
    Node { depth: 0, max: 84, generation: 7, entries: Entries::Leaf(extents) }
}

fn index() -> Node {
    let children = vec![
        Index { start: FileBlock(10), child: Block(77) },
        Index { start: FileBlock(999), child: Block(4999) },
    ];
    Node { depth: 2, max: 84, generation: 0, entries: Entries::Index(children) }
}

fn bytes(node: &Node) -> Vec<u8> {
    let mut bytes = vec![0xee; BYTES];
    node.encode_into(&mut bytes);
    bytes
}

/// Returns the error with which `node` is refused after `change` was made to its bytes.
fn broken(node: &Node, change: impl FnOnce(&mut [u8])) -> Cause {
    let mut bytes = bytes(node);
    change(&mut bytes);
    Node::decode(&bytes, &expected(node.depth)).expect_err("it was broken")
}

fn put16(at: usize, value: u16) -> impl FnOnce(&mut [u8]) {
    move |bytes| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes())
}

fn put32(at: usize, value: u32) -> impl FnOnce(&mut [u8]) {
    move |bytes| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
}

#[test]
fn encoded_values_decode_to_the_same() {
    for node in [leaf(), index()] {
        assert_eq!(Node::decode(&bytes(&node), &expected(node.depth)), Ok(node));
    }
}

#[test]
fn the_empty_root_is_a_leaf_without_entries() {
    let node = Node { depth: 0, max: ROOT_ENTRIES, generation: 0, entries: Entries::Leaf(vec![]) };
    let mut bytes = [0xee; ROOT_BYTES];
    node.encode_into(&mut bytes);
    assert_eq!(EMPTY_ROOT, bytes);
}

#[test]
fn the_longest_extents_of_both_states_have_a_form() {
    let extents =
        vec![extent(0, 32768, 9, State::Written), extent(40000, 32767, 9, State::Unwritten)];
    let node = Node { depth: 0, max: 4, generation: 0, entries: Entries::Leaf(extents) };
    let mut bytes = [0; ROOT_BYTES];
    node.encode_into(&mut bytes);
    let expected = Expected { position: NodePosition::Root, range: 0..END, space: 1..1 << 40 };
    assert_eq!(Node::decode(&bytes, &expected), Ok(node));
}

#[test]
fn a_block_number_of_48_bits_survives() {
    let block = 0xabcd_1234_5678;
    let node = Node {
        depth: 0,
        max: 4,
        generation: 0,
        entries: Entries::Leaf(vec![extent(0, 1, block, State::Written)]),
    };
    let mut bytes = [0; ROOT_BYTES];
    node.encode_into(&mut bytes);
    let expected = Expected { position: NodePosition::Root, range: 0..END, space: 1..1 << 48 };
    assert_eq!(Node::decode(&bytes, &expected), Ok(node));
}

#[test]
fn each_broken_header_field_is_named() {
    assert_eq!(broken(&leaf(), put16(0, 0xf30b)), Cause::Magic { magic: 0xf30b });
    assert_eq!(broken(&leaf(), put16(2, 85)), Cause::Entries { entries: 85, max: 84 });
    assert_eq!(broken(&leaf(), put16(4, 85)), Cause::Max { max: 85, fits: 84 });
    assert_eq!(broken(&leaf(), put16(4, 0)), Cause::Max { max: 0, fits: 84 });
    assert_eq!(broken(&leaf(), put16(6, 1)), Cause::Depth { depth: 1, expected: 0 });
    assert_eq!(broken(&index(), put16(6, 6)), Cause::TooDeep { depth: 6, max: 5 });
    assert_eq!(broken(&index(), put16(2, 0)), Cause::EmptyIndex);
    assert_eq!(Node::decode(&[0; 11], &expected(0)), Err(Cause::Short { len: 11 }));
}

#[test]
fn each_broken_extent_is_named() {
    let at = |block| FileBlock(block);
    assert_eq!(
        broken(&leaf(), put32(12, 11)),
        Cause::FirstEntry { start: at(11), expected: at(10) }
    );
    assert_eq!(broken(&leaf(), put16(16, 0)), Cause::EmptyExtent { start: at(10) });
    assert_eq!(broken(&leaf(), put32(24, 14)), Cause::Order { start: at(15 - 1) });
    assert_eq!(broken(&leaf(), put16(40, 101)), Cause::Range { start: at(900), to: at(1000) });
    assert_eq!(
        broken(&leaf(), put32(36, u32::MAX)),
        Cause::Range { start: at(u32::MAX), to: at(1000) }
    );
    let target = |block, len, start| Cause::Target { start: at(start), block: Block(block), len };
    assert_eq!(broken(&leaf(), put32(20, 1)), target(1, 5, 10));
    assert_eq!(broken(&leaf(), put32(44, 4901)), target(4901, 100, 900));
    assert_eq!(broken(&leaf(), put16(18, 0xffff)), target(0xffff_0000_0064, 5, 10));
}

#[test]
fn each_broken_index_entry_is_named() {
    let at = |block| FileBlock(block);
    assert_eq!(
        broken(&index(), put32(12, 9)),
        Cause::FirstEntry { start: at(9), expected: at(10) }
    );
    assert_eq!(broken(&index(), put32(24, 10)), Cause::Order { start: at(10) });
    assert_eq!(broken(&index(), put32(24, 1000)), Cause::Range { start: at(1000), to: at(1000) });
    assert_eq!(
        broken(&index(), put32(28, 5000)),
        Cause::Target { start: at(999), block: Block(5000), len: 1 }
    );
}

#[test]
fn an_empty_leaf_is_accepted() {
    let mut bytes = bytes(&leaf());
    put16(2, 0)(&mut bytes);
    let node = Node::decode(&bytes, &expected(0)).expect("the kernel reads it too");
    assert!(node.entries.is_empty());
}

#[test]
fn a_sealed_node_verifies_and_each_flipped_bit_of_it_does_not() {
    let mut bytes = bytes(&leaf());
    seal(&mut bytes, Seed::from_raw(0x1234));
    assert_eq!(verify(&bytes, Seed::from_raw(0x1234)), Ok(()));
    assert!(matches!(verify(&bytes, Seed::from_raw(0x1235)), Err(Cause::Checksum { .. })));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&bytes, Seed::from_raw(0x1234)).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn the_checksum_moves_with_the_room() {
    let node = Node { max: 5, ..leaf() };
    let mut bytes = bytes(&node);
    seal(&mut bytes, Seed::START);
    assert_eq!(verify(&bytes, Seed::START), Ok(()));
    assert_ne!(bytes[12 + 5 * 12..][..4], [0; 4]);
    assert_eq!(bytes[12 + 5 * 12 + 4..], [0; BYTES - 12 - 5 * 12 - 4]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), root: bool, depth in 0u16..7) {
        let _ = verify(&bytes, Seed::START);
        for _ in 0..2 {
            let position = if root { NodePosition::Root } else { NodePosition::Depth(depth) };
            let _ = Node::decode(&bytes, &Expected { position, range: 0..END, space: 0..u64::MAX });
            // The second attempt has a valid header, so that the decoder reaches the entries.
            if bytes.len() >= 12 {
                let max = capacity(bytes.len());
                put16(0, MAGIC)(&mut bytes);
                put16(2, max)(&mut bytes);
                put16(4, max)(&mut bytes);
                put16(6, depth)(&mut bytes);
            }
        }
    }

    #[test]
    fn decoded_bytes_survive_encoding(
        tail in prop::collection::vec(any::<u8>(), 48),
        entries in 0u16..5,
        depth in 0u16..2,
    ) {
        let mut bytes = [0; ROOT_BYTES];
        bytes[12..].copy_from_slice(&tail);
        for entry in bytes[12..].chunks_exact_mut(12) {
            entry[1] = 0; // a small number as the first entry's start; otherwise the entries are hardly ever in order
        }
        put16(0, MAGIC)(&mut bytes);
        put16(2, entries)(&mut bytes);
        put16(4, 4)(&mut bytes);
        put16(6, depth)(&mut bytes);
        let expected = Expected { position: NodePosition::Root, range: 0..END, space: 0..u64::MAX };
        if let Ok(node) = Node::decode(&bytes, &expected) {
            let mut again = [0; ROOT_BYTES];
            node.encode_into(&mut again);
            prop_assert_eq!(Node::decode(&again, &expected), Ok(node));
        }
    }
}
