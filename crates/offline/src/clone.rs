//! Copies an image. The copy shares the image's blocks, or gets only the blocks in use.

use crate::error::Error;
use crate::image::Image;
use lanefs_device::{Device, data_after};
use lanefs_ext4::{Primary, log};
use lanefs_ondisk::superblock::JournalPlace;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PIECE: u64 = 1 << 20;
/// The size in bytes of a grain. A copy leaves out grains that contain only zeros.
const GRAIN: usize = 4096;

/// Makes the new file `to` share the blocks of `from` until one side writes (FICLONE). Returns
/// false if the host cannot do this.
pub fn share_file(from: &File, to: &File) -> bool {
    rustix::fs::ioctl_ficlone(to, from).is_ok()
}

/// Copies the blocks in use of the file system on `device` to the new file `to`, without runs of
/// zeros. If the image is the whole file `whole`, also copies what lies after the file system.
/// Returns the number of bytes read.
///
/// # Errors
/// [`Error::Ext4`], and [`Error::Copy`] with the host's error.
pub fn copy_used(device: &Arc<dyn Device>, whole: Option<&File>, to: &File) -> Result<u64, Error> {
    let host = |error: io::Error| Error::Copy(Arc::new(error));
    to.set_len(device.len()).map_err(host)?;
    let mut bytes = 0;
    let runs = used_bytes(device)?;
    let mut at = runs.last().map_or(0, |(start, len)| start + len);
    for (start, len) in runs {
        let read = |at, buf: &mut [u8]| device.read_at(at, buf).map_err(io::Error::other);
        copy_range(&read, to, start, start + len).map_err(host)?;
        bytes += len;
    }
    let Some(whole) = whole else { return Ok(bytes) };
    while at < device.len()
        && let Some((data, hole)) = data_after(whole, at, device.len()).map_err(host)?
    {
        let read = |at, buf: &mut [u8]| whole.read_exact_at(buf, at);
        copy_range(&read, to, data, hole).map_err(host)?;
        bytes += hole - data;
        at = hole;
    }
    Ok(bytes)
}

/// Returns the byte ranges of the blocks that are in use after a replay of the log, including the
/// log itself.
fn used_bytes(device: &Arc<dyn Device>) -> Result<Vec<(u64, u64)>, Error> {
    let superblock = Primary::read(&**device)?.superblock;
    let image = match superblock.journal() {
        Some(JournalPlace::Inode(ino)) => {
            let log = log::find(&**device, &superblock, ino)?;
            let replayed = log::overlay(device, &superblock, &log);
            log::plan(&**device, &superblock, &log)?.write(&*replayed)?;
            Image::load(replayed)?
        }
        _ => Image::load(device.clone())?,
    };
    let bits = image.geometry().block_size().bits();
    let runs = image.used_runs()?;
    Ok(runs.into_iter().map(|(start, len)| (start.0 << bits, len << bits)).collect())
}

fn copy_range(
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    to: &File,
    start: u64,
    end: u64,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE.min(end - start) as usize];
    let mut at = start;
    while at < end {
        let len = PIECE.min(end - at) as usize;
        let piece = buffer.get_mut(..len).unwrap_or_default();
        read(at, piece)?;
        write_data(to, at, piece)?;
        at += len as u64;
    }
    Ok(())
}

/// Writes the grains of `bytes` that are not all zeros to `to` at offset `at`, with one write for
/// adjacent grains. The rest of the new file stays zeros.
///
/// # Errors
/// Those of the host.
pub fn write_data(to: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut from: Option<usize> = None;
    for (n, grain) in bytes.chunks(GRAIN).enumerate() {
        let is_zero = grain.iter().all(|byte| *byte == 0);
        match (is_zero, from) {
            (false, None) => from = Some(n * GRAIN),
            (true, Some(start)) => {
                let part = bytes.get(start..n * GRAIN).unwrap_or_default();
                to.write_all_at(part, at + start as u64)?;
                from = None;
            }
            _ => {}
        }
    }
    match from {
        Some(start) => to.write_all_at(bytes.get(start..).unwrap_or_default(), at + start as u64),
        None => Ok(()),
    }
}
