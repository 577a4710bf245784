//! The files of a container image, in a directory or in an archive.

use crate::entry::Kind;
use crate::error::{Cause, Error, Result};
use crate::tar::{Body, Dialect, Reader};
use crate::tree::parts;
use crate::unpack::{Packing, Wanted, with_unpacked};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The list of images in an archive of `docker save`.
pub(super) const DOCKER_MANIFEST: &str = "manifest.json";

/// Returns whether a text has the form of a digest.
pub(super) fn is_sha256(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The files of an image.
pub(super) enum Files {
    Directory(PathBuf),
    Archive { file: Arc<File>, places: BTreeMap<String, Place> },
}

/// A file in an archive.
#[derive(Clone)]
pub(super) enum Place {
    Data { size: u64, pieces: Arc<[Piece]> },
    Symlink(String),
}

/// A part of a file that the archive holds. What lies between the pieces is zeros.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// The offset in the file.
    at: u64,
    /// The offset in the archive.
    place: u64,
    len: u64,
}

impl Files {
    /// Returns the files at a path; `-` is an archive on standard input.
    pub(super) fn at(path: &Path) -> Result<Files> {
        if path.is_dir() {
            return Ok(Files::Directory(path.into()));
        }
        Files::archive(match path == Path::new("-") {
            true => spool(io::stdin())?,
            false => plain(File::open(path).map_err(|error| Error::new("", error))?)?,
        })
    }

    pub(super) fn archive(file: File) -> Result<Files> {
        let file = Arc::new(file);
        let mut places = BTreeMap::new();
        let mut reader = reader(file.clone())?;
        while let Some(item) = reader.next()? {
            let Some(name) = normal(&item.path) else { continue };
            let place = match item.body {
                Body::File(Kind::Regular(size)) => Some(data(&mut reader, size)),
                Body::File(Kind::Symlink(target)) => {
                    Some(Place::Symlink(String::from_utf8_lossy(&target).into_owned()))
                }
                Body::Link(target) => normal(&target).and_then(|name| places.get(&name).cloned()),
                Body::File(_) | Body::Directory => None,
            };
            match place {
                Some(place) => places.insert(name, place),
                None => places.remove(&name),
            };
            reader.seek_past(Span::skip);
        }
        Ok(Files::Archive { file, places })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Files::Directory(path) => path.join(name).is_file(),
            Files::Archive { places, .. } => places.contains_key(name),
        }
    }

    /// Returns a file and its length.
    pub(super) fn open(&self, name: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        let missing = || Error::new("", Cause::Missing { what: name.into() });
        match self {
            Files::Directory(path) => {
                let mut parts = Path::new(name).components();
                if parts.any(|part| !matches!(part, Component::Normal(_))) {
                    return Err(Error::new(name, Cause::Outside));
                }
                let open = File::open(path.join(name));
                let file = open.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => Error::new(name, error),
                })?;
                let bytes = file.metadata().map_err(|error| Error::new(name, error))?.len();
                Ok((Box::new(file), bytes))
            }
            Files::Archive { file, places } => {
                let mut name = name.to_owned();
                for _ in 0..8 {
                    match places.get(&name).ok_or_else(missing)? {
                        Place::Data { size, pieces } => {
                            let (file, pieces) = (file.clone(), pieces.clone());
                            let input = Stored { file, pieces, next: 0, at: 0, size: *size };
                            return Ok((Box::new(input), *size));
                        }
                        Place::Symlink(target) => name = joined(&name, target),
                    }
                }
                Err(missing())
            }
        }
    }
}

/// The entries of a container image lie at the top, in `blobs`, or in directories whose names are
/// digests. The search in a compressed archive ends after this many other entries, because each
/// compressed tar of a whole tree would otherwise be unpacked twice.
const MOST_OTHERS: usize = 256;

/// Returns whether the file is a tar with the names of a container image.
pub(super) fn may_be_at(path: &Path) -> Result<bool> {
    let file = File::open(path).map_err(|error| Error::new("", error))?;
    if packing(&file)? == Packing::None {
        let reader = reader(Arc::new(file))?;
        return has_names(reader, usize::MAX, |reader| reader.seek_past(Span::skip));
    }
    let look =
        |input: &mut dyn Read| has_names(Reader::new(input, Dialect::Go), MOST_OTHERS, |_| ());
    Ok(with_unpacked(file, Wanted::default(), look)?.0)
}

fn has_names<R: Read>(
    mut reader: Reader<R>,
    most_others: usize,
    pass: impl Fn(&mut Reader<R>),
) -> Result<bool> {
    let (mut others, mut layout, mut index) = (0, false, false);
    let mut next = reader.next()?;
    while let Some(item) = next {
        let name = normal(&item.path).unwrap_or_default();
        layout |= name == "oci-layout";
        index |= name == "index.json";
        if name == DOCKER_MANIFEST || layout && index {
            return Ok(true);
        }
        let top = name.split('/').next().unwrap_or_default();
        others += usize::from(name.contains('/') && top != "blobs" && !is_sha256(top));
        if others > most_others {
            break;
        }
        pass(&mut reader);
        // An error is left to the reader of the whole archive.
        next = reader.next().unwrap_or_default();
    }
    Ok(false)
}

