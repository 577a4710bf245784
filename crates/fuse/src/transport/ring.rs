//! Transports requests by io_uring: each thread has a ring, and each ring has entries that the
//! kernel fills.
//!
//! The command REGISTER gives an entry to the kernel. When the command completes, the entry has a
//! request. COMMIT_AND_FETCH returns the entry to the kernel with the reply. Sources:
//! Documentation/filesystems/fuse/fuse-io-uring.rst and `<linux/fuse.h>` 7.42 for the commands,
//! `<linux/io_uring.h>` (MIT or GPL) for the offset of `len` in an SQE.
//!
//! With SINGLE_ISSUER and DEFER_TASKRUN the kernel accesses an entry only inside io_uring_enter(2)
//! of the one thread that uses the ring. During that call, no thread has a reference to an entry in
//! the ring, because the thread takes an entry out of the ring before it uses the entry itself.

use super::entry::Entry;
use crate::protocol::abi::{UringCmdReq, uring_cmd};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;
use std::time::Duration;
use zerocopy::IntoBytes;

/// The device in the ring's file table. A plain descriptor would be reference-counted in a cache
/// line that all threads of the process share.
const DEVICE: types::Fixed = types::Fixed(0);
/// The offset of `len` in `struct io_uring_sqe`; REGISTER has the number of vectors there.
const SQE_LEN: usize = 24;

/// An event of a ring.
pub enum Event {
    /// The entry has a request.
    Request(Entry),
    /// The kernel returned an entry and will not fill it again.
    Gone(rustix::io::Errno),
}

/// A ring, used by one thread.
pub struct Ring {
    // This field is dropped first, because the kernel must release the entries before their memory
    // is freed.
    ring: IoUring<Entry128, cqueue::Entry>,
    entries: Vec<Option<Entry>>,
    /// The indexes at which `entries` has no entry, because the requests of these entries are being
    /// served.
    free: Vec<usize>,
    /// The queues of this ring.
    queues: Vec<u16>,
    /// The events that arrived before the kernel had all entries.
    early: Vec<Event>,
}

impl Ring {
    /// Creates a ring with an entry for each of `queues`. The ring is inactive until
    /// [`Ring::register`].
    ///
    /// # Errors
    /// The host has no io_uring (for this process), no memory, or no descriptors.
    pub fn new(queues: &[u16]) -> io::Result<Ring> {
        let make = |queue: &u16| Ok(Some(Entry::new(*queue)?));
        let entries = queues.iter().map(make).collect::<io::Result<Vec<_>>>()?;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            // Each entry has at most one command at a time, so the ring needs a place for each.
            .build(entries.len() as u32)?;
        Ok(Ring { ring, entries, free: Vec::new(), queues: queues.to_vec(), early: Vec::new() })
    }

    /// Gives all entries to the kernel. From now on, only the calling thread may use the ring.
    /// Returns false if the ring could not be enabled, or if the kernel refused every entry of one
    /// of the ring's queues.
    ///
    /// # Errors
    /// io_uring failed, and it is unknown which entries the kernel has.
    pub fn register(&mut self, device: BorrowedFd<'_>) -> io::Result<bool> {
        if self.prepare(device).is_err() {
            return Ok(false);
        }
        for place in 0..self.entries.len() {
            let Some(Some(entry)) = self.entries.get_mut(place) else { continue };
            let vectors = entry.vectors() as u64;
            let sqe = command(uring_cmd::REGISTER, entry.queue, 0, vectors, 2, place as u64);
            self.push(&sqe)?;
        }
        while let Err(error) = self.ring.submit() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut early = Vec::new();
        while let Some(event) = self.next()? {
            early.push(event);
        }
        early.retain(|event| !matches!(event, Event::Gone(_)));
        self.early = early;
        Ok(self.queues.iter().all(|queue| self.has_entry_of(*queue)))
    }

    fn prepare(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.ring.submitter().register_files(&[device.as_raw_fd()])
    }

    fn has_entry_of(&self, queue: u16) -> bool {
        let early = self.early.iter().filter_map(|event| match event {
            Event::Request(entry) => Some(entry),
            _ => None,
        });
        self.entries.iter().flatten().chain(early).any(|entry| entry.queue == queue)
    }

    fn push(&mut self, sqe: &Entry128) -> io::Result<()> {
        // SAFETY: the SQE refers to memory of an `Entry` that stays in `entries` until the command
        // completes. That memory outlives the ring, which is dropped first.
        let pushed = unsafe { self.ring.submission().push(sqe) };
        pushed.map_err(|_| io::Error::other("the submission queue of a ring is full"))
    }

