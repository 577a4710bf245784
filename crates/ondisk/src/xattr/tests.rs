use super::*;
use crate::checksum::Seed;
use crate::types::Block;
use crate::xattr::{END, ENTRY, HEADER, entry_hash, signed};

fn user(rest: &[u8]) -> AttributeName<'_> {
    AttributeName { index: AttributeName::USER, rest }
}

fn here<'a>(name: &'a [u8], value: &'a [u8]) -> Attribute<'a> {
    Attribute { name: user(name), value: Value::Here(value) }
}

fn sample() -> Vec<Attribute<'static>> {
    vec![
        here(b"a", b"one"),
        here(b"b", b""),
        here(b"c\xc3\xa9", b"four"),
        Attribute { name: AttributeName::acl_access(), value: Value::Here(b"12345") },
    ]
}

#[test]
fn encoded_attributes_decode() {
    let attributes = sample();
    let block = encode_block(1024, &attributes).expect("it fits");
    let decoded = decode_block(&block).expect("sound");
    assert_eq!((decoded.refcount, decoded.attributes), (1, attributes.clone()));
    let area = encode_inode(160, &attributes).expect("it fits");
    assert_eq!(decode_inode(&area).expect("sound"), attributes);
    assert_eq!(decode_inode(&encode_inode(160, &[]).expect("it fits")).expect("sound"), []);
}

#[test]
fn entries_and_blocks_hash_as_linux_hashed_them() {
    // The bytes are from a block written by Linux 6.18.
    let acl = b"\x01\0\0\0\x01\0\x06\0\x02\0\x07\0\xe8\x03\0\0\x04\0\x04\0\x08\0\x04\0\x05\0\0\0\x10\0\x07\0\x20\0\x04\0";
    let (x, y) = ([b'x'; 300], [b'y'; 200]);
    let attributes = [
        here(b"caf\xc3\xa9", &x),
        Attribute { name: AttributeName::acl_access(), value: Value::Here(acl) },
        Attribute {
            name: AttributeName { index: AttributeName::TRUSTED, rest: b"big" },
            value: Value::Here(&y),
        },
    ];
    let block = encode_block(1024, &attributes).expect("it fits");
    assert_eq!(block[12..16], 0x7897_f8c8_u32.to_le_bytes());
    let front = [
        5, 1, 0xd4, 2, 0, 0, 0, 0, 0x2c, 1, 0, 0, 0x79, 0x7e, 0xb1, 0x78, b'c', b'a', b'f', 0xc3,
        0xa9, 0, 0, 0,
    ];
    assert_eq!(block[32..56], front);
    assert_eq!(block[68..72], 0x03f6_0027_u32.to_le_bytes());
    assert_eq!(block[84..88], 0x0001_8547_u32.to_le_bytes());
}

#[test]
fn blocks_with_signed_hashes_are_accepted() {
    let attributes = [here(b"c\xc3\xa9", b"four")];
    let mut block = encode_block(1024, &attributes).expect("it fits");
    let hash = entry_hash(b"c\xc3\xa9", b"four", signed);
    block[HEADER + 12..HEADER + 16].copy_from_slice(&hash.to_le_bytes());
    decode_block(&block).expect("sound");
    block[HEADER + 12] ^= 1;
    assert!(matches!(decode_block(&block), Err(Cause::Hash { .. })));
}

#[test]
fn too_much_does_not_fit() {
    let value = vec![7; 1024 - HEADER - END - ENTRY - 4];
    assert!(encode_block(1024, &[here(b"a", &value)]).is_some());
    let value = vec![7; value.len() + 1];
    assert!(encode_block(1024, &[here(b"a", &value)]).is_none());
    assert!(encode_inode(3, &[here(b"a", b"")]).is_none());
}

#[test]
fn every_broken_field_is_its_cause() {
    let block = encode_block(1024, &sample()).expect("it fits");
    let cause = |change: fn(&mut [u8])| {
        let mut block = block.clone();
        change(&mut block);
        decode_block(&block).expect_err("broken")
    };
    assert!(matches!(cause(|block| block[0] = 1), Cause::Magic { .. }));
    assert!(matches!(cause(|block| block[8] = 2), Cause::Blocks { found: 2 }));
    assert!(matches!(cause(|block| block[4] = 0), Cause::Unreferenced));
    assert!(matches!(
        cause(|block| block[HEADER] = 0xff),
        Cause::Order { .. } | Cause::NameByte { .. }
    ));
    assert!(matches!(cause(|block| block[HEADER + ENTRY] = 0), Cause::NameByte { offset: HEADER }));
    assert!(matches!(
        cause(|block| block[HEADER + ENTRY] = b'z'),
        Cause::Hash { offset: HEADER, .. }
    ));
    assert!(matches!(cause(|block| block[HEADER + 3] = 0xff), Cause::ValueRange { .. }));
    assert!(matches!(cause(|block| block[HEADER + 11] = 0xff), Cause::ValueRange { .. }));
    // The offset of the first value is set to that of the third value.
    assert!(matches!(
        cause(|block| {
            block[HEADER + 2] -= 4;
            block[HEADER + 12..HEADER + 16].fill(0);
        }),
        Cause::ValueOverlap { .. }
    ));
    assert!(matches!(cause(|block| block[HEADER + 1] = 9), Cause::Order { .. }));
    let full = vec![1u8; 1024 - HEADER];
    let mut endless = block.clone();
    endless[HEADER..].copy_from_slice(&full);
    assert!(matches!(decode_block(&endless), Err(Cause::NoEnd)));
}

#[test]
fn a_checksum_covers_the_place_and_every_byte() {
    let seed = Seed::from_raw(77);
    let mut block = encode_block(1024, &sample()).expect("it fits");
    seal(seed, Block(5), &mut block);
    verify(seed, Block(5), &block).expect("sealed");
    assert!(verify(seed, Block(6), &block).is_err());
    for at in [0, 17, 31, 500, 1023] {
        block[at] ^= 4;
        assert!(verify(seed, Block(5), &block).is_err());
        block[at] ^= 4;
    }
}

#[test]
fn names_are_split_and_joined() {
    for full in
        [&b"user.x"[..], b"trusted.overlay.opaque", b"security.selinux", b"system.posix_acl_access"]
    {
        assert_eq!(AttributeName::parse(full).expect("a name").full().as_deref(), Some(full));
    }
    assert_eq!(AttributeName::parse(b"user."), Err(NameError::Rest));
    assert_eq!(AttributeName::parse(b"system.posix_acl_accessory"), Err(NameError::Rest));
    assert_eq!(AttributeName::parse(b"system.data"), Err(NameError::Prefix));
    assert_eq!(AttributeName::parse(b"nothing"), Err(NameError::Prefix));
    assert_eq!(AttributeName::parse(&[b'x'; 256]), Err(NameError::TooLong));
    assert_eq!(AttributeName { index: 7, rest: b"data" }.full(), None);
}

#[test]
fn arbitrary_bytes_give_errors() {
    let mut state = 1u64;
    for round in 0..20_000 {
        let mut block = encode_block(1024, &sample()).expect("it fits");
        let mut area = encode_inode(160, &sample()).expect("it fits");
        for _ in 0..1 + round % 8 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (at, byte) = ((state >> 40) as usize, (state >> 32) as u8);
            block[if round % 2 == 0 { at % 1024 } else { at % 120 }] = byte;
            area[at % 160] = byte;
        }
        let _ = decode_block(&block);
        let _ = decode_inode(&area);
        let _ = decode_inode(&area[..round % 160]);
    }
}
