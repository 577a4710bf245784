//! Tests of `strip.rs`.

use super::*;
use crate::base::layout::Layout;

#[test]
fn strips_cover_each_written_block() {
    let seed = 51;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let shape = Geometry::new(Layout::LeftSymmetric, 4, 16384, 16384 * 8).unwrap();
    for _ in 0..3000 {
        let offset = rng.u64(..shape.len() - 1);
        let len = rng.u64(1..=(shape.len() - offset).min(3 * shape.row_len()));
        let mut at = 0;
        for part in row_parts(&shape, offset, len) {
            assert_eq!(part.at, at);
            at += part.len;
            let pieces = pieces(&shape, part);
            assert_eq!(pieces.iter().map(|p| p.to - p.from).sum::<u64>(), part.len);
            for p in &pieces {
                let place =
                    crate::base::layout::Location { row: part.row, index: p.index, offset: p.from };
                assert_eq!(shape.array_byte(place), offset + p.at);
            }
            let strips = strips(&pieces).into_iter().flat_map(|s| s.cut(8192));
            let strips: Vec<Strip> = strips.collect();
            for block in 0..shape.chunk() / BLOCK {
                let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
                let strip = strips.iter().filter(|s| s.from < to && from < s.to);
                let strip: Vec<_> = strip.collect();
                assert!(strip.len() <= 1);
                for index in 0..3 {
                    let piece = pieces.iter().find(|p| p.index == index);
                    let clip = piece.and_then(|p| p.clip(from, to));
                    let whole = clip.is_some_and(|c| c.to - c.from == BLOCK);
                    let got = strip.first();
                    assert_eq!(got.is_some_and(|s| s.written.contains(index)), clip.is_some());
                    assert_eq!(
                        got.is_some_and(|s| s.partial.contains(index)),
                        clip.is_some() && !whole
                    );
                }
            }
            assert!(strips.iter().all(|s| s.len() <= 8192 && s.from % BLOCK == 0));
        }
        assert_eq!(at, len);
    }
}

#[test]
fn slices_of_many_buffers_give_the_request() {
    let bufs: [&[u8]; 4] = [b"abc", b"", b"de", b"fghi"];
    let source = Bytes::new(&bufs);
    assert_eq!(source.len(), 9);
    for from in 0..9 {
        for to in from..=9 {
            let got = source.slices(from, to - from).concat();
            assert_eq!(got, &b"abcdefghi"[from as usize..to as usize]);
        }
    }
}

#[test]
fn entries_count_their_data_in_32_bits_whatever_is_written() {
    for (count, len) in [(2, 65536), (4, 1 << 30), (31, 1 << 30)] {
        let all = Slots::below(count);
        let whole = Strip { from: 0, to: len, written: all, partial: Slots::NONE };
        let loads = loads(vec![whole], all, 1 << 17);
        let strips: Vec<Strip> = loads.concat();
        assert_eq!(strips.iter().map(Strip::len).sum::<u64>(), len);
        assert!(strips.iter().all(|s| u32::try_from(s.len() * count as u64).is_ok()));
        assert_eq!(strips.len(), if len == 65536 { 1 } else { strips.len().max(2) });
    }
}