    /// Queues the entry of a served request for return to the kernel; the next [`Ring::wait`]
    /// submits it.
    ///
    /// # Errors
    /// The ring has no free index, so the entry must belong to another ring.
    pub fn commit(&mut self, entry: Entry) -> io::Result<()> {
        let place = self.free.pop().ok_or_else(|| io::Error::other("an entry too many"))?;
        let id = entry.commit_id();
        let sqe = command(uring_cmd::COMMIT_AND_FETCH, entry.queue, id, 0, 0, place as u64);
        if let Some(slot) = self.entries.get_mut(place) {
            *slot = Some(entry);
        }
        self.push(&sqe)
    }

    /// Submits the queued entries, then waits for an event or a signal, for at most `limit`.
    /// Returns false if the time ran out.
    ///
    /// # Errors
    /// io_uring failed.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        let waited = match limit {
            None => self.ring.submit_and_wait(1),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                let arguments = types::SubmitArgs::new().timespec(&limit);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
        };
        match waited {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns whether there is an event.
    pub fn has_event(&mut self) -> bool {
        !self.early.is_empty() || !self.ring.completion().is_empty()
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// The kernel completed a command that was not submitted.
    pub fn next(&mut self) -> io::Result<Option<Event>> {
        if let Some(event) = self.early.pop() {
            return Ok(Some(event));
        }
        let Some(done) = self.ring.completion().next() else { return Ok(None) };
        let place = done.user_data() as usize;
        let entry = self.entries.get_mut(place).and_then(Option::take);
        let entry = entry.ok_or_else(|| io::Error::other("a completion of no entry"))?;
        self.free.push(place);
        if done.result() < 0 {
            let error = rustix::io::Errno::from_raw_os_error(-done.result());
            return Ok(Some(Event::Gone(error)));
        }
        Ok(Some(Event::Request(entry)))
    }

    /// Returns memory for bulk data to the host until the next use.
    pub fn give_back(&mut self) {
        // The kernel owns these entries, but accesses them only within a call of this thread.
        self.entries.iter_mut().flatten().for_each(|entry| entry.give_back());
    }
}

/// Builds a command to /dev/fuse.
fn command(what: u32, queue: u16, id: u64, addr: u64, len: u32, place: u64) -> Entry128 {
    let request = UringCmdReq { commit_id: id, qid: queue, ..UringCmdReq::default() };
    let mut area = [0; 80];
    area[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
    let built = opcode::UringCmd80::new(DEVICE, what).cmd(area).addr(Some(addr)).build();
    with_len(built.user_data(place), len)
}

/// Sets `len`: the library sets all fields of a command except this one.
fn with_len(sqe: Entry128, len: u32) -> Entry128 {
    // SAFETY: `Entry128` is `repr(C)` and has the layout of the kernel's 128-byte `struct
    // io_uring_sqe`, which consists of plain integers.
    let mut bytes = unsafe { std::mem::transmute::<Entry128, [u8; 128]>(sqe) };
    bytes[SQE_LEN..SQE_LEN + 4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: `Entry128` has this layout, and any 128 bytes are a valid value of it.
    unsafe { std::mem::transmute::<[u8; 128], Entry128>(bytes) }
}

/// Submits a REGISTER that the kernel refuses, so that the kernel sends requests by read(2). The
/// call has no effect if the kernel already sends requests by rings.
///
/// # Errors
/// io_uring failed. Requests may then wait for ever.
pub fn refuse(device: BorrowedFd<'_>) -> io::Result<()> {
    let mut ring: IoUring<Entry128, cqueue::Entry> = IoUring::builder().build(1)?;
    ring.submitter().register_files(&[device.as_raw_fd()])?;
    let sqe = command(uring_cmd::REGISTER, u16::MAX, 0, 0, 0, 0);
    // SAFETY: the SQE has no pointers.
    unsafe { ring.submission().push(&sqe) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    Ok(())
}

/// Replies to `entry`, a request that is left after all rings were dropped. The calling thread
/// needs no ring.
///
/// # Errors
/// io_uring failed. Closing the connection then has the effect of a reply.
pub fn answer(device: BorrowedFd<'_>, entry: &Entry) -> io::Result<()> {
    let mut ring: IoUring<Entry128, cqueue::Entry> = IoUring::builder().build(1)?;
    ring.submitter().register_files(&[device.as_raw_fd()])?;
    let sqe = command(uring_cmd::COMMIT_AND_FETCH, entry.queue, entry.commit_id(), 0, 0, 0);
    // SAFETY: the kernel takes the reply from the entry during this call and writes nothing more to
    // the entry, because the request was the last one.
    unsafe { ring.submission().push(&sqe) }.map_err(io::Error::other)?;
    ring.submit()?;
    Ok(())
}
