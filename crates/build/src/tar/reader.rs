//! The entries of an archive, one after another.

use super::header::{self, BLOCK, Dialect, Header};
use super::pax::Records;
use super::sparse::{self, Map, ended};
use crate::entry::{Attribute, Kind, Meta};
use crate::error::{Cause, Error, Result};
use lanefs_mkfs::FileFault;
use lanefs_ondisk::{FileType, Time, xattr};
use std::io::Read;
use std::sync::Arc;

/// The largest accepted size of an extended header or a long name, in bytes.
const MOST_EXTENDED: u64 = 8 << 20;

/// The largest number of bytes that the target of a symbolic link has in any file system of Linux.
const MOST_TARGET: usize = 4095;

/// The largest accepted size of a file's extended attributes, as ext4 stores them. It is twice the
/// largest block size of ext4.
const MOST_ATTRIBUTES: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct Item {
    /// The name in the archive, unchanged.
    pub(crate) path: Vec<u8>,
    pub(crate) meta: Meta,
    pub(crate) body: Body,
}

/// The object that an entry creates.
#[derive(Debug)]
pub(crate) enum Body {
    Directory,
    /// A hard link: a further name of an existing file, whose name is given here.
    Link(Vec<u8>),
    /// Any other file. The data of a regular file follows.
    File(Kind),
}

/// Reads an archive. The data of an entry must be read or skipped before the next entry can be
/// read.
pub(crate) struct Reader<R> {
    pub(crate) input: R,
    dialect: Dialect,
    global: Arc<Records>,
    /// Which parts of the current file the archive holds.
    map: Map,
    next_piece: usize,
    /// The number of data bytes that are not read yet. The next field is the number of padding
    /// bytes after them.
    left: u64,
    padding: u64,
    name: String,
    /// Whether a valid header was read.
    is_tar: bool,
}

/// What extended headers say about the next entry.
struct Pending {
    records: Records,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Pending {
    /// At first the records of the global headers are in force.
    fn new(global: &Arc<Records>) -> Pending {
        Pending { records: Records::below(global), long_name: None, long_link: None }
    }
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R, dialect: Dialect) -> Reader<R> {
        Reader {
            input,
            dialect,
            global: Arc::default(),
            map: Map::default(),
            next_piece: 0,
            left: 0,
            padding: 0,
            name: String::new(),
            is_tar: false,
        }
    }

