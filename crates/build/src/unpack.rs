//! Reads a stream. If it is compressed, or needs a digest, a separate thread reads and unpacks it.

use crate::error::{Error, Result};
use flate2::bufread::GzDecoder;
use lanefs_lanes::sync::unscheduled::mpsc;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

/// The unpacking thread passes pieces of this size in bytes to the reader. At most `WAITING` pieces
/// wait for the reader.
const PIECE: usize = 256 << 10;
const WAITING: usize = 8;

/// The largest accepted memory for unpacking xz and zstd, in KiB. `xz -9` needs 65 MiB, and
/// `zstd --ultra -22` needs 128 MiB.
const MOST_MEMORY: u32 = 512 << 10;
const TOO_MUCH: &str = "unpacking it needs more memory than the 512 MiB that are allowed";
const NEEDS_DICTIONARY: &str =
    "it was compressed with a dictionary: unpack it first, with zstd -D DICTIONARY";

/// The kinds of compression, which are recognised by the first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
    Xz,
}

impl Packing {
    pub(crate) fn of(start: &[u8]) -> Packing {
        match start {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            // A zstd stream may begin with a skippable frame.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => Packing::None,
        }
    }

    pub(crate) fn of_file(file: &File) -> io::Result<Packing> {
        let mut start = [0; 6];
        let read = file.read_at(&mut start, 0)?;
        Ok(Packing::of(start.get(..read).unwrap_or_default()))
    }
}

/// Two digests of the input: the digest of the bytes as they were read, and the digest of the
/// unpacked bytes. `None` if a digest was not requested or could not be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) packed: Option<String>,
    pub(crate) unpacked: Option<String>,
}

/// Which digests are computed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) packed: bool,
    pub(crate) unpacked: bool,
}

/// A reader that computes the digest of the bytes that it passes on.
struct Digesting<R> {
    inner: R,
    digest: Option<Sha256>,
}

impl<R> Digesting<R> {
    fn new(inner: R, wanted: bool) -> Digesting<R> {
        Digesting { inner, digest: wanted.then(Sha256::new) }
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        if let Some(digest) = &mut self.digest {
            digest.update(buf.get(..read).unwrap_or_default());
        }
        Ok(read)
    }
}

/// Returns a digest in hexadecimal.
pub(crate) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether the file is compressed by gzip, zstd or xz.
///
/// # Errors
/// Those of the host.
pub fn is_packed(file: &File) -> io::Result<bool> {
    Packing::of_file(file).map(|packing| packing != Packing::None)
}

/// Runs `use_it` on the unpacked stream. A stream that is not compressed stays as it is.
///
/// # Errors
/// Those of `use_it`, which gets the errors of the stream from its reader.
pub fn unpacked<T>(
    input: impl Read + Send,
    use_it: impl FnOnce(&mut dyn Read) -> Result<T>,
) -> Result<T> {
    with_unpacked(input, Wanted::default(), use_it).map(|(value, _)| value)
}

/// Runs `use_it` on the unpacked stream, and returns its result with the digests. An archive that
/// is not compressed and needs no digest is read by the caller's thread.
pub(crate) fn with_unpacked<T>(
    input: impl Read + Send,
    wanted: Wanted,
    use_it: impl FnOnce(&mut dyn Read) -> Result<T>,
) -> Result<(T, Digests)> {
    let mut input = BufReader::with_capacity(PIECE, Digesting::new(input, wanted.packed));
    let packing = Packing::of(input.fill_buf().map_err(|error| Error::new("", error))?);
    if packing == Packing::None && !wanted.packed && !wanted.unpacked {
        let value = use_it(&mut input)?;
        return Ok((value, Digests { packed: None, unpacked: None }));
    }
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    std::thread::scope(|scope| {
        let unpacker = scope.spawn(move || unpack(input, packing, wanted, &sender));
        let mut pieces = Pieces { receiver, piece: Vec::new(), at: 0 };
        let value = use_it(&mut pieces);
        // Dropping the receiver makes the unpacking thread terminate.
        drop(pieces);
        let digests = unpacker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((value?, digests))
    })
}

/// Unpacks the whole input. Errors are sent to the reader of the pieces.
fn unpack<R: Read>(
    input: BufReader<Digesting<R>>,
    packing: Packing,
    wanted: Wanted,
    sender: &mpsc::SyncSender<io::Result<Vec<u8>>>,
) -> Digests {
    // The two digests of a stream that is not compressed are the same.
    let is_same = packing == Packing::None && wanted.packed;
    let mut input = Digesting::new(input, false);
    let mut unpacked = Digesting::new(unpacking(packing, &mut input), wanted.unpacked && !is_same);
    let sent = send_all(&mut unpacked, packing, sender);
    let digest = unpacked.digest.take().filter(|_| sent).map(hex);
    drop(unpacked);
    // The rest of the input is read, because bytes after the last frame also count for the digest
    // of the packed bytes.
    let _ = io::copy(&mut input, &mut io::sink());
    let packed = input.inner.into_inner().digest.map(hex);
    let same = packed.clone().filter(|_| is_same && sent && wanted.unpacked);
    Digests { packed, unpacked: digest.or(same) }
}

