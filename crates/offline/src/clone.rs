//! Copies an image. The copy shares the image's blocks, or gets only the parts with data, or only
//! the blocks in use.

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

/// How an image was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The host's file system shares the blocks until one side writes (FICLONE).
    Shared,
    /// The parts of the file that are not holes were copied.
    Data {
        /// Bytes read.
        bytes: u64,
    },
    /// Only the blocks in use were copied.
    Used {
        /// Bytes read.
        bytes: u64,
    },
}

/// Copies the file `from` to the new file `to`. Uses FICLONE if the host's file system supports it,
/// and otherwise copies all data outside of holes.
///
/// # Errors
/// Errors of the host.
pub fn copy_file(from: &File, to: &File) -> io::Result<Copied> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(Copied::Shared);
    }
    let end = from.metadata()?.len();
    to.set_len(end)?;
    let (mut at, mut bytes) = (0, 0);
    while at < end
        && let Some((data, hole)) = data_after(from, at, end)?
    {
        copy_range(&|at, buf| from.read_exact_at(buf, at), to, data, hole)?;
        bytes += hole - data;
        at = hole;
    }
    to.sync_all()?;
    Ok(Copied::Data { bytes })
}

/// Copies `device` to the new file `to`, without runs of zeros. With `used`, copies only the blocks
/// in use.
///
/// # Errors
/// [`Error::Ext4`], and [`Error::Copy`] with the host's error on `to`.
pub fn copy_device(device: &Arc<dyn Device>, to: &File, used: bool) -> Result<Copied, Error> {
    let host = |error: io::Error| Error::Copy(Arc::new(error));
    to.set_len(device.len()).map_err(host)?;
    let mut bytes = 0;
    let runs = match used {
        true => used_bytes(device)?,
        false => vec![(0, device.len())],
    };
    for (start, len) in runs {
        let read = |at, buf: &mut [u8]| device.read_at(at, buf).map_err(io::Error::other);
        copy_range(&read, to, start, start + len).map_err(host)?;
        bytes += len;
    }
    to.sync_all().map_err(host)?;
    Ok(if used { Copied::Used { bytes } } else { Copied::Data { bytes } })
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

/// Writes the grains that are not all zeros, with one write for adjacent grains. The rest of the
/// new file stays zeros.
fn write_data(to: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
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
