//! Tests of `unsynced.rs`.

use super::*;
use crate::base::layout::Layout;

fn shape() -> Geometry {
    Geometry::new(Layout::LeftSymmetric, 3, 4096, 4096 * 100).unwrap()
}

#[test]
fn a_bitmap_says_which_rows_need_it() {
    let bits = vec![0b10, 0];
    let consistency = Consistency::Bitmap { chunk: 4096 * 16, bits };
    let unsynced = Unsynced::new(&shape(), &consistency, 0);
    assert_eq!(unsynced.rows_left(), 16);
    let contains = |row| unsynced.contains(row, 0, 4096);
    assert!(!contains(15) && contains(16) && contains(31));
    assert_eq!(unsynced.next_from(0), Some(16));
    unsynced.advance(20);
    assert!(!contains(19) && contains(20));
    assert_eq!(unsynced.next_from(32), None);
    unsynced.advance(100);
    assert!(!unsynced.any());
}

#[test]
fn the_rows_of_an_array_of_16_tib_are_counted_by_region() {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, 4096, 16 << 40).unwrap();
    let mut bits = vec![0; 32 << 10];
    (bits[0], bits[32_767]) = (1, 0x80);
    let unsynced = Unsynced::new(&shape, &Consistency::Bitmap { chunk: 64 << 20, bits }, 0);
    assert_eq!((shape.rows(), unsynced.rows_left()), (1 << 32, 2 << 14));
    assert_eq!(unsynced.next_from(1 << 14), Some((1 << 32) - (1 << 14)));
    unsynced.advance((1 << 32) - 1);
    assert_eq!((unsynced.rows_left(), unsynced.next_from(0)), (1, Some((1 << 32) - 1)));
}

#[test]
fn small_bits_are_joined_to_rows() {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, 16384, 16384 * 4).unwrap();
    let consistency = Consistency::Bitmap { chunk: 4096, bits: vec![0b0100_0000, 0] };
    let unsynced = Unsynced::new(&shape, &consistency, 0);
    assert_eq!((0..4).filter(|r| unsynced.contains(*r, 0, 4096)).collect::<Vec<_>>(), [1]);
}

#[test]
fn without_a_bitmap_everything_from_the_checkpoint_on_needs_it() {
    let unsynced = Unsynced::new(&shape(), &Consistency::Resync, 4096 * 90 + 1);
    assert_eq!(unsynced.rows_left(), 10);
    let clean = Unsynced::new(&shape(), &Consistency::Resync, u64::MAX);
    assert!(!clean.any());
}
