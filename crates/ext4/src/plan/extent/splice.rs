//! Replaces a range in a list of extents.

use lanefs_ondisk::extent::{END, Extent, State};
use lanefs_ondisk::{Block, FileBlock};
use std::ops::Range;

/// Replaces the mappings of `old` in `range` by the extents `with`, and returns the result. All
/// extents in `with` lie in `range`. Adjacent extents are merged where possible, and extents longer
/// than the format allows are split.
pub(super) fn splice(old: &[Extent], range: &Range<u32>, with: &[Extent]) -> Vec<Extent> {
    let mut new = Vec::with_capacity(old.len() + with.len() + 1);
    let (before, after) = (0..range.start, range.end..END);
    let left = old.iter().take_while(|e| e.start.0 < range.start).filter_map(|e| e.clip(&before));
    let right = old.iter().skip_while(|e| e.end() <= range.end).filter_map(|e| e.clip(&after));
    for extent in left.chain(with.iter().copied()).chain(right) {
        push(&mut new, extent);
    }
    new
}

/// Appends `extent`, which starts at the end of `list` or later.
pub(super) fn push(list: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = list.last_mut()
        && last.continued_by(&extent)
        && u64::from(last.len) + u64::from(extent.len) <= u64::from(last.state.max_len())
    {
        last.len += extent.len;
        return;
    }
    list.extend(pieces(extent));
}

/// Splits `extent` into pieces that the format can represent.
pub(super) fn pieces(extent: Extent) -> impl Iterator<Item = Extent> {
    let step = extent.state.max_len();
    (0..extent.len).step_by(step as usize).map(move |at| Extent {
        start: FileBlock(extent.start.0 + at),
        len: step.min(extent.len - at),
        block: Block(extent.block.0 + u64::from(at)),
        state: extent.state,
    })
}

/// Panics unless `with` ascends without overlap within `range`. A panic indicates a bug in the
/// caller.
pub(in crate::plan) fn assert_within(range: &Range<u32>, with: &[Extent]) {
    assert!(range.start <= range.end, "the range {range:?} is reversed");
    let mut from = range.start;
    for extent in with {
        let end = extent.start.0.checked_add(extent.len);
        assert!(
            extent.len > 0 && extent.start.0 >= from && end.is_some_and(|end| end <= range.end),
            "{extent:?} is out of order or out of {range:?}"
        );
        from = extent.end();
    }
}

/// Returns whether the extent contains data.
pub(super) fn is_data(extent: &Extent) -> bool {
    extent.state == State::Written
}
