//! Times: 32 bits of seconds, and in larger inodes a word with two more bits and nanoseconds.
//!
//! Source: ext4 disk layout documentation, "Inode Timestamps". The lower word is signed; the two
//! bits add multiples of 2^32 to it.

use crate::types::Time;

const MIN: i64 = i32::MIN as i64;
const MAX: i64 = MIN + (4 << 32) - 1;

/// Decodes a time. A number of nanoseconds above 999,999,999, as in a hostile image, is reduced to
/// 999,999,999.
pub(super) fn join(secs: u32, extra: u32) -> Time {
    let epoch = i64::from(extra & 3) << 32;
    Time { secs: i64::from(secs as i32) + epoch, nanos: (extra >> 2).min(999_999_999) }
}

/// Returns the lower word, which has the lower 32 bits of the seconds. A time that the inode cannot
/// hold is replaced by the nearest time that it can hold.
pub(super) fn low(time: Time, extended: bool) -> u32 {
    let max = if extended { MAX } else { i32::MAX.into() };
    time.secs.clamp(MIN, max) as u32
}

/// Returns the nearest time that the words can express. At the ends of the range the nanoseconds
/// are dropped, as in Linux (observed with 6.18).
pub(super) fn nearest(time: Time, extended: bool) -> Time {
    let max = if extended { MAX } else { i32::MAX.into() };
    let secs = time.secs.clamp(MIN, max);
    let nanos = if !extended || secs == MIN || secs == max { 0 } else { time.nanos };
    Time { secs, nanos: nanos.min(999_999_999) }
}

/// Returns the upper word, which has two more bits of the seconds, and the nanoseconds.
pub(super) fn extra(time: Time) -> u32 {
    let secs = time.secs.clamp(MIN, MAX);
    let epoch = ((secs - i64::from(secs as i32)) >> 32) as u32 & 3;
    time.nanos.min(999_999_999) << 2 | epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the table in the documentation.
    #[test]
    fn every_range_of_the_documented_table_decodes() {
        for (extra_bits, low_word, secs) in [
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0xffff_ffff, -1),
            (0, 0x0000_0000, 0),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0x7fff_ffff, 0x1_7fff_ffff),
            (2, 0x8000_0000, 0x1_8000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff_i64),
        ] {
            let time = join(low_word, extra_bits | 999_999_999 << 2);
            assert_eq!(time, Time { secs, nanos: 999_999_999 });
            assert_eq!((low(time, true), extra(time)), (low_word, extra_bits | 999_999_999 << 2));
        }
    }

    #[test]
    fn times_out_of_range_become_the_nearest() {
        let far = Time { secs: i64::MAX, nanos: 0 };
        assert_eq!(join(low(far, true), extra(far)).secs, MAX);
        assert_eq!(join(low(far, false), 0).secs, i32::MAX.into());
        let past = Time { secs: i64::MIN, nanos: 0 };
        assert_eq!(join(low(past, true), extra(past)).secs, MIN);
    }

    #[test]
    fn the_nearest_time_is_stored_as_it_is() {
        let secs = [i64::MIN, MIN - 1, MIN, 0, i32::MAX.into(), 1 << 31, MAX, MAX + 1, i64::MAX];
        for secs in secs {
            let time = Time { secs, nanos: 5 };
            let wide = nearest(time, true);
            assert_eq!(join(low(wide, true), extra(wide)), wide);
            let small = nearest(time, false);
            assert_eq!(join(low(small, false), 0), small);
        }
        assert_eq!(nearest(Time { secs: 1 << 31, nanos: 5 }, true).nanos, 5);
    }
}
