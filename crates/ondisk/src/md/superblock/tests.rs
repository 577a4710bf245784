use super::*;
use proptest::prelude::*;

const LEN: u64 = 24 << 20;

fn array() -> NewArray<'static> {
    NewArray {
        set: Uuid([3; 16]),
        name: "host:name",
        time: 1_700_000_000_123_456,
        layout: 2,
        size: 40960,
        chunk: 1024,
        members: 4,
        features: Features::MULTIPLE_PPLS,
        resync_from: None,
    }
}

fn device() -> Device {
    let uuid = Uuid([9; 16]);
    Device { uuid, number: 2, data_offset: 6144, data_size: 43008, bad_blocks: 2056, ppl: 2048 }
}

fn good() -> Superblock {
    Superblock::new(&array(), &device())
}

/// Damages one part of a superblock with `change`, and corrects the checksum. Returns the cause of
/// the error with which the superblock is refused.
fn cause(change: impl FnOnce(&mut Superblock)) -> Cause {
    let mut superblock = good();
    change(&mut superblock);
    Superblock::decode(&superblock.encode(), LEN).expect_err("refused")
}

#[test]
fn a_new_superblock_is_read_back_with_every_fact() {
    let read = Superblock::decode(&good().encode(), LEN).unwrap();
    read.support().unwrap();
    assert_eq!(read.name(), "host:name");
    assert_eq!((read.created(), read.updated()), (1_700_000_000, 1_700_000_000));
    assert_eq!((read.level(), read.layout(), read.members()), (5, 2, 4));
    assert_eq!((read.size(), read.chunk()), (40960, 1024));
    assert_eq!(read.data(), Area { offset: 6144 * 512, len: 43008 * 512 });
    assert_eq!(read.ppl(), Some(Area { offset: 8192, len: 1 << 20 }));
    assert_eq!(read.bad_block_log(), Some(Area { offset: 2064 * 512, len: 4096 }));
    assert_eq!(read.bitmap_offset(), None);
    assert_eq!((read.number(), read.role()), (2, Role::Active(2)));
    assert_eq!(read.roles(), [0, 1, 2, 3].map(Role::Active));
    assert_eq!((read.resync_from(), read.recovery()), (None, Recovery::InSync));
    assert_eq!(read.encode(), good().encode());
}

#[test]
fn each_broken_field_has_its_own_cause() {
    assert_eq!(cause(|s| s.raw.magic.set(1)), Cause::NotASuperblock);
    assert_eq!(cause(|s| s.raw.major_version.set(0)), Cause::Version { major: 0 });
    let found = cause(|s| s.raw.super_offset.set(0));
    assert_eq!(found, Cause::SuperOffset { found: 0, expected: 8 });
    assert_eq!(cause(|s| s.raw.max_dev.set(0)), Cause::MaxDev { found: 0 });
    assert_eq!(cause(|s| s.raw.max_dev.set(1921)), Cause::MaxDev { found: 1921 });
    assert_eq!(cause(|s| s.raw.pad0.set(1)), Cause::NotZero { field: "pad0" });
    assert_eq!(cause(|s| s.raw.pad3[27] = 1), Cause::NotZero { field: "pad3" });
    let found = cause(|s| s.raw.logical_block_size.set(513));
    assert_eq!(found, Cause::LogicalBlock { bytes: 513 });
    assert_eq!(cause(|s| s.raw.chunksize.set(24)), Cause::Chunk { sectors: 24 });
    assert_eq!(cause(|s| s.raw.chunksize.set(4)), Cause::Chunk { sectors: 4 });
    assert_eq!(cause(|s| s.raw.chunksize.set(65536)), Cause::Chunk { sectors: 65536 });
    assert_eq!(cause(|s| s.raw.layout.set(6)), Cause::Layout { level: 5, layout: 6 });
    assert_eq!(cause(|s| s.raw.raid_disks.set(1)), Cause::RaidDisks { count: 1 });
    assert_eq!(cause(|s| s.raw.raid_disks.set(129)), Cause::RaidDisks { count: 129 });
    assert_eq!(cause(|s| s.roles[7] = 4), Cause::RoleNumber { role: 4, count: 4 });
    let found = cause(|s| (s.roles[7], s.roles[9]) = (3, 3));
    assert_eq!(found, Cause::RoleTwice { role: 3, first: 7, second: 9 });
    assert_eq!(cause(|s| s.raw.dev_number.set(128)), Cause::DeviceNumber { number: 128, max: 128 });
    assert_eq!(cause(|s| s.raw.bblog_shift = 33), Cause::BadBlockShift { shift: 33 });
}

