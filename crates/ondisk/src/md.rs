//! The format of Linux md's array members: superblock 1.2, bad-block log, write-intent bitmap,
//! partial parity log. Everything is little endian.
//!
//! Functions here return a bare [`Cause`], since only the caller knows which member it read. The
//! functions check a single member; the code that assembles an array checks that the members agree.
//! Offsets in superblocks are in sectors of 512 bytes, even if the device has larger sectors.
//!
//! Sources: `linux/raid/md_p.h` of Linux's interface headers, md(4), and members that Linux's md
//! wrote.

pub mod bitmap;
pub mod ppl;
mod superblock;
mod terms;

pub use superblock::{Area, BadBlocks, Device, NewArray, Recovery, Role, Superblock};
pub use terms::{Cause, Features, SECTOR, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Uuid, level_name};

pub mod bad_blocks {
    //! The bad-block log: unreadable sectors of a member that stays in the array.
    //!
    //! Each entry has 64 bits: the start in the upper 54, the length in the lower 10, both in units
    //! of `512 << shift` bytes. An entry of all ones ends the list.

    use super::terms::Cause;
    use std::ops::Range;

    /// The entry that ends the list.
    const END: u64 = !0;
    /// The largest number of units that one entry can cover.
    const MAX_LEN: u64 = 512;

    /// Bad sectors of one member, counted from the start of its device (not of its data area).
    pub type Ranges = Vec<Range<u64>>;

    /// Decodes the ranges in `log`, and returns them in the order of the log.
    ///
    /// # Errors
    /// [`Cause::BadBlockShift`] if `shift` is above 32.
    pub fn decode(log: &[u8], shift: u8) -> Result<Ranges, Cause> {
        if shift > 32 {
            return Err(Cause::BadBlockShift { shift });
        }
        let (entries, _) = log.as_chunks::<8>();
        let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
        let ranges = entries.take_while(|entry| *entry != END).filter_map(|entry| {
            let (start, len) = (entry >> 10, entry & 0x3ff);
            let start = start.checked_mul(1 << shift)?;
            Some(start..start.checked_add(len << shift)?)
        });
        Ok(ranges.filter(|range| !range.is_empty()).collect())
    }

    /// Fills `log` with `ranges`, which are in sectors. The unit of the log is one sector, so its
    /// shift is 0. Returns `false` if not all ranges fit; the log then contains as many of the
    /// first ranges as fit.
    pub fn encode_into(ranges: &[Range<u64>], log: &mut [u8]) -> bool {
        log.fill(0xff);
        let (places, _) = log.as_chunks_mut::<8>();
        let mut places = places.iter_mut();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let len = (range.end - start).min(MAX_LEN);
                let Some(place) = places.next() else { return false };
                *place = (start << 10 | len).to_le_bytes();
                start += len;
            }
        }
        true
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ranges_are_read_back_in_pieces_of_at_most_512() {
            let mut log = [0; 64];
            assert!(encode_into(&[5..6, 1000..2000], &mut log));
            assert_eq!(decode(&log, 0).unwrap(), [5..6, 1000..1512, 1512..2000]);
            assert_eq!(decode(&log, 3).unwrap(), [40..48, 8000..12096, 12096..16000]);
        }

        #[test]
        fn an_empty_log_is_all_ones() {
            let mut log = [0; 16];
            assert!(encode_into(&[], &mut log));
            assert_eq!(log, [0xff; 16]);
            assert!(decode(&log, 0).unwrap().is_empty());
        }

        #[test]
        fn a_log_that_overflows_says_so() {
            let mut log = [0; 16];
            assert!(!encode_into(&[0..1, 2..3, 4..5], &mut log));
            assert_eq!(decode(&log, 0).unwrap(), [0..1, 2..3]);
        }

        #[test]
        fn entries_beyond_all_sectors_are_left_out_and_wild_shifts_refused() {
            let mut log = [0xff; 16];
            log[..8].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
            assert!(decode(&log, 32).unwrap().is_empty());
            assert_eq!(decode(&log, 33), Err(Cause::BadBlockShift { shift: 33 }));
        }
    }
}