    /// Returns the next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item>> {
        self.skip()?;
        let mut pending = Pending::new(&self.global);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            match header.kind() {
                kind @ (b'x' | b'X' | b'g' | b'L' | b'K') => {
                    let bytes = self.extended(&header)?;
                    let added = self.extend(&mut pending, kind, bytes);
                    added.map_err(|cause| self.wrong(&header.name(self.dialect), cause))?;
                }
                // A volume label. The extended headers before it describe the label.
                b'V' => {
                    let size = self.skipped_size(&header, &pending.records);
                    let size = size.map_err(|cause| self.wrong(b"a volume label", cause))?;
                    self.expect(size);
                    self.skip()?;
                    pending = Pending::new(&self.global);
                }
                _ => return self.item(&header, pending).map(Some),
            }
        }
    }

    /// Adds what an extended header says.
    fn extend(
        &mut self,
        pending: &mut Pending,
        kind: u8,
        bytes: Vec<u8>,
    ) -> std::result::Result<(), Cause> {
        match (kind, self.dialect) {
            (b'g', Dialect::Gnu) => {
                // The reference to the global records is dropped, so that they are changed in
                // place and not copied.
                pending.records.global = None;
                let added = Arc::make_mut(&mut self.global).add_global(&bytes);
                pending.records.global = Some(self.global.clone());
                added.and_then(|()| pending.records.check_bytes())
            }
            // Go returns a global header as an entry, which programs ignore. With it ends what the
            // extended headers before it said.
            (b'g', Dialect::Go) => {
                *pending = Pending::new(&self.global);
                Ok(())
            }
            (b'L', _) => {
                pending.long_name = Some(until_nul(bytes));
                Ok(())
            }
            (b'K', _) => {
                pending.long_link = Some(until_nul(bytes));
                Ok(())
            }
            _ => pending.records.replace(&bytes),
        }
    }

    /// Reads and discards the rest of the input, so that the whole input has been read.
    pub(crate) fn drain(&mut self) -> Result<()> {
        let copied = std::io::copy(&mut self.input, &mut std::io::sink());
        copied.map(drop).map_err(|error| Error::new("", error))
    }

    /// Skips the rest of the current entry's data by calling `seek`.
    pub(crate) fn seek_past(&mut self, seek: impl FnOnce(&mut R, u64)) {
        let rest = self.take_rest();
        seek(&mut self.input, rest);
    }

    /// Returns how many bytes lie before the next header. The sum saturates, because a header may
    /// claim almost 2^64 bytes.
    fn take_rest(&mut self) -> u64 {
        std::mem::take(&mut self.left).saturating_add(std::mem::take(&mut self.padding))
    }

    fn wrong(&self, name: &[u8], cause: Cause) -> Error {
        Error::new(String::from_utf8_lossy(name), cause)
    }

    /// Reads the next header; `None` at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut bytes = [0; BLOCK];
        let is_read = match read_block(&mut self.input, &mut bytes) {
            // Like other programs, Lanefs accepts an archive without an end mark.
            Ok(false) => return Ok(None),
            Ok(true) => Ok(()),
            Err(cause) => Err(cause),
        };
        let header = is_read.and_then(|()| Header::check(&bytes)).map_err(|cause| match cause {
            Cause::Truncated | Cause::HeaderChecksum
                if !self.is_tar && !header::has_magic(&bytes) =>
            {
                Error::new("", Cause::NotTar { found: foreign(&bytes) })
            }
            cause if !self.is_tar => Error::new("", cause),
            cause => Error::new(format!("after {}", self.name), cause),
        })?;
        self.is_tar = true;
        Ok(header)
    }

    /// Reads the data of an extended header, which describes the next header.
    fn extended(&mut self, header: &Header) -> Result<Vec<u8>> {
        let name = header.name(self.dialect);
        let size = header.size().map_err(|cause| self.wrong(&name, cause))?;
        if size > MOST_EXTENDED {
            let what = "an extended header";
            let cause = Cause::TooLong { what, bytes: size, most: MOST_EXTENDED };
            return Err(self.wrong(&name, cause));
        }
        let mut bytes = vec![0; (size as usize).next_multiple_of(BLOCK)];
        let read = self.input.read_exact(&mut bytes);
        read.map_err(|error| self.wrong(&name, ended(error)))?;
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    fn item(&mut self, header: &Header, pending: Pending) -> Result<Item> {
        let link = self.link_name(header, &pending);
        let path = self.path(header, &pending);
        let records = pending.records;
        let path = path.map_err(|cause| self.wrong(&header.name(self.dialect), cause))?;
        self.name = String::from_utf8_lossy(&path).into_owned();
        self.describe(header, &records, &path, link)
            .map(|(meta, body)| Item { path: path.clone(), meta, body })
            .map_err(|cause| self.wrong(&path, cause))
    }

    /// Returns the name of an entry. Of two names, GNU tar takes the one of pax, Go the one of GNU.
    fn path(&self, header: &Header, pending: &Pending) -> std::result::Result<Vec<u8>, Cause> {
        let record = |key| pending.records.get(key).map(<[u8]>::to_vec);
        let long = pending.long_name.clone();
        let path = match self.dialect {
            Dialect::Gnu => record("GNU.sparse.name").or_else(|| record("path")).or(long),
            Dialect::Go => {
                let version = sparse::version(&pending.records, self.dialect)?;
                let is_sparse = version.is_some() && header.kind() != b'S';
                let sparse = record("GNU.sparse.name").filter(|_| is_sparse);
                let long = long.filter(|name| !name.is_empty());
                sparse.or(long).or_else(|| record("path"))
            }
        };
        Ok(path.unwrap_or_else(|| header.name(self.dialect)))
    }

    fn link_name(&self, header: &Header, pending: &Pending) -> Vec<u8> {
        let record = pending.records.get("linkpath").map(<[u8]>::to_vec);
        let long = pending.long_link.clone();
        let link = match self.dialect {
            Dialect::Gnu => record.or(long),
            Dialect::Go => long.filter(|link| !link.is_empty()).or(record),
        };
        link.unwrap_or_else(|| header.link_name())
    }

    fn describe(
        &mut self,
        header: &Header,
        records: &Records,
        path: &[u8],
        link: Vec<u8>,
    ) -> std::result::Result<(Meta, Body), Cause> {
        let mut meta = meta(header, records)?;
        let kind = self.kind(header, path);
        let size = match kind {
            b'D' => self.skipped_size(header, records)?,
            _ => stored_size(header, records)?,
        };
        // No data follows the header of a link, device, directory or pipe, whatever size it states:
        // some programs store the size of the linked file. Go, Python and GNU tar agree on all of
        // these types. Only libarchive takes the size of a hard link, or one in a record of pax,
        // for data if it guesses that the archive is of pax.
        self.expect(if matches!(kind, b'1'..=b'6') { 0 } else { size });
        let body = match kind {
            b'1' => Body::Link(link),
            b'2' => {
                // As in the kernel, the mode of a symbolic link has no effect, and is always 0777.
                meta.permissions = 0o777;
                if link.len() > MOST_TARGET {
                    let fault = FileFault::Target { len: link.len(), most: MOST_TARGET };
                    return Err(Cause::File(fault));
                }
                Body::File(Kind::Symlink(link.into()))
            }
            b'3' | b'4' => {
                let major = records.id("SCHILY.devmajor")?;
                let major = major.map_or_else(|| header.device_major(), Ok)?;
                let minor = records.id("SCHILY.devminor")?;
                let minor = minor.map_or_else(|| header.device_minor(), Ok)?;
                let kind = if kind == b'3' { FileType::CharDevice } else { FileType::BlockDevice };
                Body::File(Kind::Device(kind, major, minor))
            }
            // Type D is a directory in an incremental archive. Its data is a list of names, which
            // is skipped.
            b'5' | b'D' => Body::Directory,
            b'6' => Body::File(Kind::Empty(FileType::Fifo)),
            // GNU tar makes a directory of it, and skips the data of a file.
            b'S' if path.ends_with(b"/") => return Err(Cause::Sparse),
            b'0' | 0 | b'7' | b'S' => {
                Body::File(Kind::Regular(self.regular(header, records, size)?))
            }
            kind => {
                let what = format!("an entry of type '{}'", char::from(kind));
                return Err(Cause::Unsupported { what });
            }
        };
        Ok((meta, body))
    }

    /// Returns the size of data that is no file's. To GNU tar, records of a sparse file change how
    /// much of it is skipped, to others they do not.
    fn skipped_size(&self, header: &Header, records: &Records) -> std::result::Result<u64, Cause> {
        match sparse::version(records, self.dialect)? {
            Some(_) => Err(Cause::Sparse),
            None => stored_size(header, records),
        }
    }

    /// Returns the type of an entry. In old archives, which have no type for directories, a name
    /// that ends in a slash means a directory. GNU tar and libarchive believe such a name of other
    /// regular files too.
    fn kind(&self, header: &Header, path: &[u8]) -> u8 {
        match (header.kind(), self.dialect) {
            (0, _) | (b'0' | b'7', Dialect::Gnu) if path.ends_with(b"/") => b'5',
            (kind, _) => kind,
        }
    }

    /// Prepares the data of a regular file, and returns its size.
    fn regular(
        &mut self,
        header: &Header,
        records: &Records,
        stored: u64,
    ) -> std::result::Result<u64, Cause> {
        self.map = match header.kind() {
            b'S' => sparse::old_gnu(header, stored, &mut self.input)?,
            _ => match sparse::of_records(records, self.dialect, stored, &mut self.input)? {
                // Otherwise GNU tar takes the length of the file for that of its data.
                Some(_) if !header.is_ustar() => {
                    return Err(Cause::HeaderField { field: "magic" });
                }
                Some((map, left)) => {
                    self.left = left;
                    map
                }
                None => Map { size: stored, pieces: vec![(0, stored)] },
            },
        };
        self.next_piece = 0;
        Ok(self.map.size)
    }

    /// Records how many bytes of data follow the header.
    fn expect(&mut self, stored: u64) {
        self.left = stored;
        self.padding = (BLOCK as u64 - stored % BLOCK as u64) % BLOCK as u64;
        self.map = Map::default();
        self.next_piece = 0;
    }

    /// Returns offset and length of the next piece of the file's data.
    pub(crate) fn next_piece(&mut self) -> Option<(u64, u64)> {
        let piece = self.map.pieces.get(self.next_piece).copied();
        self.next_piece += 1;
        piece
    }

    /// Fills `buf` with the next bytes of the current piece.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        let read = self.input.read_exact(buf);
        read.map_err(|error| Error::new(&self.name, ended(error)))?;
        self.left = self.left.saturating_sub(buf.len() as u64);
        Ok(())
    }

    fn skip(&mut self) -> Result<()> {
        let rest = self.take_rest();
        if rest == 0 {
            return Ok(());
        }
        let skipped = std::io::copy(&mut (&mut self.input).take(rest), &mut std::io::sink());
        match skipped {
            Ok(skipped) if skipped == rest => Ok(()),
            Ok(_) => Err(Error::new(&self.name, Cause::Truncated)),
            Err(error) => Err(Error::new(&self.name, error)),
        }
    }
}

