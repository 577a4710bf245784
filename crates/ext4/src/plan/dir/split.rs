//! Distributes the entries of a full leaf over two leaves.

use super::DirContext;
use lanefs_ondisk::dirent::{self, Packed};

/// A leaf, together with the hash of its index entry.
pub(super) struct Leaf {
    /// The lowest hash of the leaf. The low bit is set if the leaf before it has names with that
    /// hash too.
    pub(super) low: u32,
    /// The contents.
    pub(super) block: Vec<u8>,
}

/// Packs the entries, given with their hashes, into one leaf, or into two if they do not fit into
/// one. `None` if two leaves are not enough, which is impossible for the entries of one leaf and a
/// new entry.
pub(super) fn leaves(
    cx: &DirContext,
    mut entries: Vec<(u32, Packed<'_>)>,
) -> Option<(Vec<u8>, Option<Leaf>)> {
    entries.sort_by_key(|(hash, _)| *hash);
    let at = split_point(&entries, cx.format.record_bytes())?;
    let packed: Vec<Packed<'_>> = entries.iter().map(|(_, packed)| *packed).collect();
    let (left, right) = packed.split_at_checked(at)?;
    let left_block = dirent::pack(&cx.format, left)?;
    if right.is_empty() {
        return Some((left_block, None));
    }
    let low = entries.get(at)?.0;
    let continues = at
        .checked_sub(1)
        .and_then(|before| entries.get(before))
        .is_some_and(|(hash, _)| *hash == low);
    let block = dirent::pack(&cx.format, right)?;
    Some((left_block, Some(Leaf { low: low | u32::from(continues), block })))
}

/// Returns the number of entries for the left leaf. If all entries fit into one leaf, the left leaf
/// gets all of them. Otherwise both leaves get about the same number of bytes. Names with the same
/// hash are separated only if that cannot be avoided, since every look-up of such a hash would read
/// both leaves.
fn split_point(entries: &[(u32, Packed<'_>)], capacity: usize) -> Option<usize> {
    let total: usize = entries.iter().map(|(_, packed)| packed.space()).sum();
    if total <= capacity {
        return Some(entries.len());
    }
    let mut left = 0;
    let mut best: Option<(bool, usize, usize)> = None;
    for (at, pair) in entries.windows(2).enumerate() {
        let [(hash, packed), (next, _)] = pair else { continue };
        left += packed.space();
        let right = total - left;
        if left > capacity || right > capacity {
            continue;
        }
        let candidate = (hash == next, left.abs_diff(right), at + 1);
        if best.is_none_or(|best| candidate < best) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, at)| at)
}
