//! The parts of a host's file that are no holes.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Returns the start and the end of the next data of a file of `size` bytes, at or after `from`. If
/// the file system of the host cannot report holes, all is data.
pub fn data_after(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((from < size).then_some((from, size))),
        Err(Errno::NXIO) => return Ok(None),
        start => start?,
    };
    match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        // It was cut meanwhile: reading what is missing fails.
        Err(Errno::NXIO) => Ok(Some((start, size.max(start)))),
        end => Ok(Some((start, end?))),
    }
}