#[test]
fn an_array_of_which_md_replaces_a_member_is_refused_by_name() {
    // Only the new device has the feature; the superblocks of all members list both devices.
    let mut superblock = good();
    superblock.roles[7] = 3;
    let decoded = Superblock::decode(&superblock.encode(), LEN).unwrap();
    let refused = decoded.support().unwrap_err();
    assert!(refused.to_string().contains("a replacement under way"), "{refused}");
}

#[test]
fn areas_are_within_the_member_and_apart() {
    let data = |found| matches!(found, Cause::DataArea { .. });
    assert!(data(cause(|s| s.raw.data_size.set(9))));
    assert!(data(cause(|s| s.raw.data_size.set(43009))));
    assert!(data(cause(|s| s.raw.data_size.set(u64::MAX))));
    assert!(data(cause(|s| s.raw.data_offset.set(15))));
    assert_eq!(cause(|s| s.raw.size.set(43009)), Cause::Used { used: 43009, sectors: 43008 });
    let area = |found, name| matches!(found, Cause::Area { what, .. } if what == name);
    for (offset, size) in [(7u16, 2048u32), (0, 2048), (8, 7), (5000, 2048), (0x8000, 8)] {
        let word = u32::from(offset) | size << 16;
        assert!(area(cause(|s| s.raw.bitmap_offset.set(word)), "a partial parity log"), "{offset}");
    }
    for offset in [1, 6135, -9, i32::MIN, i32::MAX] {
        assert!(area(cause(|s| s.raw.bblog_offset.set(offset)), "a bad-block log"), "{offset}");
    }
    for offset in [0, 7, 6136, -9] {
        let broken = |s: &mut Superblock| {
            s.raw.feature_map.set(1);
            s.raw.bitmap_offset.set(offset as u32);
        };
        assert!(area(cause(broken), "a bitmap"), "{offset}");
    }
}

#[test]
fn a_bitmap_ends_where_the_next_area_begins() {
    let mut superblock = good();
    superblock.raw.feature_map.set(1);
    superblock.raw.bitmap_offset.set(8);
    assert_eq!(superblock.bitmap(LEN), Some(Area { offset: 8192, len: 2048 * 512 }));
    superblock.raw.bblog_size.set(0);
    assert_eq!(superblock.bitmap(LEN), Some(Area { offset: 8192, len: 6128 * 512 }));
}

#[test]
fn logs_and_bitmaps_exclude_each_other() {
    for bits in [1024 | 1, 2048 | 1, 1024 | 2048, 1024 | 512, 2048 | 512] {
        assert!(matches!(cause(|s| s.raw.feature_map.set(bits)), Cause::Features { .. }), "{bits}");
    }
}

