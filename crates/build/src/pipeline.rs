//! Moves file data to the device on several threads.
//!
//! Data travels in numbered batches of whole blocks. Any thread may read, inspect and write a
//! batch, but batches claim their blocks on the device in the order of the batch numbers. Therefore
//! the layout depends neither on the number of threads nor on their speed.

use crate::error::{Cause, Error, Result};
use crate::host_file::HostFile;
use crate::progress::Meter;
use crate::tree::NodeId;
use lanefs_device::Device;
use lanefs_lanes::sync::unscheduled::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use lanefs_mkfs::{Filling, MkfsError};
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::{Block, FileBlock};
use std::fs::File;
use std::sync::Arc;

/// The size of a full batch in bytes.
const BATCH: usize = 1 << 20;

/// Where the data of a file lies on the device.
#[derive(Debug, Default, Clone)]
pub(crate) struct FileData {
    pub(crate) extents: Vec<Extent>,
    /// The sum of [`mixed`] over all blocks of the file that are not zeros; 0 if no digest was
    /// requested.
    pub(crate) digest: u64,
}

/// Whether a digest of the contents is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digest {
    Yes,
    No,
}

/// Consecutive blocks of one file.
struct Piece {
    file: NodeId,
    /// The number of the first block within the file.
    at: u32,
    blocks: u32,
    /// The source of the bytes, if the batch does not have them yet.
    from: Option<HostPiece>,
}

/// Bytes that are to be read from a file of the host.
struct HostPiece {
    file: Arc<HostFile>,
    len: usize,
}

/// Blocks of data that are claimed together.
struct Batch {
    number: u64,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Consecutive blocks of a batch that are not zeros.
struct DataRun {
    piece: usize,
    /// The number of the first block within the batch; the next field is its number within the
    /// file.
    in_batch: usize,
    in_file: u32,
    blocks: u32,
}

/// The state that all threads share, behind one lock.
struct Shared<'d> {
    filling: Filling<'d>,
    files: Vec<FileData>,
    /// The number of the batch whose turn it is to claim blocks.
    turn: u64,
    failed: Option<Error>,
    /// Whether a batch failed. If so, threads that wait for the turn of their batch give up.
    stopped: bool,
}

