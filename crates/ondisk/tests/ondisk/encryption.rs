//! Encryption contexts.

use lanefs_ondisk::encryption::{Context, KeyName, Policy};
use lanefs_ondisk::inode::Cause;

fn context(key: KeyName) -> Context {
    let policy = Policy { contents_mode: 1, names_mode: 4, flags: 2, log2_data_unit: 0, key };
    Context { policy, nonce: *b"0123456789abcdef" }
}

#[test]
fn contexts_of_both_versions_have_their_lengths_and_return_unchanged() {
    for (key, len) in [(KeyName::Descriptor([7; 8]), 28), (KeyName::Identifier([9; 16]), 40)] {
        let bytes = context(key).encode();
        assert_eq!(bytes.len(), len);
        assert_eq!(Context::decode(&bytes), Ok(context(key)));
    }
}

#[test]
fn a_context_of_another_length_or_version_is_damage() {
    let bytes = context(KeyName::Identifier([9; 16])).encode();
    for len in 0..bytes.len() {
        assert!(Context::decode(&bytes[..len]).is_err(), "{len}");
    }
    let unknown = [&[3], &bytes[1..]].concat();
    assert_eq!(Context::decode(&unknown), Err(Cause::EncryptionContext { version: 3, len: 40 }));
}

#[test]
fn reserved_bytes_that_are_not_zero_are_damage() {
    for at in 5..8 {
        let mut bytes = context(KeyName::Identifier([9; 16])).encode();
        bytes[at] = 1;
        let refused = Context::decode(&bytes);
        assert!(matches!(refused, Err(Cause::ReservedEncryption { .. })), "{refused:?}");
    }
}

#[test]
fn a_policy_is_shown_with_its_modes_and_its_key() {
    let shown = context(KeyName::Descriptor([0xab; 8])).policy.to_string();
    assert_eq!(
        shown,
        "version 1, contents AES-256-XTS, names AES-256-CTS, padding 16, flags 0x2, key \
         abababababababab"
    );
}

#[test]
fn two_bits_of_the_flags_select_the_padding() {
    let padding = |flags| Policy { flags, ..context(KeyName::Descriptor([0; 8])).policy }.padding();
    assert_eq!([0, 1, 2, 3, 0xfc].map(padding), [4, 8, 16, 32, 4]);
}
