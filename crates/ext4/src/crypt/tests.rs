//! Tests with known answers: names and contents that Linux 6.18 encrypted. The bytes of the master
//! key are 0, 1, 2, ... 63.

use super::*;
use lanefs_ondisk::hash::NameHash;
use sha2::{Digest, Sha256};

/// The nonce of the directory with the encrypted names.
const DIRECTORY: &str = "7be83c95ac1a7d0ada45cd54a9fa6f13";
/// The nonce of the file with the encrypted contents.
const FILE: &str = "96a99e8221989b6f157b9388a68644df";
/// The encrypted form of a name of 255 letters "f".
const LONGEST: &str = "\
    8a112c014c58352520a681bc1fb9e4fc2cde51098a208bb4a0d6a589c4dd33ada22a77ce\
    6a7516d822392f6c4bf5c8bec67c90a4b3c70d35e59694a29891e434ac1ddbccf22257f5\
    7eeecf641feced904a769b5f809add715b95ba4326cab83aea14c92a3aeb0955e22c803c\
    ffe95320525e72d1c9bab58cda890fabb9ba02c30be18fd47e994df33c6afc51bb1d6276\
    31ef90381e691ec8d50eb0b4f967151934206c32482c3ab5ffb8230d25f57b37d4afab95\
    9965ec45ecf5c3435362066fc123156e07c01a4f125bd2e2906688450a53f3dd42d39eef\
    4df55552e41791d8c57a636795add4db86121087bd950e053b6a56950192674678381693\
    4b85e3";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(text).collect()
}

fn key() -> MasterKey {
    MasterKey::new(&(0..64).collect::<Vec<u8>>()).unwrap()
}

fn policy() -> Policy {
    Policy {
        contents_mode: Policy::AES_256_XTS,
        names_mode: Policy::AES_256_CTS,
        flags: 0,
        log2_data_unit: 0,
        key: KeyName::Identifier(*key().identifier()),
    }
}

fn crypt(nonce: &str, file_type: FileType, policy: Policy) -> InodeCrypt {
    let nonce = bytes(nonce).try_into().unwrap();
    InodeCrypt::new(Context { policy, nonce }, file_type, &[key()])
}

#[test]
fn a_key_has_the_identifier_that_the_kernel_gives_it() {
    assert_eq!(key().identifier(), &*bytes("8699c2c53707405da5aba5ae4d8583c0"));
}

#[test]
fn keys_of_other_lengths_are_refused_and_no_key_is_shown() {
    for len in [0, 31, 65] {
        assert_eq!(MasterKey::new(&vec![1; len]).err(), Some(BadKey::Length { len }));
    }
    assert_eq!(format!("{:?}", key()), "MasterKey { .. }");
}

#[test]
fn names_are_encrypted_as_the_kernel_encrypts_them() {
    let crypt = crypt(DIRECTORY, FileType::Directory, policy());
    let names = crypt.names().unwrap();
    for (name, encrypted) in [
        ("a".to_string(), "1d84ef8713c95d16f192b2ee875c0a9c"),
        ("b".repeat(16), "0329aa11e572b17e54ddb9b7292b9988"),
        ("c".repeat(17), "98df18234b28758a9b4a1a8f379fd0290484996b"),
        ("d".repeat(32), "7e9c0c6c8d5b26affaa73516bb6398f8c125b2b9146766495d5710c900306570"),
        ("f".repeat(255), LONGEST),
    ] {
        assert_eq!(names.encrypt(name.as_bytes(), 255), Some(bytes(encrypted)), "{name}");
        assert_eq!(names.decrypt(&bytes(encrypted)), Some(name.into_bytes()));
    }
    assert_eq!(names.encrypt(&[b'x'; 256], 255), None);
    assert_eq!(names.decrypt(&[0; 15]), None);
}

#[test]
fn names_of_every_length_return_with_every_padding() {
    for flags in 0..4 {
        let crypt = crypt(DIRECTORY, FileType::Directory, Policy { flags, ..policy() });
        let names = crypt.names().unwrap();
        for len in 1..=255 {
            let name: Vec<u8> = (1..=len).map(|n| n as u8).collect();
            let encrypted = names.encrypt(&name, 255).unwrap();
            assert!(encrypted.len() == 255 || encrypted.len().is_multiple_of(4 << flags));
            assert_eq!(names.decrypt(&encrypted), Some(name), "{len} {flags}");
        }
    }
}