/// Sends pieces until the end of the input. Returns false if reading or sending failed before the
/// end.
fn send_all(
    input: &mut dyn Read,
    packing: Packing,
    sender: &mpsc::SyncSender<io::Result<Vec<u8>>>,
) -> bool {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = input.take(PIECE as u64).read_to_end(&mut piece);
        let end = match read {
            Ok(0) => return true,
            Ok(_) => sender.send(Ok(piece)).is_err(),
            Err(error) => {
                let _ = sender.send(Err(explained(error, packing)));
                true
            }
        };
        if end {
            return false;
        }
    }
}

/// Replaces a decoder's error by one that names the format and the likely cause. Keeps an error of
/// reading the stream itself, if the decoder passes it on.
fn explained(error: io::Error, packing: Packing) -> io::Error {
    let format = match packing {
        _ if error.raw_os_error().is_some() => return error,
        _ if error.kind() == io::ErrorKind::OutOfMemory => return io::Error::other(TOO_MUCH),
        _ if error.kind() == io::ErrorKind::Unsupported => return error,
        Packing::None => return error,
        Packing::Gzip => "gzip",
        Packing::Zstd => "zstd",
        Packing::Xz => "xz",
    };
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("its {format} stream is damaged or ends too early"),
    )
}

fn unpacking<'r, R: Read + 'r>(packing: Packing, input: R) -> Box<dyn Read + 'r> {
    let input = BufReader::with_capacity(PIECE, input);
    match packing {
        Packing::None => Box::new(input),
        Packing::Gzip => Box::new(Parts {
            input: Some(input),
            part: None,
            begin: begin_member,
            end: |member| Ok(member.into_inner()),
        }),
        Packing::Zstd => {
            Box::new(Parts { input: Some(input), part: None, begin: begin_frame, end: end_frame })
        }
        Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, MOST_MEMORY)),
    }
}

/// A stream of parts, each compressed separately, such as the members of a gzip stream.
struct Parts<R, D> {
    /// The rest of the stream, while no part is being read.
    input: Option<R>,
    part: Option<D>,
    /// Begins the next part; `None` at the end of the stream.
    begin: fn(R) -> io::Result<Option<D>>,
    /// Takes a part that was read to its end, and returns the rest of the stream.
    end: fn(D) -> io::Result<R>,
}

impl<R, D: Read> Read for Parts<R, D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(input) = self.input.take() {
                self.part = (self.begin)(input)?;
            }
            let Some(part) = &mut self.part else { return Ok(0) };
            let read = part.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            self.input = self.part.take().map(self.end).transpose()?;
        }
    }
}

/// Begins the next member of a gzip stream. Zeros may follow a member, because tapes and some
/// programs fill their last record with zeros.
fn begin_member<R: BufRead>(mut input: R) -> io::Result<Option<GzDecoder<R>>> {
    loop {
        let start = input.fill_buf()?;
        let (len, zeros) = (start.len(), start.iter().take_while(|byte| **byte == 0).count());
        if len == 0 {
            return Ok(None);
        }
        if zeros == 0 {
            return Ok(Some(GzDecoder::new(input)));
        }
        input.consume(zeros);
    }
}

type ZstdFrame<R> = StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

/// Begins the next frame of a zstd stream. Skips frames that hold no data.
fn begin_frame<R: BufRead>(mut input: R) -> io::Result<Option<ZstdFrame<R>>> {
    loop {
        match input.fill_buf()?.first() {
            None => return Ok(None),
            Some(0x50..=0x5f) => skip_frame(&mut input)?,
            Some(_) => {
                let most = u64::from(MOST_MEMORY) << 10;
                let frame = StreamingDecoder::new_with_max_window_size(input, most);
                return frame.map(Some).map_err(|error| match error {
                    FrameDecoderError::WindowSizeTooBig { .. } => io::ErrorKind::OutOfMemory.into(),
                    FrameDecoderError::DictNotProvided { .. } => {
                        io::Error::new(io::ErrorKind::Unsupported, NEEDS_DICTIONARY)
                    }
                    error => io::Error::other(error),
                });
            }
        }
    }
}

/// Ends a frame. Checks its checksum, if it has one, because the decoder does not.
fn end_frame<R: BufRead>(frame: ZstdFrame<R>) -> io::Result<R> {
    let (input, decoder) = frame.into_parts();
    let stored = decoder.get_checksum_from_data();
    match stored.is_none() || stored == decoder.get_calculated_checksum() {
        true => Ok(input),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Skips a frame without data (RFC 8878, 3.1.2): magic number, length, bytes.
fn skip_frame(input: &mut impl Read) -> io::Result<()> {
    let mut head = [0; 8];
    input.read_exact(&mut head)?;
    let [_, magic @ .., a, b, c, d] = head;
    if magic != [0x2a, 0x4d, 0x18] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    match io::copy(&mut input.take(len), &mut io::sink())? == len {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A reader that returns the received pieces as one stream.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.recv() {
                Ok(piece) => self.piece = piece?,
                Err(_) => return Ok(0),
            }
            self.at = 0;
        }
        let rest = self.piece.get(self.at..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        self.at += len;
        Ok(len)
    }
}