/// Returns the size that a header or its records state.
fn stored_size(header: &Header, records: &Records) -> std::result::Result<u64, Cause> {
    records.number("size")?.map_or_else(|| header.size(), Ok)
}

fn meta(header: &Header, records: &Records) -> std::result::Result<Meta, Cause> {
    let whole = |secs| Time { secs, nanos: 0 };
    let (atime, ctime) = header.gnu_times();
    let mut meta = Meta {
        permissions: header.permissions()?,
        uid: records.id("uid")?.map_or_else(|| header.uid(), Ok)?,
        gid: records.id("gid")?.map_or_else(|| header.gid(), Ok)?,
        mtime: records.time("mtime")?.map_or_else(|| header.mtime().map(whole), Ok)?,
        atime: records.time("atime")?.or(atime.map(whole)),
        ctime: records.time("ctime")?.or(ctime.map(whole)),
        crtime: records.time("LIBARCHIVE.creationtime")?,
        attributes: Vec::new(),
    };
    let attributes = records.attributes()?;
    let stored = |(name, value): &Attribute| xattr::ENTRY + name.len() + value.len();
    let bytes: usize = attributes.iter().map(stored).sum();
    if bytes > MOST_ATTRIBUTES {
        let (what, bytes, most) = ("extended attributes", bytes as u64, MOST_ATTRIBUTES as u64);
        return Err(Cause::TooLong { what, bytes, most });
    }
    for (name, value) in attributes {
        meta.set_attribute(&name, value);
    }
    meta.take_permissions_of_list();
    Ok(meta)
}