/// Moves file data to the device.
pub(crate) struct Pipeline<'d> {
    shared: Mutex<Shared<'d>>,
    turned: Condvar,
    device: &'d dyn Device,
    block: usize,
    digest: Digest,
    pub(crate) meter: &'d Meter<'d>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'d> Pipeline<'d> {
    pub(crate) fn new(filling: Filling<'d>, digest: Digest, meter: &'d Meter<'d>) -> Pipeline<'d> {
        let (device, block) = (filling.device(), filling.block_size().bytes());
        let shared = Shared { filling, files: Vec::new(), turn: 0, failed: None, stopped: false };
        let (shared, turned) = (Mutex::new(shared), Condvar::new());
        Pipeline { shared, turned, device, block, digest, meter }
    }

    /// Runs `feed`. Meanwhile `threads` other threads write the batches that it produces.
    pub(crate) fn run<T>(
        &self,
        threads: usize,
        feed: impl FnOnce(&mut Feeder<'_, 'd>) -> Result<T>,
    ) -> Result<T> {
        let (sender, receiver) = mpsc::sync_channel::<Batch>(threads);
        let receiver = Mutex::new(receiver);
        let (give_back, spare) = mpsc::channel::<Vec<u8>>();
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                let give_back = give_back.clone();
                let receiver = &receiver;
                scope.spawn(move || {
                    loop {
                        let next = lock(receiver).recv();
                        let Ok(batch) = next else { return };
                        if let Some(bytes) = self.take(batch) {
                            let _ = give_back.send(bytes);
                        }
                    }
                });
            }
            let mut feeder = Feeder {
                pipeline: self,
                sender,
                spare,
                batch: Vec::with_capacity(BATCH),
                pieces: Vec::new(),
                number: lock(&self.shared).turn,
            };
            let fed = feed(&mut feeder).and_then(|value| feeder.send().map(|()| value));
            // Dropping the sender ends the threads.
            drop(feeder);
            fed
        })
        .and_then(|value| self.failure().map_or(Ok(value), Err))
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.shared).failed.take()
    }

    /// Returns the file system, and the [`FileData`] of each file at the index of its node.
    pub(crate) fn into_parts(self) -> (Filling<'d>, Vec<FileData>) {
        let shared = self.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        (shared.filling, shared.files)
    }

    /// Frees the blocks of files that are no longer part of the tree. The caller must ensure that
    /// no batch is in progress.
    pub(crate) fn release(&self, files: &[NodeId]) {
        let mut shared = lock(&self.shared);
        for file in files {
            let Some(data) = shared.files.get_mut(file.index()) else { continue };
            let extents = std::mem::take(&mut data.extents);
            let runs = extents.iter().map(|e| e.block.0..e.block.0 + u64::from(e.len));
            shared.filling.release(runs);
        }
    }

    /// Claims blocks for one batch, and writes the batch to the device. Returns the batch's memory,
    /// so that another batch can use it.
    fn take(&self, mut batch: Batch) -> Option<Vec<u8>> {
        let taken = self.fill(&mut batch).and_then(|()| self.store(&batch));
        if let Err(error) = taken {
            let mut shared = lock(&self.shared);
            if !std::mem::replace(&mut shared.stopped, true) {
                shared.failed = Some(error);
            }
            drop(shared);
            self.turned.notify_all();
        }
        batch.bytes.clear();
        Some(batch.bytes)
    }

    /// Reads those parts of a batch that come from files of the host.
    fn fill(&self, batch: &mut Batch) -> Result<()> {
        let mut start = 0;
        // Consecutive pieces of one file share the open file.
        let mut open: Option<(&Arc<HostFile>, File)> = None;
        for piece in &batch.pieces {
            if let Some(from) = &piece.from {
                let end = start + from.len;
                if batch.bytes.len() < end {
                    batch.bytes.resize(end, 0);
                }
                let place = batch.bytes.get_mut(start..end).unwrap_or_default();
                let file = match open.take() {
                    Some((known, file)) if Arc::ptr_eq(known, &from.file) => file,
                    _ => from.file.open()?,
                };
                from.file.read(&file, u64::from(piece.at) * self.block as u64, place)?;
                open = Some((&from.file, file));
            }
            start += piece.blocks as usize * self.block;
            // Extending the buffer also fills the rest of a file's last block with zeros.
            if batch.bytes.len() < start {
                batch.bytes.resize(start, 0);
            }
        }
        Ok(())
    }

    fn store(&self, batch: &Batch) -> Result<()> {
        let (runs, digests) = self.inspect(batch);
        let blocks = runs.iter().map(|run| u64::from(run.blocks)).sum();
        let mut shared = lock(&self.shared);
        while shared.turn != batch.number {
            if shared.stopped {
                return Ok(());
            }
            shared = self.turned.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        let claimed = shared.filling.claim(blocks).map_err(|error| Error::new("", error))?;
        let writes = assign(&mut shared.files, batch, &runs, claimed);
        for (file, digest) in digests {
            let data = slot(&mut shared.files, file);
            data.digest = data.digest.wrapping_add(digest);
        }
        shared.turn += 1;
        drop(shared);
        self.turned.notify_all();
        self.write(batch, &writes).map_err(|error| Error::new("", MkfsError::from(error)))?;
        let pieces = batch.pieces.iter().filter_map(|piece| piece.from.as_ref());
        match pieces.map(|from| from.len as u64).sum() {
            0 => {}
            bytes => self.meter.read(bytes),
        }
        Ok(())
    }

    /// Finds the blocks that are not zeros.
    fn inspect(&self, batch: &Batch) -> (Vec<DataRun>, Vec<(NodeId, u64)>) {
        let mut runs: Vec<DataRun> = Vec::new();
        let mut digests = Vec::new();
        let mut blocks = batch.bytes.chunks_exact(self.block).enumerate();
        for (index, piece) in batch.pieces.iter().enumerate() {
            let mut digest = 0u64;
            let mut open = false;
            for in_file in piece.at..piece.at + piece.blocks {
                let Some((in_batch, bytes)) = blocks.next() else { break };
                if is_zero(bytes) {
                    open = false;
                    continue;
                }
                if self.digest == Digest::Yes {
                    digest = digest.wrapping_add(mixed(in_file, crc32c::crc32c(bytes)));
                }
                match runs.last_mut().filter(|_| open) {
                    Some(last) => last.blocks += 1,
                    None => runs.push(DataRun { piece: index, in_batch, in_file, blocks: 1 }),
                }
                open = true;
            }
            if self.digest == Digest::Yes {
                digests.push((piece.file, digest));
            }
        }
        (runs, digests)
    }

    fn write(
        &self,
        batch: &Batch,
        writes: &[(u64, usize, usize)],
    ) -> std::result::Result<(), lanefs_device::DeviceError> {
        let mut rest = writes;
        while let Some(&(start, ..)) = rest.first() {
            // Blocks that are adjacent on the device are written together.
            let mut end = start;
            let together = rest.iter().take_while(|&&(place, _, blocks)| {
                let joins = place == end;
                end = place + blocks as u64;
                joins
            });
            let (now, later) = rest.split_at(together.count());
            let bytes: Vec<&[u8]> = now
                .iter()
                .map(|&(_, at, blocks)| {
                    let range = at * self.block..(at + blocks) * self.block;
                    batch.bytes.get(range).unwrap_or_default()
                })
                .collect();
            let offset = start * self.block as u64;
            match bytes.as_slice() {
                [only] => self.device.write_at(offset, only)?,
                all => self.device.write_vectored_at(offset, all)?,
            }
            rest = later;
        }
        Ok(())
    }
}