/// How many bytes of a stream [`may_begin_with`] needs.
pub(super) const START: u64 = 1 << 20;

/// Returns whether a tar with this start has a file that belongs to a container image.
pub(super) fn may_begin_with(start: &[u8]) -> bool {
    let mut reader = Reader::new(start, Dialect::Go);
    while let Ok(Some(item)) = reader.next() {
        let name = normal(&item.path).unwrap_or_default();
        let top = name.split('/').next().unwrap_or_default();
        let digest = top.strip_prefix("sha256:").unwrap_or(top);
        let digest = digest.split('.').next().unwrap_or_default();
        let is_known = matches!(name.as_str(), "oci-layout" | "index.json" | "repositories");
        if is_known
            || name == DOCKER_MANIFEST
            || name.starts_with("blobs/sha256/")
            || is_sha256(digest)
        {
            return true;
        }
    }
    false
}

/// Returns a name of an archive without empty and `.` parts; `None` if the name leaves the archive.
fn normal(path: &[u8]) -> Option<String> {
    let parts = parts(path).ok()?;
    Some(String::from_utf8_lossy(&parts.join(&b'/')).into_owned())
}

/// Returns the name to which a symbolic link at `name` refers.
fn joined(name: &str, target: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn packing(file: &File) -> Result<Packing> {
    Packing::of_file(file).map_err(|error| Error::new("", error))
}

/// Returns the archive in uncompressed form, so that its parts can be read in any order.
fn plain(mut file: File) -> Result<File> {
    if packing(&file)? == Packing::None {
        return Ok(file);
    }
    file.rewind().map_err(|error| Error::new("", error))?;
    spool(file)
}

/// Unpacks a stream into a temporary file.
fn spool(input: impl Read + Send) -> Result<File> {
    Ok(with_unpacked(input, Wanted::default(), copied)?.0)
}

/// Copies a stream into a temporary file without a name.
pub(super) fn copied(input: &mut dyn Read) -> Result<File> {
    let failed = |error| Error::new(std::env::temp_dir().display(), Cause::Io(error));
    let mut file = tempfile::tempfile().map_err(failed)?;
    io::copy(input, &mut file).map_err(|error| Error::new("", error))?;
    file.flush().and_then(|()| file.rewind()).map_err(failed)?;
    Ok(file)
}

fn reader(file: Arc<File>) -> Result<Reader<Span>> {
    let end = file.metadata().map_err(|error| Error::new("", error))?.len();
    Ok(Reader::new(Span { file, at: 0, end }, Dialect::Go))
}

/// Returns where the data of the reader's current entry lies.
fn data(reader: &mut Reader<Span>, size: u64) -> Place {
    let mut place = reader.input.at;
    let mut pieces = Vec::new();
    while let Some((at, len)) = reader.next_piece() {
        pieces.push(Piece { at, place, len });
        place = place.saturating_add(len);
    }
    Place::Data { size, pieces: pieces.into() }
}

/// A span of a file. Reading it does not use the file's position, so several spans can be read at
/// once.
struct Span {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Span {
    fn skip(&mut self, len: u64) {
        self.at = self.at.saturating_add(len).min(self.end);
    }
}

impl Read for Span {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = shorter(buf.len(), self.end.saturating_sub(self.at));
        let read = self.file.read_at(buf.get_mut(..len).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A file in an archive.
struct Stored {
    file: Arc<File>,
    pieces: Arc<[Piece]>,
    /// The piece that is read now, or before which the hole at `at` lies.
    next: usize,
    at: u64,
    size: u64,
}

impl Read for Stored {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut piece = self.pieces.get(self.next).copied();
        while piece.is_some_and(|piece| piece.at + piece.len <= self.at) {
            self.next += 1;
            piece = self.pieces.get(self.next).copied();
        }
        let start = piece.map_or(self.size, |piece| piece.at);
        let read = match piece.filter(|_| start <= self.at) {
            Some(piece) => {
                let within = self.at - piece.at;
                let len = shorter(buf.len(), piece.len - within);
                let place = piece.place.saturating_add(within);
                self.file.read_at(buf.get_mut(..len).unwrap_or_default(), place)?
            }
            None => {
                let len = shorter(buf.len(), start.saturating_sub(self.at));
                buf.get_mut(..len).unwrap_or_default().fill(0);
                len
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}

/// Returns the smaller of the two lengths.
fn shorter(len: usize, most: u64) -> usize {
    len.min(usize::try_from(most).unwrap_or(usize::MAX))
}
