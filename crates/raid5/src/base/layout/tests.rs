//! Tests of `layout.rs`.

use super::*;

fn shape(layout: Layout, members: usize) -> Geometry {
    Geometry::new(layout, members, 8192, 8192 * 64).unwrap()
}

/// Compares the rows of four members with the diagrams of md's layouts.
#[test]
fn four_members_look_as_in_the_diagrams() {
    const P: i32 = -1;
    let rows: [(Layout, [[i32; 4]; 4]); 6] = [
        (Layout::LeftAsymmetric, [[0, 1, 2, P], [3, 4, P, 5], [6, P, 7, 8], [P, 9, 10, 11]]),
        (Layout::RightAsymmetric, [[P, 0, 1, 2], [3, P, 4, 5], [6, 7, P, 8], [9, 10, 11, P]]),
        (Layout::LeftSymmetric, [[0, 1, 2, P], [4, 5, P, 3], [8, P, 6, 7], [P, 9, 10, 11]]),
        (Layout::RightSymmetric, [[P, 0, 1, 2], [5, P, 3, 4], [7, 8, P, 6], [9, 10, 11, P]]),
        (Layout::ParityFirst, [[P, 0, 1, 2], [P, 3, 4, 5], [P, 6, 7, 8], [P, 9, 10, 11]]),
        (Layout::ParityLast, [[0, 1, 2, P], [3, 4, 5, P], [6, 7, 8, P], [9, 10, 11, P]]),
    ];
    for (layout, want) in rows {
        let shape = shape(layout, 4);
        for (row, want) in want.iter().enumerate() {
            let row = row as u64;
            for (slot, want) in want.iter().enumerate() {
                let got = shape.index_of(row, slot).map_or(P, |i| (row * 3) as i32 + i as i32);
                assert_eq!(got, *want, "{layout:?} row {row} slot {slot}");
            }
        }
    }
}

#[test]
fn every_byte_of_the_array_has_one_place_and_every_row_one_parity() {
    for layout in Layout::ALL {
        for members in 3..=Geometry::MAX_MEMBERS {
            let shape = shape(layout, members);
            let mut taken = vec![false; members * 64];
            for row in 0..64 {
                let parity = shape.parity_slot(row);
                assert_eq!(shape.index_of(row, parity), None);
                taken[row as usize * members + parity] = true;
            }
            for chunk in 0..64 * (members as u64 - 1) {
                let at = chunk * 8192 + 77;
                let place = shape.place(at);
                assert_eq!(shape.array_byte(place), at);
                let slot = shape.data_slot(place.row, place.index);
                assert_eq!(shape.index_of(place.row, slot), Some(place.index));
                let cell = &mut taken[place.row as usize * members + slot];
                assert!(!std::mem::replace(cell, true), "two chunks at one place");
            }
            assert!(taken.iter().all(|t| *t), "{layout:?} of {members}");
        }
    }
}

#[test]
fn layouts_have_the_numbers_of_md() {
    for (number, layout) in Layout::ALL.into_iter().enumerate() {
        assert_eq!(Layout::from_md(number as u32), Some(layout));
        assert_eq!(layout.md(), number as u32);
    }
    assert_eq!(Layout::from_md(6), None);
}

#[test]
fn impossible_shapes_are_refused() {
    let new = |members, chunk, size| Geometry::new(Layout::LeftSymmetric, members, chunk, size);
    assert!(matches!(new(2, 4096, 4096), Err(GeometryError::Members { .. })));
    assert!(matches!(new(33, 4096, 4096), Err(GeometryError::Members { .. })));
    assert!(matches!(new(3, 5000, 50_000), Err(GeometryError::Chunk { .. })));
    assert!(matches!(new(3, 2048, 50_000), Err(GeometryError::Chunk { .. })));
    assert!(matches!(new(3, 4096, 4095), Err(GeometryError::Size { .. })));
    assert!(matches!(new(3, 4096, 1 << 62), Err(GeometryError::Size { .. })));
    assert_eq!(new(3, 4096, 8191).unwrap().len(), 8192);
}

#[test]
fn a_set_has_the_inserted_slots() {
    let set: Slots = [3, 0, 63].into_iter().collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
    assert!(set.contains(63) && !set.contains(1) && !set.contains(64));
    assert_eq!((set - Slots::one(0)).first(), Some(3));
    assert_eq!(Slots::below(3) | Slots::one(3), Slots::below(4));
    assert!(Slots::NONE.is_empty() && Slots::NONE.first().is_none());
}