#[test]
fn contents_are_encrypted_as_the_kernel_encrypts_them() {
    let crypt = crypt(FILE, FileType::Regular, policy());
    let contents = crypt.contents().unwrap();
    let plain: Vec<u8> = (0..8192u32).map(|n| (n * 7) as u8).collect();
    let mut both = plain.clone();
    contents.encrypt(0, 4096, &mut both);
    let digest = "bd72326bc369c4d7eb36f90005afae21b01efd2fbb00f8216578a807d5cf21d0";
    assert_eq!(Sha256::digest(&both).to_vec(), bytes(digest));
    // A block is encrypted to the same bytes whether alone or together with others.
    let mut second = plain[4096..].to_vec();
    contents.encrypt(1, 4096, &mut second);
    assert_eq!(second, both[4096..]);
    contents.decrypt(0, 4096, &mut both);
    assert_eq!(both, plain);
}

#[test]
fn texts_for_names_without_key_are_those_of_the_kernel() {
    let name = bytes("1d84ef8713c95d16f192b2ee875c0a9c");
    let hash = NameHash { major: 0xac66_e20c, minor: 0x5654_788c };
    let text = NoKeyName::encode(hash, &name);
    assert_eq!(text, b"DOJmrIx4VFYdhO-HE8ldFvGSsu6HXAqc");
    assert_eq!(NoKeyName::decode(&text), Some(NoKeyName::Whole(name)));

    let hash = NameHash { major: 0x4617_69e0, minor: 0xcac9_5fb9 };
    let text = NoKeyName::encode(hash, &bytes(LONGEST));
    let expected = "\
        4GkXRrlfycqKESwBTFg1JSCmgbwfueT8LN5RCYogi7Sg1qWJxN0zraIqd85qdRbYIjkvbEv1\
        yL7GfJCks8cNNeWWlKKYkeQ0rB3bzPIiV_V-7s9kH-ztkEp2m1-Amt1xW5W6QybKuDrqFMkq\
        OusJVeIsgDz_6VMgUl5y0cm6tYzaiQ-ruboCwwvhj9R-mU3zPGr8UbsdYnYx75A4HorHzQ2d\
        bp4bpPwagZhN1H23Z203fd256o2o1SOS_sna";
    assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
    let name = NoKeyName::decode(&text).unwrap();
    assert!(matches!(name, NoKeyName::Long { major: 0x4617_69e0, .. }));
    let mut encrypted = bytes(LONGEST);
    assert!(name.is_of(&encrypted));
    encrypted[254] ^= 1;
    assert!(!name.is_of(&encrypted));
    assert!(!name.is_of(&encrypted[..100]));
}

#[test]
fn only_whole_texts_stand_for_names() {
    let text = NoKeyName::encode(NameHash { major: 2, minor: 4 }, &[7; 150]);
    assert_eq!(text.len(), 252);
    for wrong in
        [&text[..251], &text[..11], b"", b"A", b"a name", b"AAAAAAAAAAAB!", b"AAAAAAAAAAAB="]
    {
        assert_eq!(NoKeyName::decode(wrong), None, "{}", wrong.escape_ascii());
    }
    // A single character after the last group of four is ignored if its bits are zero. But a text
    // that exceeds the largest length is refused.
    assert!(NoKeyName::decode(b"AAAAAAAAAAAAA").is_some());
    assert!(NoKeyName::decode(&[&text[..], b"A"].concat()).is_none());
    // Bits at the end of the last character that do not fill a byte must be zero.
    assert!(NoKeyName::decode(b"AAAAAAAAAAAA").is_some());
    assert!(NoKeyName::decode(b"AAAAAAAAAAAAAB").is_none());
}

#[test]
fn the_key_of_an_unsupported_policy_is_missing_and_the_reason_is_named() {
    let reason = |policy| crypt(FILE, FileType::Regular, policy).contents().err();
    for (policy, what) in [
        (Policy { key: KeyName::Descriptor([0; 8]), ..policy() }, "has version 1"),
        (Policy { contents_mode: 9, ..policy() }, "encrypts contents by Adiantum"),
        (Policy { names_mode: 10, ..policy() }, "encrypts names by AES-256-HCTR2"),
        (Policy { flags: 4, ..policy() }, "has the flag DIRECT_KEY"),
        (Policy { log2_data_unit: 9, ..policy() }, "encrypts parts of blocks"),
    ] {
        assert_eq!(reason(policy), Some(MissingKey::Policy { what }));
    }
    let identifier = [1; 16];
    let other = Policy { key: KeyName::Identifier(identifier), ..policy() };
    assert_eq!(reason(other), Some(MissingKey::NotGiven { identifier }));
}