#[test]
fn other_levels_and_features_are_refused_by_name() {
    let support = |change: &dyn Fn(&mut Superblock)| {
        let mut superblock = good();
        change(&mut superblock);
        let read = Superblock::decode(&superblock.encode(), LEN).expect("valid");
        read.support().expect_err("refused").what
    };
    for (level, name) in [
        (0, "raid0"),
        (1, "raid1"),
        (4, "raid4"),
        (6, "raid6"),
        (10, "raid10"),
        (-1, "linear"),
        (-4, "multipath"),
    ] {
        let what = support(&|s| s.raw.level.set(level));
        assert_eq!(what, format!("level {name} (only raid5 is)"));
    }
    for (bit, name) in [
        (4, "an active reshape"),
        (16, "a replacement under way"),
        (32, "a backwards reshape"),
        (64, "a moving data area"),
        (256, "a clustered array"),
        (4096, "a raid0 layout"),
        (8192, "unknown feature 0x2000"),
        (1 << 31, "unknown feature 0x80000000"),
    ] {
        assert_eq!(support(&|s| s.raw.feature_map.set(2048 | bit)), name);
    }
    assert_eq!(support(&|s| s.raw.feature_map.set(512)), "a journal device");
}

#[test]
fn every_flipped_bit_is_found() {
    let good = good().encode();
    for at in 0..(HEAD + 2 * NEW_DEVICES) * 8 {
        let mut bad = good;
        bad[at / 8] ^= 1 << (at % 8);
        assert!(Superblock::decode(&bad, LEN).is_err(), "bit {at}");
    }
}

#[test]
fn an_odd_number_of_roles_is_summed_whole() {
    let mut superblock = good();
    superblock.raw.max_dev.set(5);
    superblock.roles.truncate(5);
    let bytes = superblock.encode();
    Superblock::decode(&bytes, LEN).unwrap();
    let mut bad = bytes;
    bad[HEAD + 8] ^= 1;
    assert!(matches!(Superblock::decode(&bad, LEN), Err(Cause::Checksum { .. })));
}

#[test]
fn a_member_adopts_the_fields_of_the_array_and_keeps_its_own() {
    let mut fresh = good();
    fresh.set_events(77);
    fresh.set_resync_from(Some(0));
    fresh.set_role_of(1, Role::Faulty);
    let mut stale = Superblock::new(
        &array(),
        &Device { number: 3, data_offset: 8192, data_size: 40960, ..device() },
    );
    stale.set_recovery(Recovery::Below(88));
    stale.set_bad_blocks(BadBlocks::Some);
    stale.adopt(&fresh);
    assert_eq!((stale.events(), stale.resync_from()), (77, Some(0)));
    assert_eq!(stale.role_of(1), Role::Faulty);
    assert_eq!((stale.number(), stale.data().offset), (3, 8192 * 512));
    assert_eq!(stale.recovery(), Recovery::Below(88));
    assert!(stale.features().contains(Features::BAD_BLOCKS));
}

#[test]
fn uuids_are_read_as_mdadm_and_others_write_them() {
    let uuid = Uuid([
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0,
    ]);
    assert_eq!(uuid.to_string(), "11223344:55667788:99aabbcc:ddeeff00");
    assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
    assert_eq!(Uuid::parse("11223344-5566-7788-99AA-BBCCDDEEFF00"), Some(uuid));
    assert_eq!(Uuid::parse("11223344"), None);
    assert_eq!(Uuid::parse("11223344:55667788:99aabbcc:ddeeff0011"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(
        changes in proptest::collection::vec((0usize..SUPERBLOCK_SIZE, any::<u8>()), 1..20),
        len: u64,
    ) {
        let mut bytes = good().encode();
        for (at, value) in changes {
            bytes[at] = value;
        }
        // The checksum is corrected, because otherwise decoding would end at the check of the
        // checksum.
        let (raw, roles) = RawSuperblock::read_from_prefix(&bytes).unwrap();
        let roles = roles.chunks_exact(2).map(|r| u16::from_le_bytes([r[0], r[1]]));
        let roles = roles.take(raw.max_dev.get() as usize).collect();
        let broken = Superblock { raw, roles };
        if let Ok(read) = Superblock::decode(&broken.encode(), len) {
            let _ = (read.support(), read.bitmap(len), read.ppl(), read.roles(), read.role());
            prop_assert_eq!(&read.encode()[..], &broken.encode()[..]);
        }
    }
}
