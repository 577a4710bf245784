use super::*;

/// Tests the table in the documentation.
#[test]
fn every_range_of_the_documented_table_decodes() {
    for (extra_bits, lower, secs) in [
        (0, 0x8000_0000, -0x8000_0000),
        (0, 0xffff_ffff, -1),
        (0, 0x0000_0000, 0),
        (0, 0x7fff_ffff, 0x7fff_ffff),
        (1, 0x8000_0000, 0x8000_0000),
        (1, 0x7fff_ffff, 0x1_7fff_ffff),
        (2, 0x8000_0000, 0x1_8000_0000),
        (3, 0x7fff_ffff, 0x3_7fff_ffff_i64),
    ] {
        let time = time_of(lower, extra_bits | 999_999_999 << 2);
        assert_eq!(time, Time { secs, nanos: 999_999_999 });
        assert_eq!(
            (low_word(time, true), extra_word(time)),
            (lower, extra_bits | 999_999_999 << 2)
        );
    }
}

#[test]
fn times_out_of_range_become_the_nearest() {
    let far = Time { secs: i64::MAX, nanos: 0 };
    assert_eq!(time_of(low_word(far, true), extra_word(far)).secs, MAX);
    assert_eq!(time_of(low_word(far, false), 0).secs, i32::MAX.into());
    let past = Time { secs: i64::MIN, nanos: 0 };
    assert_eq!(time_of(low_word(past, true), extra_word(past)).secs, MIN);
}

#[test]
fn the_nearest_time_is_stored_as_it_is() {
    let secs = [i64::MIN, MIN - 1, MIN, 0, i32::MAX.into(), 1 << 31, MAX, MAX + 1, i64::MAX];
    for secs in secs {
        let time = Time { secs, nanos: 5 };
        let wide = nearest_time(time, true);
        assert_eq!(time_of(low_word(wide, true), extra_word(wide)), wide);
        let small = nearest_time(time, false);
        assert_eq!(time_of(low_word(small, false), 0), small);
    }
    assert_eq!(nearest_time(Time { secs: 1 << 31, nanos: 5 }, true).nanos, 5);
}

#[test]
fn device_numbers_survive_both_forms() {
    for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (8, 256), (4095, 0xf_ffff)] {
        let device = DeviceNumber { major, minor };
        let mut block = [7; 60];
        device.encode(&mut block);
        assert_eq!(DeviceNumber::decode(&block), device);
    }
}

#[test]
fn small_numbers_take_the_old_form() {
    let mut block = [0; 60];
    DeviceNumber { major: 8, minor: 1 }.encode(&mut block);
    assert_eq!(block[..8], [1, 8, 0, 0, 0, 0, 0, 0]);
}
