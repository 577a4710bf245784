//! Directory hashes, with values that debugfs computes.

use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::hash::{HashVersion, MAX_MAJOR, NameBytes, NameHash, NameHasher};

const LONG: &[u8] = b"a_rather_long_name_of_more_than_thirty_two_bytes_to_take_two_rounds.txt";
const FULL: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";
const UTF8: &[u8] = b"caf\xc3\xa9";
const HIGH: &[u8] = b"\xff\xfe\x80zzzzz";

fn check(
    version: HashVersion,
    bytes: NameBytes,
    seed: [u32; 4],
    name: &[u8],
    major: u32,
    minor: u32,
) {
    let hash = NameHasher { version, bytes, seed, folding: Folding::None }.hash(name);
    assert_eq!(
        (hash.major, hash.minor),
        (major, minor),
        "{version:?} {bytes:?} {}",
        name.escape_ascii()
    );
}

#[test]
fn names_hash_as_debugfs_hashes_them() {
    use HashVersion::*;
    use NameBytes::*;
    let plain = [0; 4];
    for bytes in [Signed, Unsigned] {
        check(Legacy, bytes, plain, b"hello.txt", 0x65a0_5776, 0);
        check(HalfMd4, bytes, plain, b"hello.txt", 0xa26e_1d86, 0x133b_3f98);
        check(Tea, bytes, plain, b"hello.txt", 0x5107_c3f2, 0x0384_0cb7);
        check(Legacy, bytes, plain, b"a", 0xe74b_53e2, 0);
        check(HalfMd4, bytes, plain, b"a", 0xd5fa_7d7a, 0xacb4_8187);
        check(Tea, bytes, plain, b"a", 0x6d0e_a4c0, 0xc189_22df);
        check(Legacy, bytes, plain, LONG, 0xfe22_e9ca, 0);
        check(HalfMd4, bytes, plain, LONG, 0xb425_efb0, 0xcbd8_3da1);
        check(Tea, bytes, plain, LONG, 0x295c_b35c, 0x4a39_7a01);
        check(Legacy, bytes, plain, FULL, 0x8be2_2c02, 0);
        check(HalfMd4, bytes, plain, FULL, 0x1964_3b1a, 0xdde3_a0bf);
        check(Tea, bytes, plain, FULL, 0xe78c_76dc, 0x94dd_872b);
    }
}

#[test]
fn bytes_above_127_hash_by_sign_as_debugfs_hashes_them() {
    use HashVersion::*;
    use NameBytes::*;
    let plain = [0; 4];
    check(Legacy, Signed, plain, UTF8, 0x96ca_5a2c, 0);
    check(HalfMd4, Signed, plain, UTF8, 0xfb9c_5e5c, 0x0573_e8b8);
    check(Tea, Signed, plain, UTF8, 0x1058_42ea, 0xfb91_65ca);
    check(Legacy, Unsigned, plain, UTF8, 0x6dde_4230, 0);
    check(HalfMd4, Unsigned, plain, UTF8, 0x9d72_aed6, 0xf613_8c6a);
    check(Tea, Unsigned, plain, UTF8, 0x6621_f032, 0xf866_99c6);
    check(Legacy, Signed, plain, HIGH, 0xaf04_e090, 0);
    check(HalfMd4, Signed, plain, HIGH, 0x0e32_1228, 0x95fd_c8ed);
    check(Tea, Signed, plain, HIGH, 0x2a76_a8e6, 0x21db_db96);
    check(Legacy, Unsigned, plain, HIGH, 0x01f3_7d3a, 0);
    check(HalfMd4, Unsigned, plain, HIGH, 0x1fb4_1a1c, 0xc337_8e73);
    check(Tea, Unsigned, plain, HIGH, 0x0469_8c98, 0x704a_4ced);
}

#[test]
fn a_seed_changes_half_md4_and_tea() {
    // debugfs takes the seed as a UUID: 00112233-4455-6677-8899-aabbccddeeff.
    let seed = [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc];
    check(HashVersion::HalfMd4, NameBytes::Signed, seed, b"hello.txt", 0xfd21_d2d0, 0x1502_7261);
    check(HashVersion::Tea, NameBytes::Signed, seed, b"hello.txt", 0x0392_5122, 0x4873_0c90);
}

#[test]
fn a_folded_name_has_the_hash_of_its_form() {
    let (version, bytes, seed) = (HashVersion::HalfMd4, NameBytes::Signed, [0; 4]);
    let hasher = NameHasher { version, bytes, seed, folding: Folding::Lenient };
    // From debugfs -R "dx_hash -h half_md4 -c -e utf8 NAME"; the folded form of the last name
    // is empty.
    for (name, major, minor) in [
        ("ABC", 0xd196_a868, 0xc420_eb28),
        ("aBc\u{200d}", 0xd196_a868, 0xc420_eb28),
        ("\u{200d}", 0xefcd_ab88, 0x98ba_dcfe),
    ] {
        assert_eq!(hasher.hash(name.as_bytes()), NameHash { major, minor }, "{name}");
    }
}

#[test]
fn no_name_hashes_to_the_end_of_the_directory() {
    let hasher = NameHasher {
        version: HashVersion::Legacy,
        bytes: NameBytes::Signed,
        seed: [0; 4],
        folding: Folding::None,
    };
    for i in 0..100_000u32 {
        let hash = hasher.hash(&i.to_le_bytes());
        assert!(hash.major < MAX_MAJOR && hash.major & 1 == 0);
    }
}