/// Describes a source that is not a tar, by its first block.
fn foreign(start: &[u8; BLOCK]) -> &'static str {
    match start {
        [b'B', b'Z', b'h', ..] => "it is compressed by bzip2, so decompress it first",
        [0x04, 0x22, 0x4d, 0x18, ..] => "it is compressed by lz4, so decompress it first",
        [0x5d, 0, 0, ..] => "it is compressed by lzma, so decompress it first",
        [0x1f, 0x9d, ..] => "it is compressed by compress(1), so decompress it first",
        [b'P', b'K', 3 | 5, ..] => "it is a zip archive, so unpack it first",
        [b'0', b'7', b'0', b'7', b'0', ..] => "it is a cpio archive, so unpack it first",
        [b'h', b's', b'q', b's', ..] => "it is a squashfs image, so unpack it first",
        _ => "it must be a plain tar, or one compressed by gzip, zstd or xz",
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(len);
    bytes
}

/// Reads a block; returns false at the end of the input.
fn read_block(input: &mut impl Read, block: &mut [u8; BLOCK]) -> std::result::Result<bool, Cause> {
    let mut have = 0;
    while have < BLOCK {
        match input.read(block.get_mut(have..).unwrap_or_default()) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(Cause::Truncated),
            Ok(read) => have += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
