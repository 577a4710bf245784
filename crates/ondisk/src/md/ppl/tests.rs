use super::*;
use proptest::prelude::*;

fn sample() -> Header {
    let entry =
        |at| Entry { data_sector: at, pp_size: 4096, data_size: 8192, parity_disk: 2, checksum: 7 };
    Header { signature: 0x1234, generation: 9, entries: vec![entry(8), entry(800)] }
}

fn bytes(header: &Header) -> [u8; HEADER_SIZE] {
    let mut block = [0; HEADER_SIZE];
    header.encode_into(&mut block);
    block
}

#[test]
fn every_flipped_bit_is_found() {
    let good = bytes(&sample());
    for at in 0..HEADER_SIZE * 8 {
        let mut bad = good;
        bad[at / 8] ^= 1 << (at % 8);
        assert!(Header::decode(&bad, 0x1234).is_err(), "bit {at}");
    }
}

#[test]
fn a_header_of_another_array_is_not_accepted() {
    assert_eq!(Header::decode(&bytes(&sample()), 1), Err(Cause::NotALog));
    assert_eq!(Header::decode(&[0; 100], 0x1234), Err(Cause::Length { len: 100 }));
}

#[test]
fn too_many_entries_are_refused_even_under_a_right_checksum() {
    let mut block = bytes(&sample());
    let (raw, _) = RawHeader::mut_from_prefix(&mut block).unwrap();
    raw.entries_count.set(149);
    raw.checksum.set(header_checksum(raw));
    assert_eq!(Header::decode(&block, 0x1234), Err(Cause::EntryCount { count: 149 }));
}

#[test]
fn the_span_counts_the_header_and_all_partial_parities() {
    assert_eq!(sample().span(), 3 * 4096);
    assert_eq!(Header::empty(1).span(), 4096);
}

proptest! {
    #[test]
    fn headers_are_read_back(
        generation: u64,
        entries in proptest::collection::vec(any::<(u64, u32, u32, u32, u32)>(), 0..=MAX_ENTRIES),
    ) {
        let entries = entries.into_iter().map(
            |(data_sector, pp_size, data_size, parity_disk, checksum)| Entry {
                data_sector, pp_size, data_size, parity_disk, checksum,
            });
        let header = Header { signature: 5, generation, entries: entries.collect() };
        prop_assert_eq!(Header::decode(&bytes(&header), 5), Ok(header));
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let _ = Header::decode(&bytes, 5);
    }
}
