//! Writes runs of adjacent block images, either in place or, with [`each_run`], to the log.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, BlockSize};

/// The largest size of one write: large enough to be efficient, small enough not to delay other
/// requests.
const LARGEST_WRITE: usize = 1 << 20;

/// Writes `images`, which are sorted by block; adjacent blocks are written together.
pub(crate) fn write(
    device: &dyn Device,
    block_size: BlockSize,
    images: &[(Block, Arc<[u8]>)],
) -> Result<(), DeviceError> {
    each_run(block_size, images, |offset, bufs| device.write_vectored_at(offset, bufs))
}

/// Calls `write` with the byte offset and the bytes of each run of adjacent images.
pub(crate) fn each_run(
    block_size: BlockSize,
    images: &[(Block, Arc<[u8]>)],
    write: impl Fn(u64, &[&[u8]]) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    for run in runs(images, LARGEST_WRITE / block_size.bytes()) {
        let bufs: Vec<&[u8]> = run.iter().map(|(_, bytes)| &bytes[..]).collect();
        write(run[0].0.0 << block_size.bits(), &bufs)?;
    }
    Ok(())
}

/// Writes `images` as [`write`] does, but writes the image of block `last` after all others. Calls
/// `flush` before it writes that image, and again at the end.
pub(crate) fn write_durably<E: From<DeviceError>>(
    device: &dyn Device,
    block_size: BlockSize,
    images: &[(Block, Arc<[u8]>)],
    last: Option<Block>,
    flush: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    let at = images.iter().position(|(block, _)| Some(*block) == last);
    let Some((before, [late, after @ ..])) = at.and_then(|at| images.split_at_checked(at)) else {
        write(device, block_size, images)?;
        return flush();
    };
    write(device, block_size, before)?;
    write(device, block_size, after)?;
    flush()?;
    write(device, block_size, std::slice::from_ref(late))?;
    flush()
}

/// Splits images into runs of adjacent blocks, each of at most `longest` blocks.
fn runs(
    images: &[(Block, Arc<[u8]>)],
    longest: usize,
) -> impl Iterator<Item = &[(Block, Arc<[u8]>)]> {
    let longest = longest.max(1);
    images
        .chunk_by(|a, b| a.0.0 + 1 == b.0.0)
        .flat_map(move |neighbours| neighbours.chunks(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_go_out_together_up_to_the_largest_write() {
        let images: Vec<(Block, Arc<[u8]>)> =
            [1, 2, 3, 7, 9, 10].map(|b| (Block(b), Arc::from([0u8; 4]))).into();
        let lens: Vec<(u64, usize)> = runs(&images, 2).map(|run| (run[0].0.0, run.len())).collect();
        assert_eq!(lens, [(1, 2), (3, 1), (7, 1), (9, 2)]);
    }
}