fn slot(files: &mut Vec<FileData>, file: NodeId) -> &mut FileData {
    if files.len() <= file.index() {
        files.resize_with(file.index() + 1, FileData::default);
    }
    &mut files[file.index()]
}

/// Assigns the claimed blocks to the runs, in order. Returns the writes to do. Each write is
/// described by its first block on the device, its first block in the batch, and its number of
/// blocks.
fn assign(
    files: &mut Vec<FileData>,
    batch: &Batch,
    runs: &[DataRun],
    claimed: Vec<std::ops::Range<u64>>,
) -> Vec<(u64, usize, usize)> {
    let mut writes = Vec::new();
    let mut claimed = claimed.into_iter();
    let mut here = claimed.next().unwrap_or_default();
    for run in runs {
        let mut done = 0;
        while done < run.blocks {
            if here.is_empty() {
                let Some(next) = claimed.next() else { return writes };
                here = next;
            }
            let len = u64::from(run.blocks - done).min(here.end - here.start);
            if let Some(piece) = batch.pieces.get(run.piece) {
                let data = slot(files, piece.file);
                let (start, block) = (FileBlock(run.in_file + done), Block(here.start));
                let extent = Extent { start, len: len as u32, block, state: State::Written };
                push(&mut data.extents, extent);
            }
            writes.push((here.start, run.in_batch + done as usize, len as usize));
            here.start += len;
            done += len as u32;
        }
    }
    writes
}

/// Appends blocks to the extents of a file. The last extent grows to its greatest length first.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    let mut rest = Some(extent);
    if let Some(last) = extents.last_mut().filter(|last| last.continued_by(&extent)) {
        let joined = extent.len.min(last.state.max_len().saturating_sub(last.len));
        last.len += joined;
        rest = extent.clip(&(extent.start.0 + joined..extent.end()));
    }
    extents.extend(rest);
}

fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.as_chunks::<64>().0;
    // In most blocks that are not zero, a byte near the start is not zero, so this search ends
    // early.
    words.iter().all(|words| words.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Mixes a block's number and checksum. The results for all blocks are added up, so the order of
/// the blocks does not matter.
fn mixed(at: u32, crc: u32) -> u64 {
    let mut word = u64::from(at) << 32 | u64::from(crc);
    // These three steps are the finalizer of splitmix64.
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Puts the data of files into batches. The files of a directory come in the order of the tree,
/// those of an archive in the order of its entries.
pub(crate) struct Feeder<'p, 'd> {
    pipeline: &'p Pipeline<'d>,
    sender: mpsc::SyncSender<Batch>,
    spare: mpsc::Receiver<Vec<u8>>,
    batch: Vec<u8>,
    pieces: Vec<Piece>,
    number: u64,
}

impl Feeder<'_, '_> {
    /// Appends `len` bytes of a file, from `offset` on. Calls `read` for each part of these bytes;
    /// `read` must fill the buffer that it gets. A file's bytes must come in ascending order.
    pub(crate) fn data(
        &mut self,
        file: NodeId,
        offset: u64,
        len: u64,
        read: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let block = self.pipeline.block as u64;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let number = file_block(at / block, end)?;
            let start = self.room(file, number)?;
            let within = (at % block) as usize;
            // The number of bytes for which the batch has room.
            let most = (BATCH - start - within) as u64;
            let now = most.min(end - at) as usize;
            let filled = (start + within + now).next_multiple_of(block as usize);
            if self.batch.len() < filled {
                self.batch.resize(filled, 0);
            }
            let blocks = (filled - start) / block as usize;
            if let Some(piece) = self.pieces.last_mut() {
                let reached = number - piece.at + blocks as u32;
                piece.blocks = piece.blocks.max(reached);
            }
            read(self.batch.get_mut(start + within..start + within + now).unwrap_or_default())?;
            at += now as u64;
        }
        Ok(())
    }

    /// Returns the offset within the batch at which block `number` of the file lies. If the batch
    /// does not have the block yet, returns the offset at which it can be added.
    fn room(&mut self, file: NodeId, number: u32) -> Result<usize> {
        let block = self.pipeline.block;
        if let Some(last) = self.pieces.last()
            && last.file == file
            && (last.at..=last.at + last.blocks).contains(&number)
        {
            let start = self.batch.len() - (last.at + last.blocks - number) as usize * block;
            if start < BATCH {
                return Ok(start);
            }
        }
        if self.batch.len() >= BATCH {
            self.send()?;
        }
        self.pieces.push(Piece { file, at: number, blocks: 0, from: None });
        Ok(self.batch.len())
    }

    /// Appends bytes of a file of the host. The bytes are read later, by another thread. `offset`
    /// must be a multiple of the block size.
    pub(crate) fn host_data(
        &mut self,
        file: NodeId,
        from: &Arc<HostFile>,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let block = self.pipeline.block as u64;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let number = file_block(at / block, end)?;
            let used: usize = self.pieces.iter().map(|piece| piece.blocks as usize).sum();
            let room = (BATCH - used * block as usize) as u64;
            if room == 0 {
                self.send()?;
                continue;
            }
            let now = room.min(end - at);
            let from = HostPiece { file: from.clone(), len: now as usize };
            let blocks = now.div_ceil(block) as u32;
            self.pieces.push(Piece { file, at: number, blocks, from: Some(from) });
            at += now;
        }
        Ok(())
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> u64 {
        self.pipeline.block as u64
    }

    /// Sends the batch to the threads.
    pub(crate) fn send(&mut self) -> Result<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let next = self.spare.try_recv().unwrap_or_default();
        let bytes = std::mem::replace(&mut self.batch, next);
        let pieces = std::mem::take(&mut self.pieces);
        let batch = Batch { number: self.number, bytes, pieces };
        self.number += 1;
        let sent = self.sender.send(batch);
        // If a batch has failed, report this now, because the remaining data need not be read.
        match self.pipeline.failure() {
            Some(error) => Err(error),
            None => sent.map_err(|_| Error::new("", std::io::Error::other("stopped"))),
        }
    }
}

/// Returns `number`, a block of a file, as 32 bits. Fails from `u32::MAX` on, the limit of ext4, so
/// the number of the next block fits too. `end` is the size of the file, for the message.
fn file_block(number: u64, end: u64) -> Result<u32> {
    let fault = lanefs_mkfs::FileFault::Size { bytes: end };
    let number = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
    number.ok_or_else(|| Error::new("", Cause::File(fault)))
}
