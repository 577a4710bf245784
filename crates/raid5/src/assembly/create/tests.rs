//! Tests of `create.rs`.

use super::*;

fn options(consistency: NewConsistency, chunk: u64) -> CreateOptions {
    CreateOptions {
        set: Uuid([1; 16]),
        devices: Vec::new(),
        name: "host:name".into(),
        layout: Layout::LeftSymmetric,
        chunk,
        consistency,
        size: None,
        parity: InitialParity::Right,
        missing: None,
    }
}

#[test]
fn everything_goes_where_mdadm_puts_it() {
    // Each line has the values of an array in `testdata`. mdadm created these arrays.
    for (consistency, mib, chunk, data_offset, size, bad_blocks) in [
        (NewConsistency::Bitmap(None), 24, 512, 4096, 45056, 16),
        (NewConsistency::PartialParity, 24, 512, 6144, 43008, 2056),
        (NewConsistency::PartialParity, 14, 64, 4096, 24576, 2056),
        (NewConsistency::Resync, 8, 64, 2048, 14336, 16),
    ] {
        let plan = Areas::new(mib << 20, &options(consistency, chunk << 10)).unwrap();
        let seen = (plan.data_offset, plan.size, plan.bad_blocks);
        assert_eq!(seen, (data_offset, size, bad_blocks), "{consistency:?} {mib} MiB");
    }
}

#[test]
fn members_that_are_too_small_are_refused_with_the_needed_size() {
    let options = options(NewConsistency::PartialParity, 512 << 10);
    assert_eq!(Areas::new(3 << 20, &options), Err((6144 + 1024) * 512));
    assert!(Areas::new(4 << 20, &options).is_ok());
    let asked = CreateOptions { size: Some(64 << 20), ..options };
    assert_eq!(Areas::new(4 << 20, &asked), Err((64 << 20) + (6144 << 9)));
}

#[test]
fn the_bitmaps_chunk_grows_until_its_bits_fit() {
    let options = options(NewConsistency::Bitmap(None), 512 << 10);
    let plan = Areas::new(16 << 40, &options).unwrap();
    let header = plan.bitmap(&options, None).unwrap();
    assert_eq!(header.chunk(), 64 << 20);
    assert!(plan.bitmap(&options, Some(4096)).is_err());
    assert!(plan.bitmap(&options, Some(5000)).is_err());
    let plan = Areas::new(24 << 20, &options).unwrap();
    assert_eq!(plan.bitmap(&options, Some(65536)).unwrap().bits(), 352);
}
