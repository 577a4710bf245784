//! Computes the log blocks of one transaction. The functions are pure.
//!
//! Revoke blocks come first. Descriptors come next, each followed by the copies that it lists. The
//! commit block is separate because it must reach the device after all others.

use crate::tid::Tid;
use lanefs_lanes::CoarseTime;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::Block;
use lanefs_ondisk::jbd2::{
    Commit, Image, LogFormat, TagFlags, encode_descriptor, encode_revoke, escape, needs_escape,
};

/// A captured block.
pub(crate) type Captured = (Block, Arc<[u8]>);

/// Returns the number of log blocks that a transaction takes, including its commit block.
pub(crate) fn size(format: &LogFormat, images: usize, revokes: usize) -> usize {
    let descriptors = images.div_ceil(format.tags_per_descriptor());
    revokes.div_ceil(format.revokes_per_block()) + descriptors + images + 1
}

/// Returns the log blocks of `tid` in order, without its commit block.
pub(crate) fn blocks(
    format: &LogFormat,
    uuid: &[u8; 16],
    tid: Tid,
    images: &[Captured],
    revokes: &[Block],
) -> Vec<Arc<[u8]>> {
    let sequence = tid.sequence();
    let mut out = Vec::with_capacity(size(format, images.len(), revokes.len()));
    for records in revokes.chunks(format.revokes_per_block()) {
        out.push(encode_revoke(records, sequence, format).into());
    }
    for described in images.chunks(format.tags_per_descriptor()) {
        let copies: Vec<(Arc<[u8]>, TagFlags)> = described.iter().map(|i| copy(&i.1)).collect();
        let tags: Vec<Image<'_>> = described
            .iter()
            .zip(&copies)
            .map(|((block, _), (copy, flags))| Image { block: *block, copy, flags: *flags })
            .collect();
        out.push(encode_descriptor(&tags, sequence, uuid, format).into());
        out.extend(copies.into_iter().map(|(copy, _)| copy));
    }
    out
}

/// Returns the image in the form in which the log stores it.
fn copy(image: &Arc<[u8]>) -> (Arc<[u8]>, TagFlags) {
    if !needs_escape(image) {
        return (image.clone(), TagFlags::empty());
    }
    let mut escaped = image.to_vec();
    escape(&mut escaped);
    (escaped.into(), TagFlags::ESCAPE)
}

/// Returns the commit block of `tid`.
pub(crate) fn commit_block(format: &LogFormat, tid: Tid, time: CoarseTime) -> Vec<u8> {
    let secs = u64::try_from(time.secs).unwrap_or(0);
    let commit = Commit { sequence: tid.sequence(), secs, nanos: time.nanos, transaction: None };
    commit.encode(format)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_ondisk::BlockSize;
    use lanefs_ondisk::jbd2::{BlockNumbers, LogChecksums, MAGIC, Tags, unescape};

    #[test]
    fn a_transaction_takes_as_many_blocks_as_was_computed_and_magic_is_escaped() {
        let format = LogFormat {
            block_size: BlockSize::new(1024).unwrap(),
            checksums: LogChecksums::None,
            numbers: BlockNumbers::Bits64,
        };
        let image = |n: u64| {
            let mut bytes = vec![n as u8; 1024];
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            (Block(n), Arc::from(bytes))
        };
        for (images, revokes) in [(0, 0), (1, 0), (0, 1), (200, 300), (81, 126), (82, 127)] {
            let images: Vec<Captured> = (0..images).map(image).collect();
            let revokes: Vec<Block> = (1000..1000 + revokes).map(Block).collect();
            let out = blocks(&format, &[0; 16], Tid(7), &images, &revokes);
            assert_eq!(out.len() + 1, size(&format, images.len(), revokes.len()));
            let magic = |b: &Arc<[u8]>| needs_escape(b);
            assert_eq!(out.iter().filter(|b| !magic(b)).count(), images.len());
        }
        let one = [image(9)];
        let out = blocks(&format, &[0; 16], Tid(7), &one, &[]);
        let tag = Tags::decode(&out[0], &format).unwrap().next().unwrap();
        assert_eq!((tag.block, tag.flags.contains(TagFlags::ESCAPE)), (Block(9), true));
        let mut back = out[1].to_vec();
        unescape(&mut back);
        assert_eq!(back[..], one[0].1[..]);
    }
}
