use super::*;
use proptest::prelude::*;

const SET: Uuid = Uuid([7; 16]);

fn expected() -> Expected {
    Expected { set: SET, sync_size: 45056, space: 4096 }
}

fn good() -> RawHeader {
    Header::new(SET, 45056, 65536).raw
}

fn cause(change: impl FnOnce(&mut RawHeader)) -> Cause {
    let mut raw = good();
    change(&mut raw);
    Header::decode(raw.as_bytes(), &expected()).expect_err("refused")
}

#[test]
fn each_broken_field_has_its_own_cause() {
    assert_eq!(cause(|raw| raw.magic.set(1)), Cause::NotABitmap);
    for version in [0, 3, 5, 6] {
        assert_eq!(cause(|raw| raw.version.set(version)), Cause::BitmapVersion { version });
    }
    assert!(matches!(cause(|raw| raw.uuid[3] ^= 1), Cause::Uuid { .. }));
    for bytes in [0, 256, 65537] {
        assert_eq!(cause(|raw| raw.chunksize.set(bytes)), Cause::BitmapChunk { bytes });
    }
    let found = cause(|raw| raw.sync_size.set(45057));
    assert_eq!(found, Cause::SyncSize { found: 45057, expected: 45056 });
    let found = cause(|raw| raw.chunksize.set(512));
    assert_eq!(found, Cause::BitmapSpace { bits: 45056, bytes: 4096 });
    assert!(matches!(Header::decode(&[0; 255], &expected()), Err(Cause::Length { len: 255 })));
}

#[test]
fn the_last_bit_may_stand_for_less_than_a_chunk() {
    let header = Header::new(SET, 45056, 65536);
    assert_eq!((header.bits(), header.bit_bytes()), (352, 44));
    assert_eq!(Header::new(SET, 45057, 65536).bits(), 353);
}

#[test]
fn a_stale_bitmap_says_so_until_it_is_made_fresh() {
    let mut raw = good();
    raw.state.set(STALE);
    let mut header = Header::decode(raw.as_bytes(), &expected()).unwrap();
    assert!(header.is_stale());
    header.set_fresh();
    assert!(!Header::decode(&header.encode(), &expected()).unwrap().is_stale());
}

proptest! {
    #[test]
    fn accepted_bitmaps_are_kept_byte_for_byte(
        tail in proptest::collection::vec(any::<u8>(), HEADER_SIZE - 60),
        events: u64,
        cleared: u64,
    ) {
        let mut raw = good();
        raw.as_mut_bytes()[60..].copy_from_slice(&tail);
        raw.events.set(events);
        raw.events_cleared.set(cleared);
        let header = Header::decode(raw.as_bytes(), &expected()).unwrap();
        prop_assert_eq!(&header.encode()[..], raw.as_bytes());
        prop_assert_eq!((header.events(), header.events_cleared()), (events, cleared));
    }

    #[test]
    fn no_bytes_make_decoding_panic(at in 0usize..HEADER_SIZE, value: u8, space: u64, sync_size: u64) {
        let mut raw = good();
        raw.as_mut_bytes()[at] = value;
        let _ = Header::decode(raw.as_bytes(), &Expected { set: SET, sync_size, space });
    }
}
